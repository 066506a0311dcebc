"""DuckDB macros that compute what Spark computes. The expressions of `engines.duckdb.functions` call them.

Reading order:

- `define_macros`    the form in which macros are written
- `macros`           numbers, rounding, casts to integers, texts of values
- `text_macros`      texts
- `datetime_macros`  dates, timestamps and times of day
"""

"""DuckDB macros that compute what Spark computes. The expressions of `engines.duckdb.functions` call them.

Reading order:

- `macros`           numbers, rounding, casts to integers, texts of values
- `text_macros`      texts
- `datetime_macros`  dates, timestamps and times of day
"""

"""Spark's functions as DuckDB expressions: one row of a table for each function.

To change what a function means on DuckDB, find its row in the module of its family:

- `text`, `hashes`                       texts and binary values
- `regexps`                              regular expressions, and their translation from Java's syntax to RE2
- `numbers`, `number_formats`            numbers, aggregates and functions of any type; texts of numbers
- `datetimes`, `intervals`               dates, timestamps, times of day, intervals
- `datetime_casts`, `datetime_patterns`  casts of dates and timestamps; their patterns
- `collections`, `items`, `lambdas`      lists, maps, structs and JSON; their items; functions that take a lambda
"""

"""Spark's functions as DuckDB expressions: one row of a table for each function.

To change what a function means on DuckDB, find its row here: `text` (`substring`, `concat`, …), `numbers`,
`number_formats`, `datetimes`, `datetime_casts`, `datetime_patterns`, `intervals`, `collections`, `items`, `lambdas`,
`json_functions`, `hashes`, `regexps` (Java's syntax in `java_regexps`).
"""

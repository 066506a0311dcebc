"""Queries in DuckDB SQL: `c.sql(text, dialect="duckdb")`.

The text reaches the engine unchanged, over views with the names of the tables.

Reading order:

- `syntax`        the tables, columns and conditions of a text, from DuckDB's own parser
- `conditions`    the conditions that a scan evaluates as DuckDB does, and their constants
- `duckdb_query`  the query that a session returns: it runs on its own engine, with a view for each table
"""

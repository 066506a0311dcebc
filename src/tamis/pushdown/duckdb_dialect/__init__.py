"""Queries in DuckDB's own language: `c.sql(text, dialect="duckdb")`.

The text reaches the engine as it was written, over views that have the names of the tables. Reading order:

- `syntax`      what a text reads from, and which columns and conditions it has, as DuckDB's own parser tells
- `conditions`  the conditions that mean the same to a scan as to DuckDB
- `constants`   the constants that they compare with
- `running`     an engine of its own for each query, with a view for each table
- `query`       the query that a session returns
"""

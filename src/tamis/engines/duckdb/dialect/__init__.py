"""Queries in DuckDB SQL: `c.sql(text, dialect="duckdb")`.

The text reaches the engine unchanged, over views with the names of the tables. Reading order:

- `syntax`      the tables, columns and conditions of a text, from DuckDB's own parser
- `conditions`  the conditions that a scan evaluates as DuckDB does
- `constants`   the constants in those conditions
- `running`     the run of a query on its own engine, with a view for each table
- `query`       the query that a session returns
"""

"""Builders for tests: tables as real writers leave them, random values and predicates, and expected results.

- `values`: values by type, random choices, random rows, and predicates for Tamis and for the oracle;
- `answers`: the oracle (DuckDB), and comparisons of tables and of row counts;
- `hive`, `delta`, `iceberg`, `pyiceberg`, `parquet`: tables and files of a format;
- `skipping`: metadata of units written by hand, and all small units;
- `query`: plans, random queries, tables for SQL and databases;
- `engines`, `servers`: replacements for Spark workers, catalogs and databases.

`case_files` reads and writes before/after files; `commands` runs the command line.
"""

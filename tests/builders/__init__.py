"""What tests are made of: tables as real writers leave them, random values and predicates, and answers to compare with.

- `values`: values by type, random choices, random rows, and predicates said to Tamis and to the judge;
- `answers`: the judge (DuckDB), and comparisons of tables and of ways to count;
- `hive`, `delta`, `iceberg`, `pyiceberg`, `parquet`: tables and files of a format;
- `skipping`: metadata of units written by hand, and all small units there are;
- `query`: plans, random queries, tables for SQL and databases;
- `engines`, `servers`: what tests run in the place of Spark workers, catalogs and databases.

`case_files` reads and writes before/after files; `commands` runs the command line.
"""

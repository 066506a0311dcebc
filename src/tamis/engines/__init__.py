"""Where work runs: threads of this process, DuckDB, or Spark.

The layers below declare what they need of an engine (`formats.jobs`, `scan.engine`, `query.engine`). This package has
the implementations.

Reading order:

- `jobs`    which engine runs a job; the engine that uses threads of this process
- `duckdb`  the embedded engine: filters that Arrow cannot evaluate, and queries
- `spark`   jobs, scans and queries on Spark
"""

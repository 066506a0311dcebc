"""Where work runs: threads of this process, DuckDB, or Spark.

The layers below declare what they need of an engine (`formats.jobs`, `scan.engine`, `query.engine`); this package has
the implementations. Start with `local`, then `duckdb`, then `spark`.
"""

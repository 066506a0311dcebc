"""DuckDB, the embedded engine: it runs what remains of a query above its scans, and filters that Arrow cannot evaluate.

Reading order:

- `engine`       the interface to the layers below
- `functions`    Spark's functions as DuckDB expressions, a module for each family of functions
- `macros`       the DuckDB macros that those expressions call
- `translate`    whole expressions and queries from Spark's dialect to DuckDB's
- `run`          the connection: predicates over batches, plans over scans, errors in the user's terms
- `native_scan`  scans whose files DuckDB's own Parquet reader reads
- `dialect`      queries in DuckDB's own SQL
"""

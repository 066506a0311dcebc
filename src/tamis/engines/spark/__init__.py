"""Spark, through PySpark: jobs, DataFrames, the data source, on classic and on Connect sessions.

Reading order:

- `engine`                        the interface to the layers below
- `sessions`, `spark_types`       what differs between sessions; types of both sides
- `jobs`, `worker`                planning in executors: the engine of `formats.jobs`, and what runs there
- `columns`, `handler`            expressions as Columns; the `ExpressionHandler` of Spark
- `dataframe`, `native_scan`      a scan as a DataFrame, read by Spark's own Parquet reader where that is right
- `queries`, `protected_rows`     SQL on Spark, also under policies
- `data_source`, `register`       `spark.read.format("tamis")`
- `files_dataframe`, `file_rows`  the files of a table as a cached DataFrame, and data skipping over it
"""

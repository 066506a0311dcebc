"""Spark, through PySpark: jobs, DataFrames, the data source, on classic and on Connect sessions.

Reading order:

- `engine`                        the interface to the layers below; a scan as a DataFrame
- `sessions`, `spark_types`       what differs between sessions; types of both sides
- `jobs`, `worker`                planning in executors: the engine of `formats.jobs`, and what runs there
- `columns`, `handler`            expressions as Columns; the `ExpressionHandler` of Spark
- `native_scan`                   scans whose files Spark's own Parquet reader reads
- `distributed_scan`              scans of many files, which executors list, plan and read
- `queries`, `handle_frames`      SQL on Spark, also under policies; aggregates, sorts and limits of tables
- `data_source`                   `spark.read.format("tamis")`
- `files_dataframe`, `file_rows`  the files of a table as a cached DataFrame, and data skipping over it
"""

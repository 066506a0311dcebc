"""Delta tables: `log` writes commits and checkpoints by hand, `tables` adds data files, `statistics` spells
statistics as writers do.

`cases` makes random histories, `deltalake_cases` those of the deltalake library, `weaken_statistics` removes or widens
statistics, `spark_tables` is for the tests beside Spark.
"""

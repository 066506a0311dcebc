"""Delta tables: `log` writes commits and checkpoints by hand, `tables` adds data files, `statistics` what writers note.

`cases` makes random histories, `deltalake_cases` those of the deltalake library, `less_known` removes what is noted,
`spark_tables` is for the tests beside Spark.
"""

"""Iceberg tables written by hand: `values` and `manifests` are the format, `tables` and `deletes` write it.

`cases` makes random tables (`case_deletes` deletes from them), `weaken_statistics` and `edits` change metadata,
`reference_reader` reads tables row by row, `avro_files` and `avro_rows` are files of rows, `spark_tables` and the
program `on_spark` are for the tests beside Iceberg on Spark.
"""

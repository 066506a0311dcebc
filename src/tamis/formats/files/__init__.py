"""Data files that are not Parquet, and manifests.

Reading order:

- `data_files`   a reader of whole files in any format
- `avro`         the reader of Avro files, for data and for manifests
- `avro_schema`  Avro's types as Arrow types
"""

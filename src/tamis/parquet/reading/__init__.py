"""Decoding.

`page_reader` fetches and decodes single pages (`page_header`, `decode`, `assemble`), `row_group_reader` whole row
groups through pyarrow, `conform` adapts batches to the table's schema, `parquet_file` ties a file's parts together.
"""

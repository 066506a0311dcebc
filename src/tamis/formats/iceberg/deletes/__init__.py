"""Deletes of Iceberg tables.

Reading order:

- `deletes_index`     which delete files apply to which data files
- `deleted_rows`      the positions of the deleted rows of a data file; equality delete files
- `position_deletes`  position delete files and deletion vectors
"""

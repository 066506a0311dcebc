"""Iceberg catalogs, through pyiceberg.

Reading order:

- `load_catalog`  a catalog from its properties
- `open_table`    the tables of a catalog
"""

"""Iceberg catalogs through pyiceberg: `load_catalog` makes one from its properties, `open_table` opens its tables."""

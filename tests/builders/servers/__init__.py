"""Servers of the tests' own: a Hive metastore, an Iceberg REST catalog, PostgreSQL."""

"""Servers for tests: a Hive metastore, an Iceberg REST catalog, PostgreSQL."""

"""Connectors hold tables. The rules push operations into their handles.

Reading order:

- `connector`                        the interface: each call adds an operation to a handle, or declines it
- `column_ranges`                    the values that a predicate leaves to each column, for authors of connectors
- `lake_connector`, `lake_handle`    Delta, Iceberg and Hive-style tables
- `lake_reading`, `lake_clustering`  rows of a lake handle; whether a table is clustered by a column
- `database_connector`               tables of databases
- `memory_connector`                 Arrow tables
"""

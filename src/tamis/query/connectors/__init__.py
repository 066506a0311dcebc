"""Connectors hold tables. The rules push operations into their handles.

Reading order:

- `connector`                        the interface: each call adds an operation to a handle, or declines it
- `lake_connector`, `lake_handle`    Delta, Iceberg and Hive-style tables, and whether a column clusters them
- `lake_reading`                     rows of a lake handle
- `database_connector`               tables of databases
- `memory_connector`                 Arrow tables
"""

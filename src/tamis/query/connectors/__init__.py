"""What holds tables, under the rules.

`connector` is the interface: each call takes more into a handle or declines. `lake_connector` (with `lake_handle`,
`lake_reading`, `lake_clustering`) serves Delta, Iceberg and Hive tables, `database_connector` databases,
`memory_connector` Arrow tables.
"""

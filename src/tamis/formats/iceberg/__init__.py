"""Apache Iceberg: metadata, snapshots, manifests, deletes, catalogs.

Read `metadata` (which snapshot, where its files are), `manifests`, `partitioning`, `planning`, `deletes`. `schema` maps
Iceberg's types and field ids to Arrow, `table` is what a scan sees, `functions` what `tamis.iceberg` offers.
"""

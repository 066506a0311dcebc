"""Apache Iceberg tables: metadata files, snapshots, manifests, deletes."""

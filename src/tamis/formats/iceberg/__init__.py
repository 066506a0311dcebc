"""Apache Iceberg: metadata, snapshots, manifests, deletes, catalogs.

Reading order:

- `table`, `functions`  what a scan sees; the functions of `tamis.iceberg`
- `metadata`            the metadata file, its snapshots, the locations of files
- `catalogs`            tables by their names in a catalog
- `schema`              Iceberg's types and field ids as Arrow
- `partitioning`        partition specs and transforms
- `manifests`           manifest lists and manifests
- `planning`            the files that a scan needs
- `deletes`             deleted rows

"""

"""Apache Iceberg tables: metadata files, snapshots, manifests, deletes.

Reading order: `table`, `redact_opening_errors` and `snapshots` (which metadata is read), `specs`, `transforms` and `projection`
(partition pruning), `manifest_list`, `manifests`, `files` and `planning` (scan planning), `deletes_index` and `deletes`
(row-level deletes), `data_files` (reading). The `avro*` modules decode Avro.
"""

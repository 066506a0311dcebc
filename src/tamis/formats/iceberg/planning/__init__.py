"""The files of a snapshot that a scan needs.

Reading order:

- `plan_files`      the driver: manifests, then files, then deletes
- `file_request`    the request of a scan
- `manifest_files`  pruning of the entries of manifests
- `file_rows`       all files with their statistics, read in executors
"""

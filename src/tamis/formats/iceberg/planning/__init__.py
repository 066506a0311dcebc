"""The files of a snapshot that a scan needs.

Reading order:

- `plan_files`      the driver: manifests, then files, then deletes; all files with their statistics
- `file_request`    the request of a scan
- `manifest_files`  pruning of manifests by their partition summaries, and of their entries
"""

"""The files of a snapshot that a scan needs.

Reading order:

- `file_request`      the request of a scan, and how it is answered
- `log_fragments`     the parts of the log that hold file actions
- `file_batches`      file actions, decoded and cached
- `partition_values`  typed partition values
- `prune_files`       pruning by partition values and statistics
- `checkpoint_job`    the same for checkpoint parts, in executors
- `file_rows`         all files with their statistics, read in executors
"""

"""The files of a snapshot that a scan needs.

Reading order:

- `file_batches`      the parts of the log that hold file actions; these, decoded and cached
- `partition_values`  typed partition values
- `prune_files`       the request of a scan; pruning by partition values and statistics
- `checkpoint_job`    the same for checkpoint parts, in executors; all files with their statistics
"""

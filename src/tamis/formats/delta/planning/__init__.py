"""The files of a snapshot that a scan needs.

`file_request` says what a scan asks, `log_fragments` where file actions come from, `file_batches` decodes them,
`partition_values` types their partition values, `prune_files` prunes by partition values and statistics,
`checkpoint_job` does that for checkpoint parts in executors, and `file_rows` reads all files with their statistics
there.
"""

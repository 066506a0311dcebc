"""Tasks to batches: `task_reader`, the `residual` filter, the `pipeline` of threads, `bloom_join_filter`, and `results`
for other libraries."""

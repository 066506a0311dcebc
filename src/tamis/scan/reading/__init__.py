"""From tasks to batches: `run` drives, `task_reader` reads, `residual` filters, `pipeline` runs threads,
`bloom_join_filter` drops rows without a join partner, `results` converts rows for other libraries."""

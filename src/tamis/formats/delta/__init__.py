"""Delta Lake: from the log to live files, their statistics and their deletion vectors.

Read `log` (commits and log segments), `checkpoint`, `snapshot` (the table at one version), `schema` and `protocol`,
`planning` (partition pruning and data skipping), `statistics`, `deletion_vectors`, `generated_columns`. `table` is what
a scan sees, `functions` what `tamis.delta` offers.
"""

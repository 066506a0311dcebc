"""Delta Lake: from the log to live files, their statistics and their deletion vectors.

Reading order:

- `table`, `functions`                           what a scan sees; the functions of `tamis.delta`
- `snapshot`                                     the table at one version
- `log`                                          commits, log segments, action reconciliation
- `checkpoint`                                   checkpoints and their parts
- `schema`, `protocol`, `paths`                  table metadata, table features, paths of files
- `planning`                                     partition pruning and data skipping over the files of a snapshot
- `statistics`                                   statistics of files
- `generated_columns`, `generation_expressions`  partition predicates from generated columns
- `deletion_vectors`                             deleted rows
"""

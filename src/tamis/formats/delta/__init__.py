"""Delta Lake: from the log to live files, their statistics and their deletion vectors.

Reading order:

- `table`, `functions`                           what a scan sees; the functions of `tamis.delta`
- `snapshot`                                     the table at one version, and its table features
- `log`                                          commits, log segments, action reconciliation
- `checkpoint`                                   checkpoints and their parts
- `schema`, `paths`                              table metadata, paths of files
- `planning`                                     partition pruning and data skipping over the files of a snapshot
- `statistics`                                   statistics of files
- `generated_columns`                            partition predicates from generated columns
- `changes`                                      the change data feed
- `deletion_vectors`                             deleted rows
"""

"""The Delta log.

Reading order:

- `log_segment`        the files of the log, and those that make up a version
- `commits`            JSON lines
- `actions`            add and remove actions as columns
- `replay`             action reconciliation: the newest action of each file
- `commit_timestamps`  time travel
"""

"""Statistics of Delta files as metadata for data skipping.

Reading order:

- `file_statistics`  statistics in the layout of `skipping.metadata`
- `statistics_json`  the parser of statistics in JSON
"""

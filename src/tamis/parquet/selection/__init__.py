"""Sets of rows.

Reading order:

- `row_selection`  `RowSelection`, the rows of a file that are read
- `runs`           half-open runs of rows, and the operations on them
"""

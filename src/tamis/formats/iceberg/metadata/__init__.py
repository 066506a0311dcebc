"""Table metadata.

Reading order:

- `open_metadata`   the metadata file of a table
- `table_metadata`  its contents, and the choice of a snapshot
- `relocation`      the files of a table that was moved
"""

"""Deletes of Iceberg tables.

`deletes_index` assigns delete files to data files, `deleted_rows` turns them into row positions, with
`position_deletes` (and deletion vectors in Puffin files) and `equality_deletes`.
"""

"""Footers: what Parquet's metadata says of a file before any page is read.

Reading order:

- `footer`                   footers, fetched and cached
- `thrift`, `validation`     the encoding of footers; checks before pyarrow reads them
- `chunks`                   column chunks
- `schema_path`, `leaves`    the path to a leaf column; leaf columns and the fields that they hold
- `field_names`, `matching`  columns of the file as columns of the table, by physical name or field id
- `statistics`, `bounds`     metadata of row groups, and bounds in the table's types
- `datetime_rebase`          files written with the hybrid Julian calendar
"""

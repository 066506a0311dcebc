"""Footers: what Parquet's metadata says of a file before any page is read.

`footer` fetches and caches it, `thrift` and `validation` parse and check it, `chunks` and `leaves` are column chunks
and leaf columns, `field_names` and `matching` map them to the table's columns, `statistics` and `bounds` make metadata
batches, `datetime_rebase` handles files written with the hybrid Julian calendar.
"""

"""Decoding.

Reading order:

- `parquet_file`           one file with its footer, column chunks and leaf columns
- `row_group_reader`       whole row groups, through pyarrow, in batches of limited size
- `page_reader`, `decode`  selected rows, from the pages that hold them; page headers, and pages to arrays
- `conform`                batches in the table's schema
"""

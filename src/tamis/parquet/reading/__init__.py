"""Decoding.

Reading order:

- `parquet_file`                       one file with its footer, column chunks and leaf columns
- `row_group_reader`                   whole row groups, through pyarrow
- `page_reader`                        selected rows, from the pages that hold them
- `page_header`, `decode`, `assemble`  the steps of the page reader: headers, pages to arrays, leaves to nested
                                       columns
- `conform`                            batches in the table's schema
- `batch_sizes`                        limits of batches
"""

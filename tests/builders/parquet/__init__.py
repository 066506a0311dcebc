"""Parquet files: `files` and `page_files` write small ones, `footers` and `damage` change them.

`page_cases` and `evolved_files` make random ones, `page_checks`, `probes` and `bloom` query them, `tuning` makes
small files be read like large ones.
"""

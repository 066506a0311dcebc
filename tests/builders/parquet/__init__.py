"""Parquet files: `files` and `page_files` write small ones, `footers` and `damage` change what they say.

`page_cases` and `evolved_files` make random ones, `page_checks`, `probes` and `bloom` ask them, `by_pages` makes small
files be read like large ones.
"""

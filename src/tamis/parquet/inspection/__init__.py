"""The report of `tamis inspect` about one file.

Reading order:

- `inspect_file`  the file and its row groups
- `column_facts`  its columns
- `clustering`    how clustered a column is
"""

"""Expressions of other libraries as ours.

Reading order:

- `from_any`                                        the entry: it accepts every form of `where`
- `from_pyarrow`, `from_pyiceberg`, `from_pyspark`  one library each
- `from_polars`, `from_datafusion`                  one library each
- `translate_tree`                                  what they share
"""

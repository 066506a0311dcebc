"""Expressions of other libraries as ours: pyarrow, pyiceberg, PySpark, tuples. `from_any` takes all that a `where` may
be."""

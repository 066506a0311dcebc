"""Database tables: queries are written as SQL in the database's own dialect, and results are read as Arrow.

Reading order: `query` (a query as a value), `dialects` and `expressions` (where a database computes the same result),
`select` (SQL text), `connection` (the interface), then one module per database.
"""

from tamis.formats.database.open_database import open_database

__all__ = ["open_database"]

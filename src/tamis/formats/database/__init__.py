"""Database tables: queries are written as SQL in the database's own dialect, and results are read as Arrow.

Reading order:

- `database_query`                       a query as a value
- `dialects`                             the semantics in which databases differ
- `select_text`                          the SQL text of a query, and of the expressions that a database evaluates
                                         as Tamis does
- `connection`, `open_database`          the interface of a database; opening one
- `sqlite`, `postgresql`, `duckdb_file`  one database each
"""

from tamis.formats.database.open_database import open_database

__all__ = ["open_database"]

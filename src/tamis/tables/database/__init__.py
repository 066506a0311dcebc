"""Tables of databases: what is asked of them as SQL in their own dialect, and read as Arrow."""

from tamis.tables.database.opening import open_database

__all__ = ["open_database"]

"""Delta Lake tables: from the log to live files, their statistics and their deleted rows."""

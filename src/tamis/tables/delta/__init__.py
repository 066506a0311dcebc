"""Delta Lake tables: the log, live files, their statistics and their deletion vectors."""

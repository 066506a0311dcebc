"""Engines: where jobs run. See `tamis.tables.jobs` for what a job is."""

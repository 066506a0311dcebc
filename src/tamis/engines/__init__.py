"""Engines, which run jobs (see `tamis.tables.jobs`): in local threads, or in Spark executors."""

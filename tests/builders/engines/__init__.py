"""Replacements for Spark's workers: `worker_engine` runs in this process, `dying_workers` fail."""

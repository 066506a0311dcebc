"""What runs in the place of Spark's workers: `worker_engine` in this process, `dying_workers` that fail."""

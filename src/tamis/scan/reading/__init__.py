"""From tasks to rows.

Reading order:

- `run`                            the driver
- `task_reader`                    the rows of a task
- `residual`, `bloom_join_filter`  filters of rows: the residual filter, and the keys of a join
- `pipeline`                       tasks in threads, with bounded memory

"""

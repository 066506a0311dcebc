"""From files to tasks.

Reading order:

- `scan_planner`          the driver
- `projection`            the columns that a scan returns
- `slices`, `row_groups`  the levels inside of files, for some files at a time
- `plan`, `tasks`         the result
- `task_data`             tasks for other processes
- `physical_names`        physical column names in files, for native scans
"""

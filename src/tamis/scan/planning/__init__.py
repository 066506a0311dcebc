"""From files to tasks: `scan_planner` drives, `row_groups` and `slices` apply the levels, `projection` chooses columns,
`plan` and `tasks` are the result.

`task_data` serialises tasks for other processes, `physical_names` finds the column names in files for native scans.
"""

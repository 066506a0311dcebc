"""From files to tasks: `row_groups` and `slices` run the levels, `projection` chooses columns, `plan` and `tasks` are
the result.

`task_data` sends tasks to other processes, `physical_names` finds what files name their columns.
"""

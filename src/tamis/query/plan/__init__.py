"""Logical plans.

Reading order:

- `nodes`, `column_ids`            the nodes of a plan, and the unique names of columns in it
- `optimizer`                      the driver of the rules
- `paths`, `sizes`                 which columns and fields expressions read; estimated sizes
- `to_sql`                         a plan as one syntax tree, for an engine
- `explain`                        the output of EXPLAIN
- `time_zones`                     timestamps of a query become instants
"""

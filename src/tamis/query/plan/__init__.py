"""Logical plans.

Reading order:

- `nodes`, `column_ids`  the nodes of a plan; unique names of columns, and which of them expressions read
- `optimizer`            the driver of the rules
- `to_sql`               a plan as one syntax tree, for an engine
- `explain`              the output of EXPLAIN
- `time_zones`           timestamps of a query become instants
"""

"""SQL over tables.

Reading order:

- `query`, `catalog`  what users hold; the tables of a session
- `sql`               text to a logical plan
- `plan`              logical plans, and the optimizer
- `rules`             the rules of the optimizer: they push operations into scans
- `connectors`        the tables that scans read
- `policies`          row filters and masks
- `engine`            what an engine must offer to run the remaining plan
"""

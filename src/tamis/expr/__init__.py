"""The expression language: its nodes, and what can be done with them.

Reading order:

- `nodes`                      calls over literals and leaves: names in unbound trees, columns in bound ones
- `functions`                  the table of functions, and their kernels
- `builder`                    expressions written in Python
- `sql`                        expressions from SQL text and as SQL text
- `names`, `bind`              names become columns of a schema, operands get a common type
- `foreign`                    calls of other libraries, which binding gives their meaning there
- `literals`, `datetime_text`  values: exact conversions, and dates and timestamps as text
- `normalise`                  the normal form of a predicate
- `patterns`                   LIKE patterns and their bounds
- `evaluate`                   values of a bound expression over a batch
- `interop`                    expressions of other libraries
- `wire`                       expressions as JSON, and `PartitionFilter`
"""

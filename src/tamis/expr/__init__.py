"""The expression language: three nodes, and what can be done with them.

Read `nodes`, then `functions.table`, `bind` and `names` (unbound to bound), `normalise`, `evaluate`. `literals` and
`datetime_text` convert values, `patterns` knows LIKE, `builder` is what users write in Python. `sql` reads and prints
text, `interop` takes expressions of other libraries, `wire` is JSON and `PartitionFilter`.
"""

"""SQL text in Spark's dialect, in and out.

`dialect` is what sqlglot needs to know of Spark, `syntax` parses text and reports errors with a position, `parse` turns
the tree into our nodes, `printer` prints them back. `intervals` and `pipes` are grammars of their own, `refusals` names
what a filter cannot have.
"""

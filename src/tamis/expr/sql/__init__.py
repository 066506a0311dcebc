"""SQL text in Spark's dialect, in and out.

Reading order:

- `dialect`             what sqlglot needs to know of Spark
- `syntax`              text to a sqlglot tree, with errors that have a position
- `intervals`, `pipes`  grammars that sqlglot does not have
- `parse`               the tree to our nodes
- `refusals`            errors for syntax that a filter cannot have
- `printer`             our nodes to text
- `to_tree`             our nodes to a sqlglot tree, which engines translate
"""

"""From Spark's SQL to DuckDB's, as sqlglot trees.

Reading order:

- `functions`                               the entry: it applies the rows of `engines.duckdb.functions` to a tree
- `calls`                                   calls of macros and functions, with checked and cast arguments
- `nodes`, `operators`, `comparisons`       syntax that both dialects have, with another meaning
- `syntax`, `set_operations`                whole queries, with generators
"""

"""From Spark's SQL to DuckDB's, as sqlglot trees.

`functions` is the entry: it applies the rows of `engines.duckdb.functions` to a tree. `nodes`, `operators` and
`comparisons` translate syntax that both dialects share with another meaning, `calls` checks and casts arguments.
`syntax`, `generators` and `set_operations` translate whole queries.
"""

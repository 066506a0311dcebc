"""Data skipping: predicates over rows become predicates over metadata.

Read `rewrite` (the three questions), `answers`, `atoms`, `ranges`, `membership`; then `metadata` (the layout of a batch
of units), `prune`, `metrics`. `predicate` is a filter made ready for a table; `handler` evaluates expressions over
metadata.
"""

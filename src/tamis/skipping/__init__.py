"""Data skipping: predicates over rows become predicates over metadata.

Reading order:

- `rewrite`           the three questions about a predicate
- `answers`, `atoms`  their algebra; ranges of expressions, comparisons, IN, LIKE
- `transforms`        partition values that are functions of a column
- `column_ranges`     the values that a predicate leaves to each column
- `membership`        questions for Bloom filters and dictionaries
- `metadata`          the layout of a batch of units
- `predicate`         a filter prepared for a table
- `prune`, `metrics`  pruning of a batch, and its metrics
- `handler`           the evaluation of expressions over metadata, for any engine
"""

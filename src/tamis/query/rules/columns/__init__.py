"""Rules that narrow columns: projection pushdown, column pruning, dereference pushdown."""

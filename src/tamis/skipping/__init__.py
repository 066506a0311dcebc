"""Data skipping: the rewrite of predicates over rows into predicates over metadata, and their evaluation."""

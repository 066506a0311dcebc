"""Skipping: predicates over rows rewritten into predicates over metadata, and their evaluation."""

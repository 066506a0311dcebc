"""Expressions that travel: exact JSON (`expression_json`), and the portable `PartitionFilter`."""

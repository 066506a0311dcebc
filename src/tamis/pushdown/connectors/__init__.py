"""Connectors: lake tables, databases and in-memory tables, as the optimizer rules use them."""

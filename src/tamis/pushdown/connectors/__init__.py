"""Adapters between the rules and what holds tables: lake tables, databases, tables in memory."""

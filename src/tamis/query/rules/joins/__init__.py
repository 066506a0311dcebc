"""Rules for joins: pushdown into one connector, and dynamic filters from the smaller side."""

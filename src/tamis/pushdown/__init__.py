"""Logical plans for SQL queries: rules push work down into the connectors' scans, and an engine runs the remainder."""

"""Queries as plans: rules push what a connector can do into its scans, the rest runs on an engine."""

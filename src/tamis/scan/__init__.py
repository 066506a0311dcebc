"""Scans: the levels of pruning in order, plans, reports, tasks and their reader."""

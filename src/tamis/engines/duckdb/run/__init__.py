"""The embedded connection at work.

`evaluate` filters batches, `run_plan` runs a plan over its scans, `arrow_types` casts what DuckDB has no type for, and
`errors` turns DuckDB's errors into ours.
"""

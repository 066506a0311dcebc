"""Macros of the embedded connection that compute what Spark computes, called by `engines.duckdb.functions`."""

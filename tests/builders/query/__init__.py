"""Queries: `plans` and `plan_text` for rules, `sql_tables` and `sql_queries` for whole queries, TPC-H and TPC-DS,
`aggregates` and `duckdb_conditions` at random, `databases` behind connectors, `protected` tables for policies."""

"""From a SQL text to a logical plan.

Read `normalise_query` (one form for every query), `planner`, `sources` (FROM), `scopes` (names), `grouping`,
`subqueries`, `conditions`, `common_tables`. What the plan cannot express runs as text: `unsupported`. `name_errors`
says what an unknown name could have meant. `parameters` and `table_versions` bind `:name` and `VERSION AS OF`.
"""

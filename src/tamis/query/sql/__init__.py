"""From a SQL text to a logical plan.

Reading order:

- `trees`                         the syntax tree of a query
- `parameters`, `table_versions`  `:name`, `?` and `VERSION AS OF`
- `normalise_query`               one form for every query
- `planner`, `sources`            the plan of a query; FROM and its joins
- `scopes`                        names and expressions
- `grouping`, `subqueries`        GROUP BY and aggregates; subqueries in expressions
- `common_tables`, `conditions`   checks of WITH, and of the types of conditions
- `function_kinds`                scalar functions, aggregates and generators
- `unsupported`                   SQL that plans cannot express; it runs as text
- `name_errors`                   errors for unknown and ambiguous names
"""

"""From a SQL text to a logical plan.

Reading order:

- `trees`                         the syntax tree of a query
- `parameters`, `table_versions`  `:name`, `?` and `VERSION AS OF`
- `partition_conditions`          `partition_text('year') = '2024'` in a WHERE
- `normalise_query`               one form for every query
- `planner`, `sources`            the plan of a query and of its subqueries; FROM and its joins
- `scopes`                        names and expressions; scalar functions, aggregates and generators
- `grouping`                      GROUP BY and aggregates
- `common_tables`, `conditions`   checks of WITH, and of the types of conditions
- `unsupported`                   SQL that plans cannot express; it runs as text
- `name_errors`                   errors for unknown and ambiguous names
- `tables_in_text`                where a text names its tables, for engines that analyse the text themselves
"""

"""The functions of the expression language.

Reading order:

- `table`             a row for each function, and what rows say of an expression: its type, whether it may fail, …
- `rows`              the rows, and the rules for result types and monotonicity
- `aggregates`        the rows of functions that are not scalar: aggregates, window functions, generators
- `kernels`           their computation over Arrow arrays
- `domains`           the calls that the kernels compute exactly, and those that may fail
- `spark_semantics`   the calls that mean the same in Spark's SQL
- `calendar`          parts of dates, truncation, intervals
- `partition_values`  partition values as text, for `partition_value(text, type)` and partition filters
"""

from tamis.expr.functions import rows as _rows  # noqa: F401  # it fills the table

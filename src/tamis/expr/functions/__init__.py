"""The functions of the expression language.

Reading order:

- `table`             one row for each function: arguments, result type, NULL behaviour, monotonicity
- `kernels`           their computation over Arrow arrays
- `calendar`          parts of dates, truncation, intervals
- `partition_values`  partition values as text, for `partition_value(text, type)`
"""

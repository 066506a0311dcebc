"""The functions of the expression language.

`table` has one row a function: arguments, result type, NULL behaviour, monotonicity. `kernels` computes them over Arrow
arrays, with `calendar` for dates and `partition_values` for `partition_value(text, type)`.
"""

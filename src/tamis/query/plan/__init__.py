"""Logical plans: `nodes`, `column_ids`, `paths` and `sizes`; the `optimizer` that drives the rules; `explain`;
`to_sql`.

`direct_scan` answers plans that are one scan; `time_zones` and `spark_semantics` say which filters mean the same on
Spark.
"""

"""Partition specs and transforms.

`specs` and `transforms` model them, `partition_bounds` derives bounds of source columns from partition values (and
projects predicates that bounds cannot answer), `partition_keys` compares and shows partition tuples.
"""

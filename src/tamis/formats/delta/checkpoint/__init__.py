"""Checkpoints: classic, multi-part and V2 with sidecars.

`checkpoints` finds the parts of one and its protocol and metadata, `checkpoint_rows` reads file actions from a part,
`row_group_skipping` skips row groups of a part by their own statistics.
"""

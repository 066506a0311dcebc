"""Checkpoints: classic, multi-part and V2 with sidecars.

Reading order:

- `checkpoints`      the parts of a checkpoint, its protocol and its metadata
- `checkpoint_rows`  file actions from a part, whose row groups are skipped by their own statistics
"""

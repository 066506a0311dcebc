"""Manifest lists and manifests.

Reading order:

- `manifest_list`     the manifests of a snapshot
- `manifest_entries`  the entries of one manifest
- `single_values`     the binary encoding of bounds
"""

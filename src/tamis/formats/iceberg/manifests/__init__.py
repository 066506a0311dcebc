"""Manifest lists and manifests.

`manifest_list` reads the manifests of a snapshot, `manifest_pruning` prunes them by partition summaries,
`manifest_entries` reads one, `single_values` decodes bounds.
"""

"""The plan of a scan: `plan_files` drives it, `file_request` says what is asked, `read_manifest_files` prunes entries,
`plan_metrics` counts."""

"""The plan of a scan: `plan_files` drives it, `file_request` says what is asked, `manifest_files` prunes entries,
`plan_metrics` counts. `file_rows` reads all files with their statistics in executors."""

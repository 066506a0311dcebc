"""Statistics of Delta files as metadata for data skipping: `file_statistics` lays them out, `statistics_json` parses
JSON."""

"""Table metadata: `open_metadata` finds the file, `table_metadata` reads it, `snapshots` chooses a snapshot,
`relocation` maps paths."""

"""Input and output: `location` (spellings of one location), `storage` (locations and symbolic links), `listing`,
`ranges`, `retries`, `counters`, caches and threads."""

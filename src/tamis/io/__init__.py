"""Input and output: `storage` (locations and symbolic links), `listing`, `ranges`, `retries`, `counters`, caches and
threads."""

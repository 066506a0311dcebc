"""Storage and input.

Reading order:

- `location`                    the normal form of a location
- `storage`, `storage_options`  a file system with a root; the options that users give for it
- `other_stores`                files of a table in other stores
- `listing`                     directories
- `ranges`, `open_files`        byte ranges of files; open files
- `retries`, `counters`         retries of requests; counters of requests and bytes
- `threads`, `weighted_cache`   the pool of threads; a cache bounded by bytes
"""

"""Storage and input.

Reading order:

- `location`                    the normal form of a location
- `storage`, `storage_options`  a file system with a root, and its open files; the options of users
- `other_stores`                files of a table in other stores
- `listing`                     directories
- `ranges`                      byte ranges of files
- `retries`, `counters`         retries of requests; counters of requests and bytes
- `threads`, `weighted_cache`   the pool of threads; a cache bounded by bytes
"""

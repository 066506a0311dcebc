"""Table formats, one package each, behind one interface.

Reading order:

- `source`                    the interface: what a scan needs of a table
- `constants`                 columns with one value in each file: partition values, values that files lack
- `file_funnel`               pruning of files: request, metrics, limit, results of executors
- `jobs`, `engines`           metadata is read by plain functions, in threads or executors; how to reach an engine
- `detect`, `open_source`     the format of a folder; opening a table with arguments that fit it, or by its name
- `time_travel`               timestamps of users
- `hive`, `delta`, `iceberg`  the formats, the smallest first
- `files`                     ORC and Avro files
- `database`                  tables of databases
- `errors`                    errors about damaged files and missing packages
- `file_rows`                 files with their statistics, read in executors
- `listing_parts`             files that executors list and read, without a row for each in this process
- `function_results`          the columns that `tamis.delta`, `tamis.iceberg` and `tamis.hive` return
"""

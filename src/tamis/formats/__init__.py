"""Table formats, one package each, behind one interface.

Read `source` (what a scan needs of a table), `jobs` (how metadata is read in threads or executors alike), `detect`
(which format a folder has), `catalogs` (tables by their names), `file_rows` (files with statistics, read in executors).
Then `hive`, the smallest, `delta` and `iceberg`. `files` reads ORC and Avro, `database` is for tables of databases.
"""

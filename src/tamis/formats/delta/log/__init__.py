"""The Delta log.

`log_segment` lists it and chooses the files that make up a version, `commits` parses JSON lines, `actions` turns add
and remove actions into columns, `replay` keeps the newest action of each file, `commit_timestamps` answers time travel.
"""

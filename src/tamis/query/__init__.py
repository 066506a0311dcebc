"""SQL over tables: `sql` turns text into a `plan`, `rules` push operations into the scans of `connectors`, under
`policies`.

`query` is what users hold, `catalog` the tables of a session, `engine` what an engine must offer to run the rest.
"""

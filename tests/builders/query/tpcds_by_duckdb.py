"""Write the tables of TPC-DS as Parquet files, and the texts of its queries, with DuckDB's extension.

Run by an interpreter of its own (scripts/setup_tpcds.sh), in which nothing but DuckDB is installed:

    python tpcds_by_duckdb.py FOLDER SCALE
"""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

ROWS_IN_A_GROUP = 2048


def main(folder: Path, scale: str) -> None:
    import duckdb

    extension = next(Path(str(files("duckdb_extension_tpcds"))).rglob("*.duckdb_extension"))
    connection = duckdb.connect(":memory:")
    connection.execute(f"LOAD '{extension}'")
    connection.execute(f"CALL dsdgen(sf = {float(scale)})")
    for (name,) in connection.execute("SHOW TABLES").fetchall():
        connection.execute(f"COPY {name} TO '{folder / name}.parquet' (ROW_GROUP_SIZE {ROWS_IN_A_GROUP})")
    queries = connection.execute("SELECT query_nr, query FROM tpcds_queries() ORDER BY 1").fetchall()
    (folder / "queries.json").write_text(json.dumps(queries))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

"""What changed in a Delta table, and when: its history, and the same query on several versions.

The table is written with deltalake (`pip install deltalake`); Tamis itself does not need it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

import tamis


def write_stock(root: Path) -> None:
    """Fill three shelves one after another, then empty one and change the weights of another."""
    for shelf in ("apples", "pears", "plums"):
        pieces = pa.table({"shelf": [shelf] * 100, "piece": range(100), "grams": [80.0 + n % 40 for n in range(100)]})
        write_deltalake(root, pieces, mode="append", partition_by=["shelf"])
    DeltaTable(root).delete("shelf = 'pears'")
    DeltaTable(root).update({"grams": "grams + 30"}, predicate="shelf = 'plums' AND piece >= 90")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "stock"
        write_stock(root)

        newest = tamis.open(root)
        for commit in newest.history().select(["version", "operation"]).to_pylist()[::-1]:
            stock = tamis.open(root, version=commit["version"])
            heavy = stock.scan("shelf <> 'apples' AND grams > 115")
            print(f"version {commit['version']}, {commit['operation']:<6} {heavy.count():>3} heavy pieces")

        print()
        print(newest.scan("shelf = 'plums' AND grams > 115").explain())


if __name__ == "__main__":
    main()

"""Keep a query cheap: a test that fails if a change makes the query read the whole table.

The test checks the plan. It reads metadata only, and its error says what became too large.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import tamis
from tamis.errors import PlanBudgetExceeded

DAYS = [f"2024-03-{day:02}" for day in range(1, 11)]


def write_orders(root: Path) -> None:
    """Write ten days of orders, each in its own directory."""
    for number, day in enumerate(DAYS):
        directory = root / f"day={day}"
        directory.mkdir(parents=True)
        first = number * 1_000
        orders = pa.table({"id": range(first, first + 1_000), "amount": [float(n % 50) for n in range(1_000)]})
        pq.write_table(orders, directory / "orders.parquet", row_group_size=250)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_orders(Path(folder) / "orders")
        orders = tamis.open(str(Path(folder) / "orders"))

        daily = orders.scan(where="day = DATE '2024-03-03' AND id < 2250").plan()
        daily.assert_max_files(1)
        print("The query of one day keeps its budget of one file.")

        # Every day has orders of all amounts, so metadata cannot rule out any file.
        careless = orders.scan(where="amount > 48").plan()
        try:
            careless.assert_max_files(1)
        except PlanBudgetExceeded as error:
            print(f"The careless one is refused: {error}")


if __name__ == "__main__":
    main()

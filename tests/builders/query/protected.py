"""A table in which some rows and values are secret, in Hive, Delta and Iceberg, and policies for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

import tamis
from builders.pyiceberg import tables as pyiceberg_tables
from tamis.session import Session

ROWS = pa.table(
    {
        "id": pa.array(range(12), pa.int64()),
        "region": ["eu", "us", "eu", "apac"] * 3,
        "y": pa.array([10, 20, 11, 21, 12, 22, 13, 23, 14, 24, 15, 25], pa.int64()),
        "card": [f"card-{number:04}" for number in range(12)],
        "salary": pa.array([100.0 * number for number in range(12)], pa.float64()),
        "owner": ["ana", "ben"] * 6,
    }
)
"""A principal with access to `eu` only sees even ids and `y` from 10 to 15, not 20 to 25."""

EU = [0, 2, 4, 6, 8, 10]

POLICIES: dict[str, Any] = {
    "groups": {"europe": ["ana", "eva"]},
    "tables": {
        "orders": [
            {"principals": ["admin"], "rows": "TRUE"},
            {
                "principals": ["@europe"],
                "rows": "region = 'eu'",
                "masks": {"card": "concat('****', right(card, 4))", "salary": "NULL"},
            },
            {"principals": ["ben"], "rows": "owner = current_user()"},
            {"principals": ["mask"], "masks": {"y": "-1"}},
        ]
    },
}


def write_orders(folder: Path, kind: str, rows: pa.Table = ROWS) -> Path:
    """Write the table `orders` in several files with statistics, for Hive one partition for each region."""
    path = folder / "orders"
    if kind == "hive":
        for index in range(rows.num_rows):
            region = rows["region"][index].as_py()
            (path / f"region={region}").mkdir(parents=True, exist_ok=True)
            row = rows.slice(index, 1).drop_columns(["region"])
            pq.write_table(row, path / f"region={region}" / f"part-{index}.parquet")
    elif kind == "iceberg":
        table = pyiceberg_tables.create_table(path, _make_iceberg_schema(rows.schema))
        for index in range(0, rows.num_rows, 4):
            table.append(rows.slice(index, 4).cast(table.schema().as_arrow()))
    else:
        for index in range(0, rows.num_rows, 4):
            deltalake.write_deltalake(str(path), rows.slice(index, 4), mode="append")
    return path


def _make_iceberg_schema(schema: pa.Schema) -> Schema:
    kinds = {pa.int64(): LongType(), pa.string(): StringType(), pa.float64(): DoubleType()}
    fields = enumerate(schema, 1)
    return Schema(*(NestedField(number, field.name, kinds[field.type], required=False) for number, field in fields))


def open_session(folder: Path, kind: str = "hive", policies: Any = None) -> Session:
    """Return a session with policies in which `orders` is registered."""
    connection = tamis.connect(policies=POLICIES if policies is None else policies)
    connection.register("orders", tamis.open(write_orders(folder, kind)))
    return connection

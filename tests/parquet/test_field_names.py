"""Column mapping: files with physical column names or field ids."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders.parquet.tuning import PRUNE_PAGES
from tamis.formats.hive.table import HiveTable
from tamis.formats.source import LEVELS
from tamis.io.storage import open_storage
from tamis.parquet.footer.field_names import ELEMENT, KEY, VALUE, ColumnMapping, MappedField
from tamis.scan.scan import Scan

ROWS = 2_000
SUBSETS = [subset for size in range(len(LEVELS) + 1) for subset in itertools.combinations(LEVELS, size)]


def add_id(field: pa.Field, number: int) -> pa.Field:
    return field.with_metadata({"PARQUET:field_id": str(number)})


INNER = pa.struct([add_id(pa.field("c-x", pa.int64()), 11), add_id(pa.field("c-old", pa.string()), 12)])
FILE_SCHEMA = pa.schema(
    [
        add_id(pa.field("c-1", pa.int64()), 1),
        add_id(pa.field("b", pa.string()), 2),
        add_id(pa.field("c-3", INNER), 3),
        add_id(pa.field("c-4", pa.list_(pa.field("element", INNER))), 4),
        add_id(pa.field("c-5", pa.map_(pa.string(), INNER)), 5),
        add_id(pa.field("id", pa.int64()), 6),
    ]
)
"""`b` was dropped and added again, `id` is the old name of what is now something else."""

TABLE_INNER = pa.struct([("x", pa.int64()), ("new", pa.string())])
TABLE_SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "b": pa.string(),
        "s": TABLE_INNER,
        "l": pa.list_(pa.field("element", TABLE_INNER)),
        "m": pa.map_(pa.string(), TABLE_INNER),
        "size": pa.int64(),
    }
)
BY_NAME_INNER = {"c-x": MappedField("x"), "c-new": MappedField("new")}
BY_NAME = ColumnMapping(
    {
        "c-1": MappedField("id"),
        "c-9": MappedField("b"),
        "c-3": MappedField("s", BY_NAME_INNER),
        "c-4": MappedField("l", {ELEMENT: MappedField("", BY_NAME_INNER)}),
        "c-5": MappedField("m", {KEY: MappedField(""), VALUE: MappedField("", BY_NAME_INNER)}),
        "id": MappedField("size"),
    },
    by_id=False,
)
BY_ID_INNER = {11: MappedField("x"), 13: MappedField("new")}
BY_ID = ColumnMapping(
    {
        1: MappedField("id"),
        9: MappedField("b"),
        3: MappedField("s", BY_ID_INNER),
        4: MappedField("l", {ELEMENT: MappedField("", BY_ID_INNER)}),
        5: MappedField("m", {KEY: MappedField(""), VALUE: MappedField("", BY_ID_INNER)}),
        6: MappedField("size"),
    },
    by_id=True,
)


@dataclass(frozen=True)
class Renamed(HiveTable):
    names: ColumnMapping | None = None

    @property
    def field_names(self) -> ColumnMapping | None:  # type: ignore[override]
        return self.names


def make_inner(n: int) -> dict[str, object] | None:
    return None if n % 11 == 0 else {"c-x": n, "c-old": f"old{n}"}


@pytest.fixture(params=["by_name", "by_id"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Renamed:
    rows = pa.table(
        {
            "c-1": np.arange(ROWS),
            "b": ["dropped"] * ROWS,
            "c-3": [make_inner(n) for n in range(ROWS)],
            "c-4": [[make_inner(n), make_inner(n + 1)] if n % 5 else None for n in range(ROWS)],
            "c-5": [[("k", make_inner(n))] for n in range(ROWS)],
            "id": -np.arange(ROWS),
        },
        schema=FILE_SCHEMA,
    )
    pq.write_table(
        rows, tmp_path / "f.parquet", row_group_size=500, max_rows_per_page=50, write_page_index=True,
        bloom_filter_options={"c-1": {"ndv": 500}},
    )  # fmt: skip
    plain = HiveTable.open(open_storage(tmp_path).with_tuning(PRUNE_PAGES))
    names = {"by_name": BY_NAME, "by_id": BY_ID}[request.param]
    return Renamed(plain.storage, plain.layout, TABLE_SCHEMA, names=names)


def make_expected_inner(n: int) -> dict[str, object] | None:
    return None if n % 11 == 0 else {"x": n, "new": None}


def make_expected_row(n: int) -> dict[str, object]:
    return {
        "id": n,
        "b": None,
        "s": make_expected_inner(n),
        "l": [make_expected_inner(n), make_expected_inner(n + 1)] if n % 5 else None,
        "m": [("k", make_expected_inner(n))],
        "size": -n,
    }


@pytest.mark.parametrize("levels", [*SUBSETS[::9], LEVELS], ids=str)
def test_D6_renamed_dropped_and_added_columns_are_read_with_logical_names(
    table: Renamed, levels: tuple[str, ...]
) -> None:
    found = Scan(table, "id BETWEEN 520 AND 530", levels=levels).to_arrow()
    assert found.schema.equals(TABLE_SCHEMA)
    assert found.to_pylist() == [make_expected_row(n) for n in range(520, 531)]
    assert Scan(table, "s.x = 777 AND size < -700", levels=levels).to_arrow().to_pylist() == [make_expected_row(777)]
    assert Scan(table, "b IS NULL AND s.new IS NULL", levels=levels).count() == ROWS
    assert Scan(table, "b = 'dropped'", levels=levels).count() == 0
    assert Scan(table, levels=levels).to_arrow().to_pylist() == [make_expected_row(n) for n in range(ROWS)]


def test_D6_renamed_columns_are_pruned_by_their_own_statistics(table: Renamed) -> None:
    plan = Scan(table, "id = 777 AND size < 0", columns=["s.x"]).plan()
    assert [task.row_group for task in plan.tasks] == [1]
    assert plan.tasks[0].selection is not None
    assert plan.tasks[0].selection.row_count == 50
    assert Scan(table, "size > 0").plan().tasks == []

"""Lossless casts do not prevent pruning at any level; null counts describe fields inside structs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.parquet.files import count_kept_row_groups, find_rows, write_table
from tamis.expr.nodes import Column
from tamis.formats.iceberg.planning.manifest_files import compute_statistics_bounds

CASTS = [
    ("CAST(x AS BIGINT) = 5", [5]),
    ("CAST(x AS BIGINT) = 5000000000", []),
    ("CAST(x AS DOUBLE) < 1.5D", [0, 1]),
    ("CAST(x AS DECIMAL(12,2)) IN (3, 4.5, 9)", [3, 9]),
    ("CAST(CAST(x AS BIGINT) AS DECIMAL(20,0)) >= 9", [9]),
    ("7 = CAST(x AS BIGINT)", [7]),
]


@pytest.mark.parametrize(("where", "rows"), CASTS)
def test_T11_a_cast_to_a_wider_number_does_not_prevent_pruning(tmp_path: Path, where: str, rows: list[int]) -> None:
    options = {"bloom_filter_options": {"x": True}} if "=" in where else {}
    table = write_table(tmp_path, {"x": pa.array(range(10), pa.int32())}, **options)
    assert find_rows(table, where) == rows
    assert count_kept_row_groups(table, where)[0] <= max(len(rows), 0)
    levels = {each["level"]: each for each in table.scan(where).plan().report.to_dict()["levels"]}
    assert all(each["unused_because"] is None for each in levels["row_groups"]["by_predicate"])


@pytest.fixture
def hive(tmp_path: Path) -> Path:
    """A table whose partition column is inferred as int, and days by which it is joined, whose keys are bigint."""
    for day in range(20):
        folder = tmp_path / "sales" / f"day={day}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"amount": range(2000)}), folder / "f.parquet")
    days = pa.table({"sk": pa.array(range(20), pa.int64()), "month": [number // 10 for number in range(20)]})
    pq.write_table(days, tmp_path / "days.parquet")
    return tmp_path


@pytest.mark.parametrize("condition", ["s.day = d.sk", "d.sk = s.day", "CAST(s.day AS BIGINT) = d.sk"])
def test_a_join_with_a_wider_key_prunes_partitions_dynamically(hive: Path, condition: str) -> None:
    session = tamis.connect().register("s", hive / "sales").register("d", hive / "days.parquet")
    assert tamis.open(hive / "sales").schema.field("day").type == pa.int32()
    query = f"SELECT count(*) n, sum(amount) a FROM s JOIN d ON {condition} WHERE d.sk IN (3, 4) AND d.month = 0"
    expected = [{"n": 4000, "a": 2 * sum(range(2000))}]
    assert session.sql(query, rules=False).to_arrow().to_pylist() == expected
    # Files that are not needed are damaged; the schema is that of the first file.
    for path in (hive / "sales").rglob("*.parquet"):
        if path.parent.name not in ("day=0", "day=3", "day=4"):
            path.write_bytes(bytes(path.stat().st_size))
    session = tamis.connect().register("s", hive / "sales").register("d", hive / "days.parquet")
    assert session.sql(query).to_arrow().to_pylist() == expected


def test_keys_beyond_the_narrower_type_match_nothing(hive: Path) -> None:
    days = pa.table({"sk": pa.array([3, 2**40 + 4], pa.int64()), "month": [0, 0]})
    pq.write_table(days, hive / "days.parquet")
    session = tamis.connect().register("s", hive / "sales").register("d", hive / "days.parquet")
    query = "SELECT s.day, count(*) n FROM s JOIN d ON s.day = d.sk WHERE d.month = 0 GROUP BY s.day"
    assert session.sql(query).to_arrow().to_pylist() == [{"day": 3, "n": 2000}]


def test_N9_required_columns_are_never_null(tmp_path: Path) -> None:
    inner = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64())])
    schema = pa.schema(
        [
            pa.field("x", pa.int64(), nullable=False),
            pa.field("s", inner, nullable=False),
            pa.field("l", pa.list_(pa.int64()), nullable=False),
            pa.field("o", inner),
        ]
    )
    rows = pa.table({"x": [1], "s": [{"a": 1, "b": None}], "l": [[None]], "o": pa.array([None], inner)}, schema)
    pq.write_table(rows, tmp_path / "f.parquet", write_statistics=False)
    table = tamis.open(tmp_path / "f.parquet")
    for where, kept in [
        ("x IS NULL", 0),
        ("s IS NULL", 0),
        ("s.a IS NULL", 0),
        ("l IS NULL", 0),
        ("s.b IS NULL", 1),
        ("o IS NULL", 1),
        ("o.a IS NULL", 1),
    ]:
        assert count_kept_row_groups(table, where) == (kept, 1), where
        assert table.scan(where).count() == kept


@pytest.mark.parametrize(
    ("nulls", "values", "has_bounds", "expected"),
    [
        (3, 3, False, 10),  # all of its values are NULL, and so is the struct in the other rows
        (0, 0, False, 10),
        (2, 3, False, None),
        (3, 3, True, None),  # with bounds there is a value
        (10, 10, False, 10),
        (None, 3, False, None),
        (3, None, False, 3),
    ],
)
def test_N9_a_field_of_structs_is_null_by_its_count_of_values(
    nulls: int | None, values: int | None, has_bounds: bool, expected: int | None
) -> None:
    bound = (5).to_bytes(8, "little") if has_bounds else None
    files = pa.table(
        {
            "nulls:2": pa.array([nulls], pa.int64()),
            "values:2": pa.array([values], pa.int64()),
            "lower:2": pa.array([bound], pa.binary()),
            "upper:2": pa.array([bound], pa.binary()),
        }
    )
    found = compute_statistics_bounds(files, {2: Column(("s", "a"), type=pa.int64())}, pa.array([10], pa.int64()))
    assert found["null_count:s.a"].to_pylist() == [expected]
    # A top-level column has a value in each row, so other counts are invalid.
    found = compute_statistics_bounds(files, {2: Column(("a",), type=pa.int64())}, pa.array([10], pa.int64()))
    assert found["null_count:a"].to_pylist() == [nulls if values in (None, 10) else None]

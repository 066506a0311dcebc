"""File pruning by bounds and counts in manifests: truncated, missing, of older types, with NaN."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field, to_arrow_type
from builders.values.by_type import make_array
from tamis.scan.scan import get_planner

LONG = "0123456789abcdef"


def write_table(
    folder: Path,
    kind: str,
    files: list[list[Any]],
    metrics: Mapping[int, Mapping[str, Any]] | None = None,
    **options: Any,
) -> tamis.Table:
    """Write a file for each list of values of `x`, with some of its statistics replaced."""
    table = IcebergFolder(folder, [field(1, "x", kind)])
    made = []
    for number, values in enumerate(files):
        file = table.data_file(f"{number}.parquet", pa.table({"x": make_array(to_arrow_type(kind), values)}), **options)
        made.append(file.with_metrics(**(metrics or {}).get(number, {})))
    table.commit(*made)
    return tamis.open(folder)


def plan_files(table: tamis.Table, where: object) -> set[int]:
    paths = table.scan(where, levels=["files"]).plan("files").files["path"].to_pylist()
    return {int(Path(path).stem) for path in paths}


def test_I3_S1_strings_are_truncated_to_16_and_their_bounds_are_inexact(tmp_path: Path) -> None:
    table = write_table(tmp_path, "string", [[LONG + "1"], [LONG + "2", LONG], [LONG[:-1] + "g"], ["\U0010ffff" * 20]])
    assert plan_files(table, f"x = '{LONG}1'") == {0, 1}
    assert plan_files(table, f"x > '{LONG}9'") == {0, 1, 2, 3}
    assert plan_files(table, f"x >= '{LONG[:-1]}g'") == {0, 1, 2, 3}
    assert plan_files(table, f"x > '{LONG[:-1]}h'") == {3}
    assert plan_files(table, f"x = '{LONG}'") == {0, 1}
    for value, count in ((LONG + "1", 1), (LONG, 1), (LONG[:-1] + "g", 1), ("\U0010ffff" * 20, 1), (LONG + "0", 0)):
        assert table.scan(f"x = '{value}'").count() == count, value
    listing = get_planner(table.scan(f"x > '{LONG[:-1]}'")).listing
    assert listing.fully_matched is not None
    # A truncated lower bound is below the value, so a larger literal is above both.
    assert listing.fully_matched.all()


def test_I4_a_list_of_many_values_still_skips_files(tmp_path: Path) -> None:
    table = write_table(tmp_path, "long", [[number * 1000, number * 1000 + 9] for number in range(6)])
    wanted = [1000 + each for each in range(10)] + [4000 + each for each in range(10)]
    between = [2500 + each for each in range(280)]
    assert plan_files(table, f"x IN ({', '.join(map(str, wanted + between))})") == {1, 4}
    assert table.scan(f"x IN ({', '.join(map(str, wanted + between))})").count() == 4


def test_I7_F1_F2_F3_bounds_exclude_nan_and_nan_bounds_are_ignored(tmp_path: Path) -> None:
    nan = float("nan")
    spoiled = {"lower_bounds": {1: struct.pack("<d", nan)}, "upper_bounds": {1: struct.pack("<d", nan)}}
    table = write_table(
        tmp_path,
        "double",
        [[1.0, 2.0], [1.0, nan], [nan, nan], [1.0, nan], [5.0, nan]],
        {3: {"nan_value_counts": {}}, 4: spoiled},
    )
    assert plan_files(table, "x > 3") == {1, 2, 3, 4}
    assert plan_files(table, "x < 0.5") == {3, 4} - {3}
    assert plan_files(table, "x = CAST('NaN' AS double)") == {1, 2, 3, 4}
    assert table.scan("x > 3").count() == 6
    assert table.scan("x = 5").count() == 1
    assert table.scan("NOT (x > 3)").count() == 4


def test_N1_N8_missing_counts_are_unknown(tmp_path: Path) -> None:
    table = write_table(
        tmp_path,
        "int",
        [[1, 2], [1, None], [None, None], [1, 2], [None, None]],
        {3: {"null_value_counts": {}}, 4: {"value_counts": {}}},
    )
    assert plan_files(table, "x IS NULL") == {1, 2, 3, 4}
    assert plan_files(table, "x IS NOT NULL") >= {0, 1, 3}
    assert 2 not in plan_files(table, "x IS NOT NULL")
    assert plan_files(table, "x = 1") - {4} == {0, 1, 3}
    assert table.scan("x IS NULL").count() == 5
    assert table.scan("x = 1").count() == 3


def test_T11_bounds_of_older_types_are_read_by_their_width(tmp_path: Path) -> None:
    fields = [field(1, "x", "int"), field(2, "y", "float"), field(3, "z", "decimal(5, 2)")]
    table = IcebergFolder(tmp_path, fields)

    def make_rows(start: int, kinds: list[str]) -> pa.Table:
        values = [start, start + 9]
        x, y = (pa.array(values).cast(to_arrow_type(kind)) for kind in kinds[:2])
        return pa.table({"x": x, "y": y, "z": pa.array(map(Decimal, values), to_arrow_type(kinds[2]))})

    older = ["int", "float", "decimal(5, 2)"]
    table.commit(*(table.data_file(f"{number}.parquet", make_rows(number * 10, older)) for number in range(3)))
    newer = ["long", "double", "decimal(12, 2)"]
    table.evolve([{**each, "type": kind} for each, kind in zip(fields, newer, strict=True)])
    table.commit(table.data_file("3.parquet", make_rows(30, newer)))
    opened = tamis.open(tmp_path)
    for name in ("x", "y", "z"):
        assert plan_files(opened, f"{name} = 19") == {1}
        assert plan_files(opened, f"{name} > 25") == {2, 3}
        assert opened.scan(f"{name} IN (9, 20, 39)").count() == 3
    assert opened.schema.types == [to_arrow_type(kind) for kind in newer]


@pytest.mark.parametrize(
    ("kind", "values", "where"),
    [
        ("long", [-(2**63), 2**63 - 1], "x = 9223372036854775807"),
        ("time", [0, 86_399_999_999], "x IS NOT NULL"),
        ("timestamp_ns", [-1, 1], "x < TIMESTAMP '1970-01-01 00:00:00'"),
        ("timestamptz_ns", [-1, 1], "x >= TIMESTAMP '1970-01-01 00:00:00Z'"),
        ("fixed[3]", [b"abc", b"\xff\x00\x01"], "x > X'616263'"),
        ("uuid", [bytes(range(16)), b"\xf0" * 16], "x >= X'F0F0F0F0F0F0F0F0F0F0F0F0F0F0F0F0'"),
        ("decimal(38, 10)", None, "x < 0"),
        ("boolean", [False, True], "x"),
    ],
)
def test_S6_T2_bounds_of_every_type_prune_files(
    tmp_path: Path, kind: str, values: list[Any] | None, where: str
) -> None:
    if values is None:
        values = [pa.scalar(each).cast(to_arrow_type(kind)).as_py() for each in ("-1234567890.5", "0.1")]
    table = write_table(tmp_path, kind, [[value] for value in values])
    found = table.scan(where, levels=[]).to_arrow()
    assert table.scan(where).to_arrow().equals(found)
    if "IS NOT" not in where:
        assert len(plan_files(table, where)) == found.num_rows == 1


def test_N9_a_null_struct_makes_its_fields_null(tmp_path: Path) -> None:
    fields = [field(1, "id", "long"), field(2, "st", [field(3, "a", "int")])]
    table = IcebergFolder(tmp_path, fields)
    kind = pa.struct([("a", pa.int32())])
    table.commit(
        table.data_file("0.parquet", pa.table({"id": [0, 1], "st": pa.array([None, {"a": 5}], kind)})),
        table.data_file("1.parquet", pa.table({"id": [2, 3], "st": pa.array([{"a": 6}, {"a": 7}], kind)})),
    )
    opened = tamis.open(tmp_path)
    assert plan_files(opened, "st.a IS NULL") == {0}
    assert plan_files(opened, "st.a > 5") == {1}
    assert opened.scan("st.a IS NULL").to_arrow()["id"].to_pylist() == [0]


def test_T10_inverted_bounds_prune_nothing(tmp_path: Path) -> None:
    wrong = {"lower_bounds": {1: struct.pack("<q", 9)}, "upper_bounds": {1: struct.pack("<q", 1)}}
    table = write_table(tmp_path, "long", [[1, 9], [20]], {0: wrong})
    assert plan_files(table, "x = 9") == {0}
    assert table.scan("x = 1").count() == 1


def test_counting_fully_matched_files_reads_no_data(tmp_path: Path) -> None:
    table = write_table(tmp_path, "long", [[1, 2], [3, 4], [5, None]])
    for name in ("1.parquet", "2.parquet"):
        (tmp_path / "data" / name).unlink()
    assert table.scan().count() == 6
    assert table.scan("x >= 3 AND x < 5").count() == 2
    assert table.scan("x < 3").count() == 2

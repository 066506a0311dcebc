"""Partition pruning of Iceberg tables: every transform, several specs, tuples and manifest summaries."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.iceberg.avro_files import read_avro, write_avro
from builders.iceberg.manifests import make_entry_schema
from builders.iceberg.tables import File, IcebergFolder
from builders.iceberg.values import apply_transform, field, to_arrow_type
from builders.values.by_type import make_array
from tamis.errors import TamisError
from tamis.scan.scan import get_planner

PARTITIONS = ("partitions", "manifests")


def to_microseconds(text: str) -> int:
    return int(
        (datetime.datetime.fromisoformat(text) - datetime.datetime(1970, 1, 1)) / datetime.timedelta(microseconds=1)
    )


def to_days(text: str) -> int:
    return (datetime.date.fromisoformat(text) - datetime.date(1970, 1, 1)).days


def write_partitioned(folder: Path, kind: str, transform: str, values: list[Any]) -> tamis.Table:
    """Write a file for each value without statistics; two files share a manifest."""
    table = IcebergFolder(folder, [field(1, "x", kind)], specs=[[(1, transform, "p")]])
    files = [
        table.data_file(f"{number}.parquet", pa.table({"x": make_array(to_arrow_type(kind), [value])}), metrics={})
        for number, value in enumerate(values)
    ]
    table.commit(*files, per_manifest=2)
    return tamis.open(folder)


def plan_files(table: tamis.Table, where: object, levels: tuple[str, ...] = PARTITIONS) -> set[int]:
    """Return the numbers of the planned files."""
    return {int(Path(path).stem) for path in table.scan(where, levels=levels).plan("files").files["path"].to_pylist()}


def find_fully_matched(table: tamis.Table, where: object) -> set[int]:
    """Return the numbers of the fully matched files."""
    listing = get_planner(table.scan(where)).listing
    assert listing.fully_matched is not None
    paths = listing.files["path"].to_pylist()
    return {int(Path(path).stem) for path, matched in zip(paths, listing.fully_matched, strict=True) if matched}


NUMBERS = [-9, -5, -4, -1, 0, 3, 4, 9, None]
CENTS = [Decimal("-0.01"), Decimal("0.00"), Decimal("0.49"), Decimal("0.50")]
TEXTS = ["a", "ab", "abc", "abd", "b", "ba", "éa", "\U0010ffff\U0010ffffx", None]
DAYS = [
    to_days(each) for each in ("1968-02-29", "1969-12-31", "1970-01-01", "2023-12-31", "2024-01-01", "2024-03-15")
] + [None]
TIMES = [
    to_microseconds(each)
    for each in ("1969-12-31T22:30:00", "1969-12-31T23:59:59.999999", "1970-01-01T00:00:00", "2024-03-01T00:00:00",
                 "2024-03-01T05:59:59.999999", "2024-03-01T06:00:00", "2024-04-01T00:00:00")
] + [None]  # fmt: skip

# Old writers rounded times before 1970 up: a period up to the first may contain times of the previous period.
CODES = ["ab", "ac", "ad", "abz", "acx", None]

CASES: list[tuple[str, str, list[Any], str, set[int]]] = [
    ("identity", "int", NUMBERS, "x > 3", {6, 7}),
    ("identity", "int", NUMBERS, "x IS NULL", {8}),
    ("identity", "int", NUMBERS, "x <> 3", {0, 1, 2, 3, 4, 6, 7}),
    ("identity", "int", NUMBERS, "NOT x IN (3, 4, -9)", {1, 2, 3, 4, 7}),
    ("identity", "int", NUMBERS, "x + 1 = 4", {5}),
    ("identity", "boolean", [True, False, None], "x", {0}),
    ("identity", "boolean", [True, False, None], "NOT x", {1}),
    ("identity", "double", [1.5, float("nan"), float("-inf"), None], "x > 1", {0, 1}),
    ("identity", "binary", [b"a", b"\xff", b"", None], "x >= X'61'", {0, 1}),
    ("identity", "decimal(9, 2)", [Decimal("-1.50"), Decimal("0.00"), Decimal("99.99"), None], "x < 0.5", {0, 1}),
    ("truncate[4]", "int", NUMBERS, "x < 0", {0, 1, 2, 3}),
    ("truncate[4]", "int", NUMBERS, "x = -5", {1}),
    ("truncate[4]", "int", NUMBERS, "x < -4", {0, 1}),
    ("truncate[4]", "int", NUMBERS, "x >= 4", {6, 7}),
    ("truncate[4]", "long", NUMBERS, "x BETWEEN 1 AND 2", {4, 5}),
    ("truncate[4]", "long", NUMBERS, "x IS NOT NULL", {0, 1, 2, 3, 4, 5, 6, 7}),
    ("truncate[50]", "decimal(9, 2)", CENTS, "x < 0", {0}),
    ("truncate[50]", "decimal(9, 2)", CENTS, "x >= 0.5", {3}),
    ("truncate[2]", "string", TEXTS, "x = 'abz'", {1, 2, 3}),
    ("truncate[2]", "string", TEXTS, "x < 'ab'", {0}),
    ("truncate[2]", "string", TEXTS, "x LIKE 'ab%'", {1, 2, 3}),
    ("truncate[2]", "string", TEXTS, "x NOT LIKE 'ab%'", {0, 4, 5, 6, 7}),
    ("truncate[2]", "string", TEXTS, "x NOT LIKE 'abc%'", {0, 1, 2, 3, 4, 5, 6, 7}),
    ("truncate[2]", "string", TEXTS, "x NOT LIKE 'a%'", {4, 5, 6, 7}),
    ("truncate[2]", "string", TEXTS, "x IS NULL", {8}),
    ("truncate[2]", "string", CODES, "x = 'ac'", {1, 4}),
    ("truncate[2]", "string", CODES, "x <=> 'ac'", {1, 4}),
    ("truncate[2]", "string", CODES, "x <=> NULL", {5}),
    ("truncate[2]", "string", CODES, "x >= 'ac'", {1, 2, 4}),
    ("truncate[2]", "string", CODES, "x > 'ac'", {1, 2, 4}),
    ("truncate[2]", "string", CODES, "NOT (x < 'acd')", {1, 2, 4}),
    ("truncate[2]", "string", CODES, "x < 'ac'", {0, 3}),
    ("truncate[2]", "string", CODES, "x <= 'ac'", {0, 1, 3, 4}),
    ("truncate[2]", "string", CODES, "x IN ('ac', 'zz', 'acy')", {1, 4}),
    ("truncate[2]", "string", CODES, "x IN ('ac', NULL)", {1, 4}),
    ("truncate[2]", "string", CODES, "x NOT IN ('ac')", {0, 1, 2, 3, 4}),
    ("truncate[2]", "string", CODES, "NOT (x = 'ac')", {0, 1, 2, 3, 4}),
    ("truncate[2]", "string", TEXTS, "x >= '\U0010ffff'", {7}),
    ("truncate[2]", "string", TEXTS, "x = 'éa' OR x = 'b'", {4, 6}),
    ("truncate[1]", "binary", [b"a", b"b", b"c", b"\xff\xff", None], "x = X'62'", {1}),
    ("truncate[2]", "binary", [b"a", b"ab", b"abc", b"\xff\xff\xff", None], "x > X'6162'", {1, 2, 3}),
    ("year", "date", DAYS, "x < DATE '1970-01-01'", {0, 1, 2}),
    ("year", "date", DAYS, "year(x) = 2024", {4, 5}),
    ("month", "date", DAYS, "x BETWEEN DATE '1969-12-05' AND DATE '1970-01-02'", {1, 2}),
    ("month", "date", DAYS, "x = DATE '2023-12-01'", {3}),
    ("day", "date", DAYS, "x = DATE '1969-12-31'", {1}),
    ("day", "timestamp", TIMES, "x < TIMESTAMP '1970-01-01 00:00:00'", {0, 1, 2}),
    ("day", "timestamp", TIMES, "date(x) = DATE '2024-03-01'", {3, 4, 5}),
    ("hour", "timestamp", TIMES, "x >= TIMESTAMP '2024-03-01 05:30:00' AND x < TIMESTAMP '2024-03-01 06:00:00'", {4}),
    ("hour", "timestamp", TIMES, "x < TIMESTAMP '1969-12-31 23:00:00'", {0, 1}),
    ("hour", "timestamptz", TIMES, "x = TIMESTAMP '1969-12-31 23:59:59.5Z'", {1, 2}),
    ("month", "timestamptz", TIMES, "x > TIMESTAMP '2024-03-31 00:00:00Z'", {3, 4, 5, 6}),
    ("year", "timestamp", TIMES, "x IS NULL", {7}),
    ("void", "int", NUMBERS, "x = 3", set(range(9))),
    ("no_such_transform[2]", "int", NUMBERS, "x = 3", set(range(9))),
]  # fmt: skip


@pytest.mark.parametrize(("transform", "kind", "values", "where", "kept"), CASES)
@pytest.mark.one_in(4)
def test_T6_I2_I11_partition_pruning_keeps_these_files(
    tmp_path: Path, transform: str, kind: str, values: list[Any], where: str, kept: set[int]
) -> None:
    table = write_partitioned(tmp_path, kind, transform, values)
    assert plan_files(table, where) == plan_files(table, where, ("partitions",)) == kept
    assert plan_files(table, where, ("manifests",)) >= kept
    assert plan_files(table, where, ()) == set(range(len(values)))
    assert table.scan(where).count() == table.scan(where, levels=[]).to_arrow().num_rows


@pytest.mark.parametrize(
    ("kind", "values", "own", "literal"),
    [
        ("int", NUMBERS, 5, "3"),
        ("long", NUMBERS, 0, "-9"),
        ("decimal(9, 2)", [Decimal("-1.50"), Decimal("0.00"), Decimal("14.20"), None], 2, "14.2"),
        ("string", TEXTS, 6, "'éa'"),
        ("binary", [b"a", b"ab", b"\xff", None], 2, "X'FF'"),
        ("date", DAYS, 1, "DATE '1969-12-31'"),
        ("timestamp", TIMES, 4, "TIMESTAMP '2024-03-01 05:59:59.999999'"),
        ("timestamptz", TIMES, 0, "TIMESTAMP '1969-12-31 22:30:00Z'"),
    ],
)
def test_buckets_of_a_literal_keep_the_files_of_that_bucket(
    tmp_path: Path, kind: str, values: list[Any], own: int, literal: str
) -> None:
    table = write_partitioned(tmp_path, kind, "bucket[4]", values)
    buckets = [apply_transform("bucket[4]", kind, value) for value in values]
    same = {number for number, bucket in enumerate(buckets) if bucket == buckets[own]}
    assert len(same) < len(values)
    assert plan_files(table, f"x = {literal}") == plan_files(table, f"x <=> {literal}") == same
    assert plan_files(table, f"x IN ({literal}, {literal})") == same
    assert plan_files(table, f"x > {literal}") >= set(range(len(values) - 1))
    assert plan_files(table, f"x <> {literal}") >= set(range(len(values) - 1))
    assert table.scan(f"x = {literal}").count() == 1


def test_several_buckets_of_a_list(tmp_path: Path) -> None:
    values = list(range(12))
    table = write_partitioned(tmp_path, "long", "bucket[5]", values)
    buckets = [apply_transform("bucket[5]", "long", value) for value in values]
    for one, other in itertools.combinations(values[:4], 2):
        expected = {number for number in values if buckets[number] in (buckets[one], buckets[other])}
        assert plan_files(table, f"x IN ({one}, {other})") == expected
        assert plan_files(table, f"x = {other} OR x = {one}") == expected
    assert table.scan("x IN (1, 7, 3)").count() == 3


@pytest.mark.parametrize(
    ("transform", "kind", "values", "where", "matched"),
    [
        # Without statistics, the rows of a file may contradict its identity partition value.
        ("identity", "int", NUMBERS, "x >= 3", set()),
        ("truncate[4]", "int", NUMBERS, "x >= 4", {6, 7}),
        ("truncate[4]", "int", NUMBERS, "x >= 3", {6, 7}),
        ("month", "date", DAYS, "x >= DATE '2024-01-01'", {4, 5}),
        ("month", "date", DAYS, "x >= DATE '2024-01-02'", {5}),
        ("day", "timestamp", TIMES, "x < TIMESTAMP '1970-01-01 00:00:00'", {0, 1}),
        ("truncate[2]", "string", TEXTS, "x LIKE 'a%'", {0, 1, 2, 3}),
        ("identity", "int", NUMBERS, "x IS NULL", set()),
        ("day", "date", DAYS, "x IS NOT NULL", {0, 1, 2, 3, 4, 5}),
    ],
)
def test_O4_files_of_some_partitions_are_fully_matched(
    tmp_path: Path, transform: str, kind: str, values: list[Any], where: str, matched: set[int]
) -> None:
    assert find_fully_matched(write_partitioned(tmp_path, kind, transform, values), where) == matched


def test_I1_each_manifest_is_pruned_under_the_spec_it_was_written_with(tmp_path: Path) -> None:
    fields = [field(1, "id", "long"), field(2, "region", "string"), field(3, "day", "date")]
    specs = [
        [(2, "identity", "region")],
        [],
        [(2, "void", "region"), (3, "month", "day_month")],
        [(1, "bucket[4]", "b")],
    ]
    table = IcebergFolder(tmp_path, fields, specs=specs)

    def make_file(number: int, region: str, date: str, spec: int) -> File:
        rows = pa.table({"id": [number], "region": [region], "day": [datetime.date.fromisoformat(date)]})
        return table.data_file(f"{number}.parquet", rows, spec=spec, metrics={})

    table.commit(make_file(0, "eu", "2024-01-05", 0), make_file(1, "us", "2024-01-05", 0))
    table.commit(
        make_file(2, "us", "2024-01-06", 1), make_file(3, "us", "2024-02-07", 2), make_file(4, "eu", "2024-01-08", 2)
    )
    table.commit(make_file(5, "us", "2024-02-09", 3), make_file(6, "eu", "2024-01-09", 3))
    opened = tamis.open(tmp_path)
    assert plan_files(opened, "region = 'eu'") == {0, 2, 3, 4, 5, 6}
    assert plan_files(opened, "day = DATE '2024-01-08'") == {0, 1, 2, 4, 5, 6}
    assert plan_files(opened, "region = 'eu' AND day < DATE '2024-02-01'") == {0, 2, 4, 5, 6}
    of_six = apply_transform("bucket[4]", "long", 6)
    same = {number for number in (5, 6) if apply_transform("bucket[4]", "long", number) == of_six}
    assert plan_files(opened, "id = 6") == {0, 1, 2, 3, 4} | same
    assert sorted(opened.scan("region = 'eu'").to_arrow()["id"].to_pylist()) == [0, 4, 6]


def test_pruned_manifests_are_not_read(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "x", "int")], specs=[[(1, "identity", "p")]])
    for number in range(4):
        table.commit(table.data_file(f"{number}.parquet", pa.table({"x": pa.array([number], pa.int32())})))
    manifests = [Path(each.listed["manifest_path"]) for each in table.snapshots[-1].manifests]
    sizes = [each.stat().st_size for each in manifests]
    for path in (manifests[0], manifests[3]):
        path.unlink()
    scan = tamis.open(tmp_path).scan("x IN (1, 2)")
    assert sorted(scan.to_arrow()["x"].to_pylist()) == [1, 2]
    (level,) = [each for each in scan.report.to_dict()["levels"] if each["level"] == "manifests"]
    assert (level["total"], level["kept"]) == (4, 2)
    assert (level["bytes_total"], level["bytes_kept"]) == (sum(sizes), sizes[1] + sizes[2])
    with pytest.raises(TamisError, match=manifests[0].name):
        tamis.open(tmp_path).scan("x IN (1, 2)", levels=["partitions", "files"]).to_arrow()


def test_manifests_are_a_level_between_partitions_and_files(tmp_path: Path) -> None:
    plan = write_partitioned(tmp_path, "int", "identity", [1, 2]).scan("x = 1").plan("files")
    levels = [each["level"] for each in plan.report.to_dict()["levels"]]
    assert levels[:3] == ["partitions", "manifests", "files"]


def test_I12_a_partition_tuple_incompatible_with_its_spec_is_an_error(tmp_path: Path) -> None:
    fields = [field(1, "x", "int"), field(2, "y", "int")]
    table = IcebergFolder(tmp_path, fields, specs=[[(1, "identity", "x"), (2, "identity", "y")]])
    rows = pa.table({"x": pa.array([1], pa.int32()), "y": pa.array([2], pa.int32())})
    table.commit(table.data_file("1.parquet", rows))
    manifest = Path(table.snapshots[-1].manifests[0].listed["manifest_path"])
    entries = read_avro(manifest)
    for entry in entries:
        del entry["data_file"]["partition"]["y"]
    write_avro(manifest, make_entry_schema(2, [(1000, "x", "int")]), entries, {"partition-spec-id": "0"})
    with pytest.raises(TamisError, match=manifest.name):
        tamis.open(tmp_path).scan("y = 2").to_arrow()


def test_partition_values_of_a_struct_field(tmp_path: Path) -> None:
    fields = [field(1, "id", "long"), field(2, "st", [field(3, "k", "string")])]
    table = IcebergFolder(tmp_path, fields, specs=[[(3, "identity", "k")]])
    for number, key in enumerate(["a", "b", None]):
        rows = pa.table({"id": [number], "st": [{"k": key}]})
        table.commit(table.data_file(f"{number}.parquet", rows, partition=(key,), metrics={}))
    opened = tamis.open(tmp_path)
    assert plan_files(opened, "st.k = 'b'") == {1}
    assert opened.scan("st.k IS NULL").to_arrow()["id"].to_pylist() == [2]


def test_H6_names_of_partition_fields_may_be_anything(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "a b.c", "int")], specs=[[(1, "identity", "1 of `a`.b=c é")]])
    for number in range(2):
        table.commit(
            table.data_file(f"{number}.parquet", pa.table({"a b.c": pa.array([number], pa.int32())}), metrics={})
        )
    assert plan_files(tamis.open(tmp_path), "`a b.c` = 1") == {1}


@pytest.mark.parametrize("promoted", [False, True])
def test_T4_O1_overflowed_truncated_ints_are_not_pruned(tmp_path: Path, promoted: bool) -> None:
    """Truncation overflows, so that these values are above all others of their manifest."""
    smallest = -(2**31)
    table = IcebergFolder(tmp_path, [field(1, "x", "int")], specs=[[(1, "truncate[10]", "p")]])
    files = [
        table.data_file(
            f"{number}.parquet", pa.table({"x": pa.array([value], pa.int32())}), partition=(partition,), metrics={}
        )
        for number, (value, partition) in enumerate([(smallest, 2**31 - 2), (5, 0)])
    ]
    table.commit(*files)
    if promoted:
        table.evolve([field(1, "x", "long")])
    opened = tamis.open(tmp_path)
    for where in (f"x = {smallest}", "x < 0"):
        assert opened.scan(where).to_arrow()["x"].to_pylist() == [smallest]
        assert plan_files(opened, where) == {0}


def test_transforms_with_too_many_buckets_prune_nothing(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "x", "long")], specs=[[(1, "bucket[4294967296]", "p")]])
    table.commit(table.data_file("0.parquet", pa.table({"x": [3]}), partition=(3,), metrics={}))
    assert tamis.open(tmp_path).scan("x = 3").to_arrow().num_rows == 1

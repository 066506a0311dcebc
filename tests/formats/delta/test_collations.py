"""Strings with a collation: comparisons are unsupported, since Tamis would compare bytes; other queries work."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tamis
from builders.delta.log import DeltaLog
from builders.delta.statistics import field
from builders.delta.tables import data_file
from tamis import PartitionFilter
from tamis.errors import UnsupportedFeature

LCASE = "spark.UTF8_LCASE"


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """The strings `A`, `a` and NULL in a data column, in a struct, in a list, and in the partition of each file."""
    inner = {"type": "struct", "fields": [field("c", "string", __COLLATIONS={"c": "ICU.de_CI"}), field("n", "long")]}
    columns = [
        field("id", "long"),
        field("plain", "string", __COLLATIONS={"plain": "spark.UTF8_BINARY"}),
        field("c", "string", __COLLATIONS={"c": LCASE}),
        field("s", inner),
        field("tags", pa.list_(pa.string()), __COLLATIONS={"tags.element": LCASE}),
        field("p", "string", __COLLATIONS={"p": LCASE}),
    ]
    log = DeltaLog(tmp_path, columns, partition_columns=["p"])
    log.commit(*(_make_file(log, number, text) for number, text in enumerate(["A", "a", None])))
    return log


def _make_file(log: DeltaLog, number: int, text: str | None) -> dict[str, object]:
    rows = pa.table(
        {
            "id": pa.array([number]),
            "plain": pa.array([text], pa.string()),
            "c": pa.array([text], pa.string()),
            "s": pa.array([{"c": text, "n": number}], pa.struct([("c", pa.string()), ("n", pa.int64())])),
            "tags": pa.array([[text]], pa.list_(pa.string())),
        }
    )
    return data_file(log, f"{number}.parquet", rows, {"p": text})


def find_ids(log: DeltaLog, where: object) -> list[int]:
    return sorted(tamis.open(log.table).scan(where, ["id"]).to_arrow()["id"].to_pylist())


@pytest.mark.parametrize(
    ("where", "column", "collation"),
    [
        ("c = 'a'", "c", LCASE),
        ("p = 'a'", "p", LCASE),
        ("'a' <> p", "p", LCASE),
        ("c IN ('a', 'b')", "c", LCASE),
        ("c > 'a' OR id = 1", "c", LCASE),
        ("NOT (p LIKE 'a%')", "p", LCASE),
        ("startswith(c, 'a')", "c", LCASE),
        ("lower(c) = 'a'", "c", LCASE),
        ("coalesce(c, 'x') = 'x'", "c", LCASE),
        ("c = plain", "c", LCASE),
        ("c <=> NULL AND p = 'a'", "c", LCASE),
        ("s.c = 'a'", "s.c", "ICU.de_CI"),
        ("array_contains(tags, 'a')", "tags", LCASE),
        ("CAST(c AS STRING) = 'a'", "c", LCASE),
        # A comparison of bytes is never TRUE here, so simplification would remove the predicate.
        ("c = 'a' AND c = 'A'", "c", LCASE),
        ("(p = 'a' AND p = 'A') OR p IS NULL", "p", LCASE),
    ],
)
def test_S9_comparing_a_string_with_a_collation_is_unsupported(
    log: DeltaLog, where: str, column: str, collation: str
) -> None:
    scan = tamis.open(log.table).scan(where)
    for run in (scan.to_arrow, scan.count, scan.plan, lambda: scan.plan("files")):
        with pytest.raises(
            UnsupportedFeature, match=rf"the column {column} of the Delta table '.*' has the collation {collation},"
        ) as caught:
            run()
        message = str(caught.value)
        assert f"CAST({column} AS BINARY) = " in message
        assert "(at: where, character " in message
        assert "\n" not in message


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, [0, 1, 2]),
        ("id > 0", [1, 2]),
        ("plain = 'a'", [1]),
        ("s.n = 0", [0]),
        ("c IS NULL", [2]),
        ("p IS NOT NULL AND id < 5", [0, 1]),
        ("length(p) = 1", [0, 1]),
        ("tags IS NULL", []),
        # The error message advises this query.
        ("CAST(c AS BINARY) = CAST('a' AS BINARY)", [1]),
        ("CAST(p AS BINARY) = CAST('a' AS BINARY)", [1]),
        ("CAST(s.c AS BINARY) IN (X'41', X'62')", [0]),
    ],
)
def test_S9_predicates_that_compare_no_collated_string_are_supported(
    log: DeltaLog, where: str | None, expected: list[int]
) -> None:
    assert find_ids(log, where) == expected
    assert tamis.open(log.table).scan(where).count() == len(expected)


def test_S9_rows_come_back_with_the_column(log: DeltaLog) -> None:
    rows = tamis.open(log.table).scan().to_arrow().sort_by("id")
    assert rows["c"].to_pylist() == rows["p"].to_pylist() == ["A", "a", None]
    assert tamis.open(log.table).scan(limit=2).count() == 2


def test_a_partition_filter_compares_the_strings_of_the_log(log: DeltaLog) -> None:
    assert find_ids(log, PartitionFilter.eq("p", "a")) == [1]

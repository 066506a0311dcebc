"""Partition values: from strings in the log to typed columns."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from builders.delta.statistics import field, mapping, table_metadata
from tamis import types
from tamis.errors import CorruptFile, TamisError
from tamis.expr.nodes import Call, Column, Literal
from tamis.expr.sql.printer import to_sql
from tamis.expr.wire.partition_filter import PartitionFilter
from tamis.formats.delta.planning.partition_values import (
    PartitionValues,
    encode_partition_values,
    get_partition_strings,
    make_scan_file_batch,
    make_unreadable_value_error,
    rewrite_partition_predicate,
)
from tamis.skipping.handler import ArrowExpressionHandler

UTC = datetime.UTC
TEXT_MAP = pa.map_(pa.string(), pa.string())


def read(declared: Any, *texts: str | None) -> list[Any]:
    """Return the values of one partition column `p`."""
    table = table_metadata(field("p", declared), partitioned_by=["p"])
    maps = pa.array([[("p", text)] for text in texts], TEXT_MAP)
    found = encode_partition_values(maps, None, table).expand().values
    assert found.schema == pa.schema([("p", table.schema.field("p").type)])
    return found["p"].to_pylist()  # type: ignore[no-any-return]


def make_timestamp(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("declared", "texts", "expected"),
    [
        ("byte", ["-128", "+7", "007"], [-128, 7, 7]),
        ("long", ["9223372036854775807", "-9223372036854775808"], [2**63 - 1, -(2**63)]),
        ("boolean", ["true", "False"], [True, False]),
        ("double", ["1.0", "1.0E10", "-Infinity"], [1.0, 1e10, -math.inf]),
        ("float", ["0.5", "1.0E-3"], [0.5, pytest.approx(0.001)]),
        ("decimal(5,2)", ["1", "1.50", "-999.99", "1E+2"], [Decimal(1), Decimal("1.5"), Decimal("-999.99"), 100]),
        ("decimal(38,0)", ["9" * 38], [Decimal("9" * 38)]),
        ("date", ["1970-01-01", "0001-01-01"], [datetime.date(1970, 1, 1), datetime.date(1, 1, 1)]),
        (
            "string",
            ["null", "NULL", " ", "__HIVE_DEFAULT_PARTITION__"],
            ["null", "NULL", " ", "__HIVE_DEFAULT_PARTITION__"],
        ),
        ("varchar(3)", ["é"], ["é"]),
        ("binary", ["\u0001\u0002", "a"], [b"\x01\x02", b"a"]),
    ],
    ids=str,
)
def test_values_of_every_type(declared: str, texts: list[str], expected: list[Any]) -> None:
    assert read(declared, *texts) == expected


@pytest.mark.parametrize(
    "declared", ["string", "long", "double", "decimal(5,2)", "date", "timestamp", "binary", "boolean"]
)
def test_D3_an_empty_string_is_null_for_every_type(declared: str) -> None:
    assert read(declared, "", None) == [None, None]


def test_D3_the_string_null_is_not_null() -> None:
    assert read("string", "null", "") == ["null", None]


def test_D3_a_name_that_the_map_lacks_is_null() -> None:
    table = table_metadata(field("p", "long"), field("q", "long"), partitioned_by=["p", "q"])
    maps = pa.array([[("p", "1")], [], None, [("q", "2"), ("p", "3")]], TEXT_MAP)
    found = encode_partition_values(maps, None, table).expand().values
    assert found.to_pydict() == {"p": [1, None, None, 3], "q": [None, None, None, 2]}


def test_D5_timestamps_with_and_without_a_zone() -> None:
    expected = make_timestamp(2024, 1, 1, 8, 0, 0, 123456)
    assert (
        read(
            "timestamp",
            "2024-01-01 08:00:00.123456",
            "2024-01-01T08:00:00.123456Z",
            "2024-01-01T00:00:00.123456-08:00",
        )
        == [expected] * 3
    )
    assert read("timestamp", "1969-01-01 00:00:00", "2021-10-01 08:09:20") == [
        make_timestamp(1969, 1, 1),
        make_timestamp(2021, 10, 1, 8, 9, 20),
    ]


def test_D5_T7_timestamps_without_a_zone_never_shift() -> None:
    expected = datetime.datetime(2013, 7, 5, 17, 1, 0, 123456)
    assert read("timestamp_ntz", "2013-07-05 17:01:00.123456", "2013-07-05T17:01:00.123456") == [expected] * 2
    table = table_metadata(field("p", "timestamp_ntz"), partitioned_by=["p"])
    shifted = pa.array([[("p", "2013-07-05T17:01:00.123456-08:00")]], TEXT_MAP)
    assert encode_partition_values(shifted, None, table).expand().wrong.keys() == {"p"}


def test_D19_a_date_from_before_the_type_was_widened() -> None:
    assert read("timestamp_ntz", "2024-09-09", "2024-09-09 12:00:00") == [
        datetime.datetime(2024, 9, 9),
        datetime.datetime(2024, 9, 9, 12),
    ]
    assert read("decimal(10,4)", "1.5") == [Decimal("1.5000")]


def test_years_beyond_four_digits() -> None:
    table = table_metadata(field("d", "date"), field("t", "timestamp"), partitioned_by=["d", "t"])
    texts = [("+12024-01-01", "+12024-01-01 00:00:00"), ("-0001-12-31", "-0001-12-31T00:00:00Z")]
    maps = pa.array([[("d", day), ("t", time)] for day, time in texts], TEXT_MAP)
    found = encode_partition_values(maps, None, table).expand().values
    days = found["d"].cast(pa.int32()).to_pylist()
    assert days == [3_672_148, -719_529]
    assert found["t"].cast(pa.int64()).to_pylist() == [day * 86_400_000_000 for day in days]


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ("byte", "128"),
        ("integer", "1.0"),
        ("integer", "0x10"),
        ("long", "9223372036854775808"),
        ("boolean", "yes"),
        ("double", "1,5"),
        ("decimal(5,2)", "1.505"),
        ("decimal(5,2)", "1000"),
        ("date", "2024-02-30"),
        ("date", "soon"),
        ("timestamp", "2024-01-01 25:00:00"),
        ("integer", "__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_an_invalid_string_is_named_in_the_error(declared: str, text: str) -> None:
    table = table_metadata(field("p", declared), field("q", "long"), partitioned_by=["p", "q"])
    right = "1" if declared == "byte" else None
    maps = pa.array([[("q", "1"), ("p", right)], [("p", text), ("q", "2")], None], TEXT_MAP)
    found = encode_partition_values(maps, None, table).expand()
    assert {name: texts.to_pylist() for name, texts in found.wrong.items()} == {"p": [None, text, None]}
    assert found.values.to_pydict() == {"p": [None if right is None else 1, None, None], "q": [1, 2, None]}
    assert found.values.schema == pa.schema([(name, table.schema.field(name).type) for name in ("p", "q")])
    error = make_unreadable_value_error(text, "p", table)
    assert f"partition value '{text}' of column 'p' in the Delta table t is not a valid " in str(error)


def test_D6_values_are_found_under_physical_names_and_named_logically() -> None:
    table = table_metadata(
        field("a", "long", **mapping(1, "col-1")),
        field("p", "date", **mapping(2, "col-2")),
        delta__columnMapping__mode="name",
        partitioned_by=["p"],
    )
    # A dropped column had this name before.
    maps = pa.array([[("col-2", "2024-01-01"), ("p", "1999-01-01")]], TEXT_MAP)
    assert encode_partition_values(maps, None, table).expand().values.to_pydict() == {"p": [datetime.date(2024, 1, 1)]}


def test_D5_strings_take_precedence_over_typed_values_of_a_checkpoint() -> None:
    table = table_metadata(field("p", "timestamp"), partitioned_by=["p"])
    # The writer was in California and parsed the string in its own zone.
    parsed = pa.array([{"p": make_timestamp(2024, 1, 1, 16)}] * 3, pa.struct([("p", types.TIMESTAMP)]))
    maps = pa.array([[("p", "2024-01-01 08:00:00")], None, []], TEXT_MAP)
    found = encode_partition_values(maps, parsed, table).expand().values
    assert found["p"].to_pylist() == [make_timestamp(2024, 1, 1, 8), make_timestamp(2024, 1, 1, 16), None]


def test_typed_values_alone() -> None:
    table = table_metadata(
        field("p", "long"),
        field("q", "string"),
        field("t", "timestamp"),
        field("new", "date"),
        partitioned_by=["p", "q", "t", "new"],
    )
    parsed = pa.StructArray.from_arrays(
        [pa.array([1, None], pa.int32()), pa.array(["", "x"]), pa.array([1_500, None], pa.timestamp("ns"))],
        names=["p", "q", "t"],
    )
    assert encode_partition_values(None, parsed, table).expand().values.to_pydict() == {
        "p": [1, None],
        "q": [None, "x"],
        "t": [make_timestamp(1970, 1, 1, 0, 0, 0, 1), None],
        "new": [None, None],
    }
    wrong = pa.StructArray.from_arrays([pa.array(["many"])], names=["p"])
    found = encode_partition_values(None, wrong, table).expand()
    assert found.values["p"].to_pylist() == [None]
    assert {name: texts.to_pylist() for name, texts in found.wrong.items()} == {"p": ["many"]}
    # Strings take precedence where they exist.
    maps = pa.array([[("p", "1")]], TEXT_MAP)
    found = encode_partition_values(maps, wrong, table).expand()
    assert (found.values["p"].to_pylist(), found.wrong) == ([1], {})


def test_a_table_without_partitions_has_rows_and_no_columns() -> None:
    table = table_metadata(field("a", "long"))
    found = encode_partition_values(pa.array([[], []], TEXT_MAP), None, table).expand().values
    assert found.column_names == []


def test_slices_of_maps() -> None:
    table = table_metadata(field("p", "long"), partitioned_by=["p"])
    maps = pa.array([[("p", str(number))] for number in range(10)], TEXT_MAP)
    assert encode_partition_values(maps.slice(3, 4), None, table).expand().values["p"].to_pylist() == [3, 4, 5, 6]


def test_a_partition_value_is_an_expression_that_a_handler_evaluates() -> None:
    maps = pa.array([[("p", "7")], [("p", "70")], [], None], TEXT_MAP)
    batch = pa.record_batch({"add": pa.StructArray.from_arrays([maps], names=["partitionValues"])})
    below = rewrite_partition_predicate("p < 70", pa.schema([("p", types.LONG)]))
    text = Call("element_at", (Column(("add", "partitionValues"), type=TEXT_MAP), Literal("p", types.STRING)))
    value = Call("partition_value", (text, Literal("bigint", types.STRING)))
    assert below == Call("<", (value, Literal(70, types.LONG)))
    found = ArrowExpressionHandler().predicate_evaluator(batch.schema, below).eval(batch)
    assert found.to_pylist() == [True, False, False, False]


def test_a_partition_predicate_reads_physical_names() -> None:
    mapped = pa.field("Kind", types.STRING, metadata={"delta.columnMapping.physicalName": "col-1"})
    schema = pa.schema([mapped, ("day", types.DATE)])
    found = rewrite_partition_predicate("kind = 'a' AND day >= '2024-03-01'", schema)
    assert to_sql(found) == (
        "partition_value(element_at(add.partitionValues, 'col-1'), 'string') = 'a' "
        "AND partition_value(element_at(add.partitionValues, 'day'), 'date') >= DATE '2024-03-01'"
    )


@pytest.mark.parametrize(
    ("predicate", "message"),
    [("id = 1", "no column 'id'"), (None, "found None"), (PartitionFilter.eq("q", "1"), "no partition column 'q'")],
)
def test_what_is_no_partition_predicate_is_an_error(predicate: object, message: str) -> None:
    with pytest.raises(TamisError, match=message):
        rewrite_partition_predicate(predicate, pa.schema([("p", types.LONG)]))


def test_a_partition_filter_reads_the_texts_of_the_log() -> None:
    mapped = pa.field("p", types.LONG, metadata={"delta.columnMapping.physicalName": "col-1"})
    found = rewrite_partition_predicate([PartitionFilter.eq("P", "007"), "p = 7"], pa.schema([mapped]))
    maps = pa.array([[("col-1", "007")], [("col-1", "7")], [("col-1", "")], [("p", "007")]], TEXT_MAP)
    batch = pa.record_batch({"add": pa.StructArray.from_arrays([maps], names=["partitionValues"])})
    evaluator = ArrowExpressionHandler().predicate_evaluator(batch.schema, found)
    assert evaluator.eval(batch).fill_null(False).to_pylist() == [True, False, False, False]


def test_partition_values_are_encoded_as_distinct_ones() -> None:
    table = table_metadata(field("p", "long"), field("q", "string"), partitioned_by=["p", "q"])
    rows = [("1", "a"), ("1", "b"), ("1", "a"), ("2", "a"), ("1", None), ("1", "")]
    maps = pa.array([[("q", q), ("p", p), ("other", "x")] for p, q in rows], TEXT_MAP)
    found = encode_partition_values(maps, None, table)
    assert found.codes.tolist() == [0, 1, 0, 3, 2, 2]
    assert list(found.strings.to_pydict().values()) == [["1", "1", "1", "2"], ["a", "b", None, "a"]]
    assert make_scan_file_batch(found.strings).column("add")[3].as_py() == {"partitionValues": [("p", "2"), ("q", "a")]}
    both = PartitionValues.concatenate([found, encode_partition_values(maps.slice(3), None, table)], table)
    assert both.codes.tolist() == [*found.codes, 3, 2, 2]
    assert both.strings == found.strings


@pytest.mark.parametrize(
    ("data_type", "values"),
    [
        ("long", [0, -(2**63), None]), ("boolean", [True, False]), ("double", [0.1, 1e300, float("inf"), -0.0]),
        ("float", [0.5, 16777216.0]), ("date", [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
        ("decimal(5,2)", [Decimal("1.50"), Decimal("-999.99")]), ("string", ["a", "é", None]),
        ("timestamp_ntz", [datetime.datetime(2024, 3, 1, 10, 0, 0, 5), datetime.datetime(1969, 12, 31)]),
        ("timestamp", [datetime.datetime(2024, 3, 1, 10, tzinfo=datetime.UTC)]), ("binary", [b"a", b"\xff\x00"]),
    ],
)  # fmt: skip
def test_typed_values_without_strings_survive_as_strings(data_type: str, values: list[Any]) -> None:
    table = table_metadata(field("p", data_type), partitioned_by=["p"])
    own = table.fields_by_name["p"].data_type
    parsed = pa.StructArray.from_arrays([pa.array(values, own)], names=["p"])
    assert encode_partition_values(None, parsed, table).expand().values["p"].to_pylist() == values


def test_D3_D6_partition_strings_of_the_log() -> None:
    table = table_metadata(
        field("p", "long", **mapping(1, "col-1")), delta__columnMapping__mode="name", partitioned_by=["p"]
    )
    maps = pa.array([[("col-1", "007")], [("col-1", "")], [("p", "1")]], TEXT_MAP)
    found = encode_partition_values(maps, None, table)
    assert get_partition_strings(found, "p", table).take(found.codes).to_pylist() == ["007", None, None]
    with pytest.raises(CorruptFile, match="no strings for a PartitionFilter"):
        get_partition_strings(encode_partition_values(pa.array([None], TEXT_MAP), None, table), "p", table)

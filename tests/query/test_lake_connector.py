"""The lake connector: supported pushdown, and the rows that it returns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from builders.hive.tables import write_hive_table
from tamis import types
from tamis.expr.bind import bind
from tamis.expr.nodes import TRUE, Call, Column, Expr, Literal
from tamis.expr.sql.parse import parse_sql
from tamis.query.connectors.lake_connector import LakeConnector
from tamis.query.connectors.lake_handle import LakeHandle
from tamis.query.plan.nodes import AggregateCall, Named, SortKey

LONG = types.LONG


@pytest.fixture
def lake(tmp_path: Path) -> LakeConnector:
    """A Hive table of two days with four rows each."""
    parts = []
    for day in ("1", "2"):
        start = 10 * int(day)
        rows = [{"id": start + n, "s": {"x": n, "y": f"{n}"} if n else None, "Name": f"n{n}"} for n in range(4)]
        parts.append(({"day": day}, pa.Table.from_pylist(rows)))
    write_hive_table(tmp_path / "t", parts)
    connector = LakeConnector("lake")
    connector.add(("t",), tamis.open(tmp_path / "t")._source)
    return connector


def find_table(lake: LakeConnector) -> LakeHandle:
    handle = lake.table(("t",))
    assert handle is not None
    return handle


def read_rows(lake: LakeConnector, handle: object) -> list[dict[str, object]]:
    found = pa.Table.from_batches(lake.read(handle), lake.columns(handle))
    return list(found.to_pylist())


def parse_filter(lake: LakeConnector, text: str, handle: object = None) -> Expr:
    return bind(parse_sql(text), lake.columns(handle or find_table(lake)))


def find_column(lake: LakeConnector, *path: str) -> Column:
    found = parse_filter(lake, ".".join(f"`{part}`" for part in path))
    assert isinstance(found, Column)
    return found


def push_filter(lake: LakeConnector, text: str, handle: LakeHandle | None = None) -> LakeHandle:
    pushed = lake.push_filter(handle or find_table(lake), parse_filter(lake, text, handle))
    assert pushed is not None
    assert pushed.remaining == TRUE
    assert isinstance(pushed.handle, LakeHandle)
    return pushed.handle


def test_tables_are_found_by_their_names(lake: LakeConnector) -> None:
    assert lake.table(("u",)) is None
    assert find_table(lake) == find_table(lake)
    assert hash(find_table(lake)) == hash(find_table(lake))
    assert lake.columns(find_table(lake)).names == ["id", "s", "Name", "day"]


# --- Filters ----------------------------------------------------------------------------------------------------------


def test_a_filter_is_tested_by_the_scan(lake: LakeConnector) -> None:
    handle = push_filter(lake, "day = 2 AND s.x >= 2 AND upper(name) <> 'N3'")
    assert read_rows(lake, handle) == [{"id": 22, "s": {"x": 2, "y": "2"}, "Name": "n2", "day": 2}]
    assert handle != find_table(lake)
    assert push_filter(lake, "s.x >= 2 AND day = 2", handle).predicate == handle.predicate


def test_conjuncts_with_unknown_functions_stay_above(lake: LakeConnector) -> None:
    unknown = Call("soundex", (find_column(lake, "Name"),))
    other = Call("=", (unknown, Literal("x", types.STRING)))
    both = Call("and", (parse_filter(lake, "id > 5"), other))
    pushed = lake.push_filter(find_table(lake), both)
    assert pushed is not None
    assert pushed.remaining == other
    assert lake.push_filter(find_table(lake), other) is None
    assert lake.push_filter(find_table(lake), parse_filter(lake, "rand() > id")) is None


def test_a_filter_is_not_pushed_below_a_limit(lake: LakeConnector) -> None:
    limited = lake.push_limit(find_table(lake), 3)
    first = lake.push_top_n(find_table(lake), [SortKey(find_column(lake, "id"))], 3)
    assert limited is not None
    assert first is not None
    for handle in (limited.handle, first.handle):
        assert lake.push_filter(handle, parse_filter(lake, "id > 5")) is None


# --- Projections ------------------------------------------------------------------------------------------------------


def test_fields_of_structs_are_read_alone(lake: LakeConnector) -> None:
    outputs = [
        Named("o", Call("+", (find_column(lake, "s", "x"), find_column(lake, "id")))),
        Named("p", find_column(lake, "s", "x")),
    ]
    pushed = lake.push_projection(find_table(lake), outputs)
    assert pushed is not None
    assert [each.name for each in pushed.columns] == ["s.x", "id"]
    assert pushed.outputs == (
        Named("o", Call("+", (Column(("s.x",), LONG), Column(("id",), LONG)))),
        Named("p", Column(("s.x",), LONG)),
    )
    # The field of a NULL is NULL.
    assert read_rows(lake, pushed.handle)[:2] == [{"s.x": None, "id": 10}, {"s.x": 1, "id": 11}]
    assert lake.push_projection(pushed.handle, pushed.outputs) is None


def test_a_whole_struct_is_read_once(lake: LakeConnector) -> None:
    pushed = lake.push_projection(
        find_table(lake), [Named("a", find_column(lake, "s")), Named("b", find_column(lake, "s", "x"))]
    )
    assert pushed is not None
    assert [each.name for each in pushed.columns] == ["s"]
    assert pushed.outputs[1] == Named("b", Column(("s", "x"), LONG))


def test_rows_without_columns_are_counted(lake: LakeConnector) -> None:
    pushed = lake.push_projection(push_filter(lake, "id > 11"), [])
    assert pushed is not None
    assert pushed.columns == ()
    assert sum(batch.num_rows for batch in lake.read(pushed.handle)) == 6
    assert all(batch.num_columns == 0 for batch in lake.read(pushed.handle))


def test_a_filter_of_a_field_that_was_pushed(lake: LakeConnector) -> None:
    pushed = lake.push_projection(find_table(lake), [Named("p", find_column(lake, "s", "x"))])
    assert pushed is not None
    assert isinstance(pushed.handle, LakeHandle)
    handle = push_filter(lake, "`s.x` = 3", pushed.handle)
    assert read_rows(lake, handle) == [{"s.x": 3}, {"s.x": 3}]
    assert lake.enforced_predicate(handle) == Call("=", (Column(("s.x",), LONG), Literal(3, LONG)))


# --- Groups -----------------------------------------------------------------------------------------------------------


def test_groups_by_partitions(lake: LakeConnector) -> None:
    calls = [
        AggregateCall("n", "count"),
        AggregateCall("one", "count", (Literal(1, LONG),)),
        AggregateCall("x", "count", (find_column(lake, "s", "x"),)),
        AggregateCall("largest", "max", (find_column(lake, "Name"),)),
    ]
    pushed = lake.push_aggregation(push_filter(lake, "id <> 13"), False, [Named("d", find_column(lake, "day"))], calls)
    assert pushed is not None
    assert [each.name for each in pushed.columns] == ["d", "n", "one", "x", "largest"]
    found = sorted(read_rows(lake, pushed.handle), key=lambda row: str(row["d"]))
    assert found == [
        {"d": 1, "n": 3, "one": 3, "x": 2, "largest": "n2"},
        {"d": 2, "n": 4, "one": 4, "x": 3, "largest": "n3"},
    ]
    # A filter on a key may still be pushed, one on an aggregate may not.
    later = push_filter(lake, "d = 2", pushed.handle)  # type: ignore[arg-type]
    assert [row["n"] for row in read_rows(lake, later)] == [4]
    assert lake.push_filter(pushed.handle, parse_filter(lake, "n > 3", pushed.handle)) is None
    assert lake.push_limit(pushed.handle, 1) is None
    assert lake.push_aggregation(pushed.handle, False, [], [AggregateCall("n", "count")]) is None


def test_a_filter_on_a_count_named_like_a_partition_stays_above(lake: LakeConnector) -> None:
    pushed = lake.push_aggregation(
        find_table(lake), False, [Named("d", find_column(lake, "day"))], [AggregateCall("day", "count")]
    )
    assert pushed is not None
    assert lake.push_filter(pushed.handle, parse_filter(lake, "day > 2", pushed.handle)) is None
    assert lake.properties(pushed.handle).partitioned_by == ("d",)


def test_distinct_partitions(lake: LakeConnector) -> None:
    pushed = lake.push_aggregation(push_filter(lake, "id > 13"), False, [Named("d", find_column(lake, "day"))], [])
    assert pushed is not None
    assert read_rows(lake, pushed.handle) == [{"d": 2}]


@pytest.mark.parametrize(
    "call",
    [
        AggregateCall("n", "sum", (Column(("id",), type=LONG),), distinct=True),
        AggregateCall("n", "sum", (Column(("Name",), type=types.STRING),)),
        AggregateCall("n", "sum", (Column(("s",), None),)),
        AggregateCall("n", "sum", (Literal(1, LONG),)),
        AggregateCall("n", "avg", (Column(("id",), type=LONG),), distinct=True),
        AggregateCall(
            "n", "avg", (Column(("id",), type=LONG),), filter=Call(">", (Column(("id",), LONG), Literal(1, LONG)))
        ),
        AggregateCall("n", "avg", (Call("+", (Column(("id",), type=LONG), Literal(1, LONG))),)),
        AggregateCall("n", "count", (Column(("id",), type=LONG),), distinct=True),
        AggregateCall("n", "count", (), filter=Call(">", (Column(("id",), type=LONG), Literal(1, LONG)))),
        AggregateCall("n", "count", (Column(("s",), None),)),
        AggregateCall("n", "count", (Literal(None),)),
        AggregateCall("n", "max", (Call("+", (Column(("id",), type=LONG), Literal(1, LONG))),)),
        AggregateCall("n", "max", (Column(("s",), None),)),
    ],
)
def test_unsupported_aggregates_stay_above(lake: LakeConnector, call: AggregateCall) -> None:
    assert lake.push_aggregation(find_table(lake), False, [], [call]) is None
    assert lake.push_aggregation(find_table(lake), False, [], [AggregateCall("m", "count"), call]) is None


def test_an_average_shares_partial_results(lake: LakeConnector) -> None:
    identifier = find_column(lake, "id")
    calls = [
        AggregateCall("mean", "avg", (identifier,)),
        AggregateCall("n", "count", (identifier,)),
        AggregateCall("inner", "avg", (find_column(lake, "s", "x"),)),
        AggregateCall("total", "sum", (identifier,)),
        AggregateCall("sum(id)", "max", (identifier,)),
    ]
    pushed = lake.push_aggregation(find_table(lake), False, [Named("sum(id)", find_column(lake, "day"))], calls)
    assert pushed is not None
    assert not pushed.is_partial
    assert [each.name for each in pushed.columns] == [
        "sum(id)", "sum(id)_2", "count(id)", "sum(s.x)", "count(s.x)", "max(id)",
    ]  # fmt: skip
    sums, count, other_sums, other_count, largest = (each.column for each in pushed.columns[1:])
    assert pushed.values == (divide(sums, count), count, divide(other_sums, other_count), sums, largest)
    assert sorted([list(row.values()) for row in read_rows(lake, pushed.handle)]) == [
        [1, 46, 4, 6, 3, 13],
        [2, 86, 4, 6, 3, 23],
    ]
    assert "summed while reading" in lake.describe(pushed.handle)
    limited, top = lake.push_limit(find_table(lake), 3), lake.push_top_n(find_table(lake), [SortKey(identifier)], 3)
    for cut in (limited, top):
        assert cut is not None
        assert lake.push_aggregation(cut.handle, False, [], calls[3:4]) is None


def divide(one: Column, other: Column) -> Expr:
    return Call("/", tuple(Call("cast", (each, Literal("double", types.STRING))) for each in (one, other)))


def test_groups_by_other_columns_stay(lake: LakeConnector) -> None:
    count = [AggregateCall("n", "count")]
    for key in (find_column(lake, "id"), find_column(lake, "s", "x"), parse_filter(lake, "day + 1")):
        assert lake.push_aggregation(find_table(lake), False, [Named("k", key)], count) is None
    limited = lake.push_limit(find_table(lake), 3)
    assert limited is not None
    assert lake.push_aggregation(limited.handle, False, [], count) is None


# --- Limits and first rows --------------------------------------------------------------------------------------------


def test_a_limit_is_kept(lake: LakeConnector) -> None:
    pushed = lake.push_limit(push_filter(lake, "id > 11"), 3)
    assert pushed is not None
    assert pushed.guaranteed
    assert len(read_rows(lake, pushed.handle)) == 3
    smaller, larger = lake.push_limit(pushed.handle, 2), lake.push_limit(pushed.handle, 5)
    assert smaller is not None
    assert larger is not None
    assert len(read_rows(lake, smaller.handle)) == 2
    assert larger.handle == pushed.handle
    nothing = lake.push_limit(find_table(lake), 0)
    assert nothing is not None
    assert read_rows(lake, nothing.handle) == []


def test_D16_a_limit_counts_rows_after_deletes(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long"}, features=["deletionVectors"])
    log.commit(
        data_file(log, "0.parquet", pa.table({"id": [1, 2, 3]}), deleted=[0, 1]),
        data_file(log, "1.parquet", pa.table({"id": [4, 5, 6]})),
    )
    lake = LakeConnector("lake")
    lake.add(("t",), tamis.open(tmp_path)._source)
    pushed = lake.push_limit(find_table(lake), 3)
    assert pushed is not None
    found = [row["id"] for row in read_rows(lake, pushed.handle)]
    assert len(found) == 3
    assert set(found) <= {3, 4, 5, 6}


def test_a_top_n_includes_ties(lake: LakeConnector) -> None:
    keys = [SortKey(find_column(lake, "day"), descending=True, nulls_first=False), SortKey(find_column(lake, "id"))]
    pushed = lake.push_top_n(find_table(lake), keys, 2)
    assert pushed is not None
    assert not pushed.guaranteed
    assert {row["id"] for row in read_rows(lake, pushed.handle)} >= {20, 21, 22, 23}
    assert lake.push_top_n(pushed.handle, keys, 2) is None
    assert lake.push_limit(pushed.handle, 1) is None
    # The column of the order is read, whether it is returned or not.
    narrow = lake.push_projection(pushed.handle, [Named("n", find_column(lake, "Name"))])
    assert narrow is not None
    assert {row["Name"] for row in read_rows(lake, narrow.handle)} == {"n0", "n1", "n2", "n3"}


def test_a_top_n_by_an_expression_stays_above(lake: LakeConnector) -> None:
    assert lake.push_top_n(find_table(lake), [SortKey(parse_filter(lake, "id + 1"))], 2) is None
    assert lake.push_top_n(find_table(lake), [SortKey(find_column(lake, "s"))], 2) is None
    assert lake.push_top_n(find_table(lake), [], 2) is None


# --- Properties -------------------------------------------------------------------------------------------------------


def test_properties(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "day": "integer"}, partition_columns=["day"])
    log.commit(*(data_file(log, f"{n}.parquet", pa.table({"id": range(10 * n, 10 * n + 10)}), {"day": str(n)})
                 for n in range(3)))  # fmt: skip
    lake = LakeConnector("lake")
    lake.add(("t",), tamis.open(tmp_path)._source)
    known = lake.properties(find_table(lake))
    assert (known.rows, known.rows_are_exact, known.partitioned_by) == (30, True, ("day",))
    handle = push_filter(lake, "id >= 15")
    known = lake.properties(handle)
    assert (known.rows, known.rows_are_exact) == (20, False)
    assert known.enforced_predicate == parse_filter(lake, "id >= 15")
    assert known.bytes == sum((tmp_path / f"{n}.parquet").stat().st_size for n in (1, 2))
    limited = lake.push_limit(handle, 4)
    assert limited is not None
    assert lake.properties(limited.handle).rows == 4
    assert "where" in lake.describe(handle)


def test_columns_that_differ_by_case_and_have_dots(tmp_path: Path) -> None:
    rows_written = pa.table({"a": [1, 2], "A": [3, 4], "s.x": [5, 6], "s": [{"x": 7}, {"x": 8}]})
    pq.write_table(rows_written, tmp_path / "f.parquet")
    lake = LakeConnector("lake")
    lake.add(("t",), tamis.open(tmp_path / "f.parquet")._source)
    pushed = lake.push_filter(find_table(lake), Call("=", (Column(("A",), type=LONG, exact=True), Literal(4, LONG))))
    assert pushed is not None
    assert read_rows(lake, pushed.handle) == [{"a": 2, "A": 4, "s.x": 6, "s": {"x": 8}}]
    outputs = [Named("o", Column(("s", "x"), type=LONG)), Named("p", Column(("s.x",), type=LONG))]
    narrow = lake.push_projection(pushed.handle, outputs)
    assert narrow is not None
    assert read_rows(lake, narrow.handle) == [{"s.x": 8, "s.x_2": 6}]

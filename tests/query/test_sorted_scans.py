"""Scans in order: queries return the same rows in the same order whether the scan or the engine sorts."""

from __future__ import annotations

import json
import tempfile
from datetime import date, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tamis
from builders.query.sql_tables import list_rows
from tamis.expr.nodes import Column
from tamis.scan.aggregation.sorted_rows import sort_rows
from tamis.scan.aggregation.top_n import SortOrder
from tamis.tuning import Tuning

EXAMPLES = settings.default.max_examples if settings.default is not None else 60
MODEST = settings(max_examples=max(15, EXAMPLES // 2), deadline=None, suppress_health_check=[*HealthCheck])
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("d", pa.date32()),
        ("s", pa.string()),
        ("m", pa.decimal128(9, 2)),
        ("f", pa.float64()),
        ("p", pa.string()),
        ("id", pa.int64()),
    ]
)


def count_applied(session: tamis.Session, query: str) -> dict[str, int]:
    found = json.loads(session.explain(query, format="json"))
    return {each["rule"]: each["applied"] for each in found["rules"]}


def read_both(session: tamis.Session, query: str) -> tuple[pa.Table, pa.Table]:
    return session.sql(query).to_arrow(), session.sql(query, rules=False).to_arrow()


@st.composite
def files(draw: st.DrawFn) -> list[pa.Table]:
    """Draw the rows of some files: values near each other within a file, some of them NULL."""
    found, number = [], 0
    for _ in range(draw(st.integers(1, 6))):
        base, spread = draw(st.integers(-6, 6)) * 4, draw(st.sampled_from((0, 0, 1, 6)))
        has_nulls = draw(st.sampled_from((False, False, True)))
        values = [base + draw(st.integers(0, spread)) for _ in range(draw(st.integers(1, 8)))]
        keys: list[int | None] = [None if has_nulls and draw(st.booleans()) else value for value in values]
        if draw(st.booleans()):
            keys.sort(key=lambda value: (value is None, value))
        ids = [number + index for index in range(len(keys))]
        number += len(keys)
        known = [value is not None for value in keys]
        rows = {
            "k": keys,
            "d": [date(2024, 1, 1) + timedelta(days=value) if value is not None else None for value in keys],
            "s": [f"{'long prefix ' * 4}{value + 50:03}" if value is not None else None for value in keys],
            "m": [Decimal(value) / 4 if value is not None else None for value in keys],
            "f": [float("nan") if not has else float(value or 0) for has, value in zip(known, keys, strict=True)],
            "p": [draw(st.sampled_from(("a", "b", "é", None)))] * len(keys),
            "id": ids,
        }
        found.append(pa.table(rows, schema=SCHEMA))
    return found


def write_delta(folder: Path, tables: list[pa.Table], *, is_partitioned: bool) -> Path:
    for rows in tables:
        partitions = ["p"] if is_partitioned else None
        deltalake.write_deltalake(str(folder), rows, mode="append", partition_by=partitions)
    return folder


def write_hive(folder: Path, tables: list[pa.Table]) -> Path:
    for number, rows in enumerate(tables):
        value = rows["p"][0].as_py()
        path = folder / f"p={'__HIVE_DEFAULT_PARTITION__' if value is None else value}"
        path.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows.drop_columns(["p"]), path / f"{number}.parquet")
    return folder


def get_rank(value: Any, *, descending: bool, nulls_first: bool) -> Any:
    if value is None:
        return (0 if nulls_first else 2,)
    return 1, value if not descending else _Reversed(value)


class _Reversed:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]


@MODEST
@given(tables=files(), data=st.data())
def test_a_sorted_scan_returns_the_rows_in_the_order_of_the_query(tables: list[pa.Table], data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(("delta", "partitioned", "hive")), "kind")
    names = data.draw(st.lists(st.sampled_from(("k", "d", "s", "m", "p", "id")), min_size=1, max_size=3, unique=True))
    directions = [(name, data.draw(st.booleans()), data.draw(st.booleans())) for name in names]
    order = ", ".join(
        f"{name} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"
        for name, descending, first in directions
    )
    where = data.draw(st.sampled_from(("", "WHERE k > 0", "WHERE id % 3 <> 1", "WHERE upper(p) = 'A' OR k IS NULL")))
    limit = data.draw(st.sampled_from(("", "", "LIMIT 5", "LIMIT 4 OFFSET 3", "OFFSET 6")))
    columns = data.draw(st.sampled_from(("*", "id", "id + 1 AS x, s", "count(*) OVER () AS n, id")))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        if kind == "hive":
            write_hive(path, tables)
        else:
            write_delta(path, tables, is_partitioned=kind == "partitioned")
        tuning = Tuning(
            min_native_bytes=data.draw(st.sampled_from((0, 2**60))),
            max_sorted_run_bytes=data.draw(st.sampled_from((2**26, 4_000, 0))),
        )
        session = tamis.connect(tuning=tuning)
        session.register("t", session.open(path))
        query = f"SELECT {columns} FROM t {where} ORDER BY {order} {limit}"
        found, expected = read_both(session, query)
        assert found.schema == expected.schema
        assert found.num_rows == expected.num_rows
        if not limit:
            assert sorted(map(repr, list_rows(found))) == sorted(map(repr, list_rows(expected))), query
        keyed = f"SELECT {', '.join(names)} FROM t {where} ORDER BY {order} {limit}"
        found, expected = read_both(session, keyed)
        assert list_rows(found) == list_rows(expected), f"{keyed}\n{session.explain(keyed)}"
        ranks = [
            tuple(
                get_rank(value, descending=descending, nulls_first=first)
                for value, (_, descending, first) in zip(row, directions, strict=True)
            )
            for row in list_rows(found)
        ]
        assert all(not later < earlier for earlier, later in pairwise(ranks)), keyed


@pytest.fixture
def events(tmp_path: Path) -> tamis.Session:
    """Eight files in a shuffled order, each with its own range of ids; their rows are out of order."""
    for number in (3, 0, 7, 2, 5, 1, 6, 4):
        ids = [number * 1000 + id * 7 % 1000 for id in range(1000)]
        rows = pa.table({"id": ids, "day": [number // 2] * 1000, "text": [f"{id:05}" for id in ids]})
        deltalake.write_deltalake(str(tmp_path / "events"), rows, mode="append", partition_by=["day"])
    session = tamis.connect()
    session.register("events", session.open(tmp_path / "events"))
    return session


@pytest.mark.parametrize("order", ["id", "id DESC", "day, id", "day DESC, text DESC", "text", "day"])
def test_files_with_disjoint_bounds_need_no_sort_above(events: tamis.Session, order: str) -> None:
    query = f"SELECT * FROM events ORDER BY {order}"
    assert count_applied(events, query)["drop_sort"] == 1
    assert "Sort" not in events.explain(query).split("Optimized plan")[1].split("Rules")[0]
    keys = f"SELECT {order.replace(' DESC', '')} FROM events ORDER BY {order}"
    found, expected = read_both(events, keys)
    assert found == expected


def test_a_limit_with_an_offset_stops_after_the_first_files(events: tamis.Session, tmp_path: Path) -> None:
    query = "SELECT id FROM events ORDER BY id LIMIT 3 OFFSET 1500"
    assert count_applied(events, query)["drop_sort"] == 1
    assert events.sql(query).to_arrow()["id"].to_pylist() == [1500, 1501, 1502]
    listed = deltalake.DeltaTable(str(tmp_path / "events")).get_add_actions(flatten=True)
    actions = pa.table(listed)
    late = actions.filter(pc.greater_equal(actions["min.id"], 4_000))["path"].to_pylist()
    assert len(late) == 4
    for path in late:
        (tmp_path / "events" / path).unlink()  # none of these is read
    assert events.sql(query).to_arrow()["id"].to_pylist() == [1500, 1501, 1502]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT * FROM events ORDER BY id + 1", "an expression"),
        ("SELECT day, max(id) FROM events GROUP BY day ORDER BY day", "groups"),
        ("SELECT a.id FROM events a JOIN events b ON a.id = b.id ORDER BY a.id", "a join"),
        ("SELECT id FROM events UNION ALL SELECT id FROM events ORDER BY id", "a union"),
    ],
)
def test_other_sorts_stay(events: tamis.Session, query: str, why: str) -> None:
    assert count_applied(events, query)["drop_sort"] == 0, why
    found, expected = read_both(events, query)
    assert found == expected


def test_files_that_overlap_too_much_are_sorted_by_the_engine(tmp_path: Path) -> None:
    for _ in range(4):
        deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"id": range(100)}), mode="append")
    session = tamis.connect()
    session.register("t", session.open(tmp_path / "t"))
    assert count_applied(session, "SELECT id FROM t ORDER BY id")["drop_sort"] == 0
    small = tamis.connect(tuning=Tuning(max_sorted_run_bytes=10))
    deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"id": range(200, 300)}), mode="append")
    small.register("t", small.open(tmp_path / "t"))
    assert count_applied(small, "SELECT id FROM t ORDER BY id")["drop_sort"] == 0


def test_floats_and_unknown_bounds_are_sorted_by_the_engine(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / "h").mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": [number], "f": [float(number)]}), tmp_path / "h" / f"{number}.parquet")
        deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"f": [float(number)]}), mode="append")
    session = tamis.connect()
    session.register("t", session.open(tmp_path / "t"))
    session.register("h", session.open(tmp_path / "h"))
    assert count_applied(session, "SELECT f FROM t ORDER BY f")["drop_sort"] == 0
    # A Hive-style table has no statistics of files.
    assert count_applied(session, "SELECT id FROM h ORDER BY id")["drop_sort"] == 0


def test_A5_the_scan_of_a_table_under_a_policy_is_sorted_by_the_engine(events: tamis.Session, tmp_path: Path) -> None:
    policy = {"tables": {"events": [{"principals": ["ana"], "rows": "id < 7500"}]}}
    session = tamis.connect(policies=policy).as_principal("ana")
    session.register("events", session.open(tmp_path / "events"))
    query = "SELECT id FROM events ORDER BY id DESC LIMIT 2 OFFSET 1"
    assert session.sql(query).to_arrow()["id"].to_pylist() == [7498, 7497]
    assert "order of id" not in session.explain(query)


def test_the_embedded_engine_keeps_the_order_of_a_scan() -> None:
    """What `scan_order` relies on, over many batches, with all threads."""
    from tamis.engines.duckdb.run.run_plan import start_engine

    engine = start_engine(())
    try:
        assert engine.sql("SELECT current_setting('preserve_insertion_order')").fetchall() == [(True,)]
        count = 400_000
        ids = pa.table({"id": pa.array(range(count), pa.int64())})
        engine.register("numbers", pa.RecordBatchReader.from_batches(ids.schema, ids.to_batches(max_chunksize=1_000)))
        kept = engine.sql("SELECT id * 2 AS x FROM numbers WHERE id % 7 <> 3 LIMIT 300000 OFFSET 5").to_arrow_table()
        values = kept["x"].combine_chunks()
        assert len(values) == 300_000
        assert pc.all(pc.less(values[:-1], values[1:])).as_py()
    finally:
        engine.close()


def test_rows_with_much_text_are_sorted_with_64_bit_offsets() -> None:
    rows = pa.table({"s": ["b", None, "c", "a"], "x": [b"2", b"4", None, b"1"], "n": [[2], [4], [3], [1]]})
    for descending in (False, True):
        keys = [SortOrder(Column(("s",), type=pa.string()), descending, nulls_first=True)]
        small, large = sort_rows(rows, keys), sort_rows(rows, keys, max_bytes=0)
        assert large.schema == rows.schema
        assert large == small
        assert small["s"].to_pylist() == [None, *sorted("abc", reverse=descending)]


def test_a_query_over_a_sorted_scan_agrees_with_duckdb(events: tamis.Session) -> None:
    query = (
        "SELECT id % 10 AS x, text FROM events WHERE length(text) = 5 AND id % 3 = 0 ORDER BY id DESC LIMIT 50 OFFSET 9"
    )
    assert count_applied(events, query)["drop_sort"] == 1
    rows = events.sql("SELECT * FROM events").to_arrow()
    expected = duckdb.from_arrow(rows).query("events", query).to_arrow_table()
    assert list_rows(events.sql(query).to_arrow()) == list_rows(expected)

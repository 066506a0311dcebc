"""Pushed-down predicates, orders and aggregates have the same result as in Tamis."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from builders.query.databases import COLUMNS, MORE_TEXTS, write_duckdb, write_postgresql, write_sqlite
from builders.values.by_type import list_neighbours
from builders.values.predicates import OPERATORS, PATTERNS
from tamis import types
from tamis.expr.bind import bind
from tamis.expr.evaluate import Evaluator
from tamis.expr.nodes import NULL, Call, Column, Expr, Literal
from tamis.formats.database import open_database
from tamis.formats.database.database_query import DatabaseColumn, Query, SelectedColumn
from tamis.formats.database.dialects import find_type_family
from tamis.formats.database.select_text import render_select
from tamis.query.connectors.database_connector import DatabaseConnector
from tamis.query.plan.nodes import AggregateCall, Named, SortKey

pytest.importorskip("adbc_driver_sqlite", reason="adbc-driver-sqlite is not installed")

KINDS = ("sqlite", "duckdb", "postgresql")
AT_ONCE = 60


class Case:
    """A database with the table `t`, and its rows."""

    def __init__(self, kind: str, index: Any, rows: pa.Table) -> None:
        self.kind = kind
        self.rows = rows
        self.connector = DatabaseConnector(kind, open_database(index))
        handle = self.connector.table(("t",))
        assert handle is not None
        self.handle = handle

    def read(self, handle: object) -> pa.Table:
        return pa.Table.from_batches(self.connector.read(handle), self.connector.columns(handle))

    def bound(self, predicate: Expr) -> Expr:
        return bind(predicate, self.rows.schema)


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder: Path = tmp_path_factory.mktemp("databases")
    if request.param == "postgresql":
        uri = request.getfixturevalue("postgresql")
        return Case(request.param, uri, write_postgresql(uri))
    write = {"sqlite": write_sqlite, "duckdb": write_duckdb}[request.param]
    path = folder / f"t.{request.param}"
    return Case(request.param, path, write(path))


def test_all_rows_of_a_table_are_read(case: Case) -> None:
    found = case.read(case.handle).sort_by("id")
    assert found.schema.names == case.rows.schema.names
    # -0.0 and 0.0 are equal, so the printed values are compared.
    assert found.cast(case.rows.schema).to_pydict().__repr__() == case.rows.to_pydict().__repr__()


def make_comparisons(rows: pa.Table) -> Iterator[Expr]:
    """Compare every column with its own values and some next to them, with the operators in turn."""
    operators = list(OPERATORS)
    for name in rows.column_names[1:]:
        data_type, values = COLUMNS[name]
        near = [each for value in values[:3] for each in list_neighbours(value, data_type)]
        some = dict.fromkeys([*values, *near])
        for index, value in enumerate(some):
            operator = operators[index % len(operators)]
            yield Call(operator, (Column((name,), None), Literal(value, data_type)))
        yield Call("<=>", (Column((name,), None), NULL))
        items = [Literal(value, data_type) for value in values[:4]]
        yield Call("in", (Column((name,), None), *items))
        yield Call("not", (Call("in", (Column((name,), None), *items, NULL)),))
        yield Call("is_null", (Column((name,), None),))
        yield Call("is_not_null", (Column((name,), None),))


def make_text_tests(rows: pa.Table) -> Iterator[Expr]:
    parts = ("a", "A", "ä", "%", "_", "\\", "*", "?", "[", "]", "!", "'", "é", "日", "")
    patterns = [*PATTERNS, *MORE_TEXTS, *("%" + part for part in parts), *(part + "_%" for part in parts)]
    for index, pattern in enumerate(dict.fromkeys(patterns)):
        column = Column(("name" if index % 3 else "title",), None)
        yield Call("like", (column, Literal(pattern, types.STRING)))
        if index % 4 == 0:
            yield Call("like", (column, Literal(pattern, types.STRING), Literal("a", types.STRING)))
    for index, part in enumerate(parts):
        function = ("startswith", "endswith", "contains")[index % 3]
        yield Call(function, (Column(("name",), None), Literal(part, types.STRING)))
        yield Call(function, (Column(("title",), None), Literal(part, types.STRING)))


def make_pair_comparisons(rows: pa.Table) -> Iterator[Expr]:
    """Compare columns of one type family with each other."""
    names = rows.column_names
    for one, other, operator in itertools.product(names, names, OPERATORS):
        if find_type_family(rows.schema.field(one).type) == find_type_family(rows.schema.field(other).type):
            yield Call(operator, (Column((one,), None), Column((other,), None)))


def make_logic_predicates(rows: pa.Table) -> Iterator[Expr]:
    first = Call(">", (Column(("whole",), None), Literal(3, pa.int64())))
    second = Call("=", (Column(("flag",), None), Literal(True, pa.bool_())))
    third = Call("<", (Column(("name",), None), Literal("b", pa.string())))
    for function in ("and", "or"):
        yield Call(function, (first, second))
        yield Call("not", (Call(function, (first, Call("not", (third,)), NULL)),))
        yield Call(function, (Column(("flag",), None), Call("or", (third, second, first))))
    yield Call("not", (Column(("flag",), None),))
    yield Call("<", (Call("coalesce", (Column(("whole",), None), Column(("id",), None))), Literal(5, pa.int64())))
    case = Call("case", (first, Column(("name",), None), second, Literal("é", pa.string()), Column(("title",), None)))
    yield Call("=", (case, Literal("A", pa.string())))


@pytest.mark.parametrize(
    "predicates",
    [make_comparisons, make_text_tests, make_pair_comparisons, make_logic_predicates],
    ids=lambda each: each.__name__,
)
def test_pushed_down_predicates_have_the_same_result(case: Case, predicates: Any) -> None:
    wanted = [case.bound(each) for each in predicates(case.rows)]
    wanted = [each for each in wanted if isinstance(each, Call)]
    written = [each for each in wanted if case.connector._can_test(case.handle, each)]
    # Few predicates cannot be pushed down: floats that SQLite could misread, the smallest integer, dates out of range.
    assert len(written) > 0.9 * len(wanted)
    here = case.read(case.handle).sort_by("id").combine_chunks().to_batches()[0]
    for some in itertools.batched(written, AT_ONCE) if hasattr(itertools, "batched") else _split_into_batches(written):
        there = _evaluate_predicates(case, list(some))
        for index, predicate in enumerate(some):
            expected = Evaluator(predicate)(here).to_pylist()
            assert there.column(index + 1).to_pylist() == [None if v is None else int(v) for v in expected], predicate


def _split_into_batches(items: list[Expr]) -> Iterator[list[Expr]]:
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]


def _evaluate_predicates(case: Case, predicates: list[Expr]) -> pa.Table:
    one, zero = Literal(1, pa.int64()), Literal(0, pa.int64())
    number = SelectedColumn(case.handle.selected[0].column, Column(("id",), type=pa.int64()))
    truths = [
        SelectedColumn(
            DatabaseColumn(f"p{index}", pa.int64()),
            Call("case", (each, one, Call("not", (each,)), zero, Literal(None, pa.int64()))),
        )
        for index, each in enumerate(predicates)
    ]
    query = Query(case.handle.source, (number, *truths))
    text = render_select(query, case.connector.database.dialect)
    assert text is not None, predicates
    return pa.Table.from_batches(case.connector.database.run(text, query.columns)).sort_by("id")


@pytest.mark.parametrize("nulls_first", [True, False])
@pytest.mark.parametrize("descending", [True, False])
def test_pushed_down_orders_have_the_same_result(case: Case, descending: bool, nulls_first: bool) -> None:
    for name in case.rows.column_names:
        key = SortKey(Column((name,), None), descending, nulls_first)
        pushed = case.connector.push_top_n(case.handle, [key, SortKey(Column(("id",), None))], 50)
        if name in ("flag",):
            continue
        assert pushed is not None
        assert pushed.guaranteed
        values = case.read(pushed.handle)[name].to_pylist()
        assert list(map(_make_sort_key, values)) == [
            _make_sort_key(each) for each in _sort_values(case.rows[name].to_pylist(), descending, nulls_first)[:50]
        ], name


def _sort_values(values: list[Any], descending: bool, nulls_first: bool) -> list[Any]:
    known = sorted((value for value in values if value is not None), key=_make_sort_key, reverse=descending)
    missing = [None] * (len(values) - len(known))
    return missing + known if nulls_first else known + missing


def _make_sort_key(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value + 0.0)
    return value


def test_pushed_down_groups_have_the_same_result(case: Case) -> None:
    for name in case.rows.column_names:
        data_type = case.rows.schema.field(name).type
        key = Named("key", Column((name,), type=data_type))
        calls = [AggregateCall("n", "count"), *_make_aggregates(case.rows)]
        pushed = case.connector.push_aggregation(case.handle, False, [key], calls)
        # Zeros of both signs are equal, so their group key is ambiguous.
        assert (pushed is None) is pa.types.is_floating(data_type)
        if pushed is not None:
            found = {_make_group_key(row["key"]): row for row in case.read(pushed.handle).to_pylist()}
            assert found == _compute_groups(case.rows, name, calls), name


def _make_aggregates(rows: pa.Table) -> list[AggregateCall]:
    calls = []
    for field in rows.schema:
        column = Column((field.name,), type=field.type)
        calls.append(AggregateCall(f"count {field.name}", "count", (column,)))
        if not pa.types.is_boolean(field.type):
            calls += [
                AggregateCall(f"{each} {field.name}", each, (column,), type=field.type) for each in ("min", "max")
            ]
        if not pa.types.is_floating(field.type):
            calls.append(AggregateCall(f"distinct {field.name}", "count", (column,), distinct=True))
    return calls


def _compute_groups(rows: pa.Table, name: str, calls: list[AggregateCall]) -> dict[Any, dict[str, Any]]:
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows.to_pylist():
        groups.setdefault(_make_group_key(row[name]), []).append(row)
    return {
        key: {"key": own[0][name], **{call.name: _aggregate(call, own) for call in calls}}
        for key, own in groups.items()
    }


def _aggregate(call: AggregateCall, rows: list[dict[str, Any]]) -> Any:
    if not call.args:
        return len(rows)
    assert isinstance(call.args[0], Column)
    values = [row[call.args[0].name] for row in rows if row[call.args[0].name] is not None]
    if call.function == "count":
        return len(set(map(_make_group_key, values))) if call.distinct else len(values)
    found = (min if call.function == "min" else max)(values, key=_make_sort_key, default=None)
    return pytest.approx(found, rel=0, nan_ok=True) if isinstance(found, float) else found


def _make_group_key(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("kind", ["inner", "left"])
def test_pushed_down_joins_have_the_same_result(case: Case, kind: Any) -> None:
    for name in case.rows.column_names:
        column = Column((name,), type=case.rows.schema.field(name).type)
        pushed = case.connector.push_join(case.handle, case.handle, kind, [(column, column)])
        assert pushed is not None
        found = case.read(pushed.handle)
        indices = case.rows.column_names.index("id"), case.rows.num_columns + case.rows.column_names.index("id")
        pairs = sorted(zip(*(found.column(index).to_pylist() for index in indices), strict=True), key=repr)
        assert pairs == sorted(_compute_join_pairs(case.rows, name, kind), key=repr), name


def _compute_join_pairs(rows: pa.Table, name: str, kind: str) -> Iterator[tuple[int, int | None]]:
    values = [None if value is None else _make_sort_key(value) for value in rows[name].to_pylist()]
    for one, value in enumerate(values):
        matches = [other for other, each in enumerate(values) if value is not None and each == value]
        yield from ((one, other) for other in matches)
        if kind == "left" and not matches:
            yield one, None

"""Protected scans are read separately: a policy is never in one query with the conditions of a user."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from tamis import types
from tamis.errors import AccessDenied, TableError
from tamis.expr.nodes import TRUE, Call, Column, Expr, Literal
from tamis.query.connectors.connector import Connector, Handle
from tamis.query.plan.explain import is_redacted, redact_plan
from tamis.query.plan.nodes import Filter, Limit, Named, Output, Project, Sort, SortKey, TableScan
from tamis.query.policies.leakproof import is_leakproof
from tamis.query.policies.protected_reading import (
    check_protected,
    is_protected,
    make_protected_schema,
    read_protected_batches,
)

ROWS = pa.table({"a": [1, 2, 3, 4], "s": ["w", "x", "y", "z"], "place": [{"city": "b"}] * 4})


class Rows(Connector):
    """A table that raises a given error while it is read."""

    name = "rows"

    def __init__(self, failure: Exception | None = None) -> None:
        self._failure = failure

    def columns(self, handle: Handle) -> pa.Schema:
        return ROWS.schema

    def read(self, handle: Handle) -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches(max_chunksize=2)
        if self._failure is not None:
            raise self._failure


A, S = Column(("t.a",), type=types.LONG), Column(("t.s",), type=types.STRING)
SCAN = TableScan("rows", "t", tuple(Output(f"t.{field.name}", field.type) for field in ROWS.schema), is_protected=True)


def compare(column: Column, operator: str, value: object) -> Expr:
    return Call(operator, (column, Literal(value, column.type)))


VISIBLE = Filter(SCAN, compare(A, ">", 1), protects=True)
MASKED = Project(
    VISIBLE,
    (
        Named("t.a", A),
        Named("t.s", Call("reverse", (Call("concat", (S, Literal("!", types.STRING))),))),
        Named("city", Column(("t.place", "city"), type=types.STRING)),
        Named("none", Literal(None, types.DOUBLE)),
    ),
    protects=True,
)


def read(node: object, failure: Exception | None = None) -> pa.Table:
    connectors = {"rows": Rows(failure)}
    return pa.Table.from_batches(read_protected_batches(node, connectors), make_protected_schema(node, connectors))  # type: ignore[arg-type]


def test_filters_masks_and_limits_are_applied_batch_by_batch() -> None:
    typed = replace(MASKED, outputs=tuple(each for each in MASKED.outputs if each.name != "t.s"))
    assert read(typed).to_pydict() == {"t.a": [2, 3, 4], "city": ["b"] * 3, "none": [None] * 3}
    assert read(typed).schema.types == [types.LONG, types.STRING, types.DOUBLE]
    cast = Call("cast", (MASKED.outputs[1].expr, Literal("string", types.STRING)))
    engine = Project(VISIBLE, (Named("t.s", cast),), protects=True)
    assert read(engine).to_pydict() == {"t.s": ["!x", "!y", "!z"]}
    assert read(Project(Limit(SCAN, 2, 1), (Named("t.a", A),), protects=True))["t.a"].to_pylist() == [2, 3]
    batches = read_protected_batches(Project(VISIBLE, (), protects=True), {"rows": Rows()})
    assert sum(batch.num_rows for batch in batches) == 3


@pytest.mark.parametrize(
    "failure", [KeyError("a secret"), OSError("/a/secret"), pa.ArrowInvalid("a secret"), TableError("a secret")]
)
def test_A5_the_reason_of_a_failure_is_not_reported(failure: Exception) -> None:
    with pytest.raises(TableError) as caught:
        read(VISIBLE, failure)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__
    with pytest.raises(AccessDenied, match="no more"):
        read(VISIBLE, AccessDenied("no more"))


def test_which_nodes_are_protected() -> None:
    assert all(map(is_protected, (SCAN, VISIBLE, MASKED)))
    users = Filter(MASKED, TRUE)
    assert not any(map(is_protected, (users, Filter(SCAN, TRUE), replace(SCAN, is_protected=False))))
    check_protected(users)
    check_protected(Sort(users, (SortKey(A),)))
    # A policy that is not directly above its scan would be applied by an engine.
    for wrong in (
        Filter(Sort(SCAN, (SortKey(A),)), TRUE, protects=True),
        Filter(replace(SCAN, is_protected=False), TRUE, protects=True),
    ):
        with pytest.raises(AccessDenied):
            check_protected(Sort(wrong, (SortKey(A),)))


def test_A5_a_redacted_plan_has_no_trace_of_policies() -> None:
    shown = redact_plan(Filter(MASKED, compare(A, "=", 3)))
    assert "'!'" not in repr(shown)
    assert isinstance(shown, Filter)
    assert isinstance(shown.source, TableScan)
    assert [output.name for output in shown.source.columns] == ["t.a", "t.s", "city", "none"]
    assert repr(shown.source.handle) == "under a policy"
    assert is_redacted(shown)
    assert not is_redacted(replace(SCAN, is_protected=False))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (compare(A, "<", 5), True),
        (Call("=", (Literal(5, types.LONG), A)), True),
        (Call("in", (A, Literal(1, types.LONG), Literal(None, types.LONG))), True),
        (Call("is_null", (S,)), True),
        (Call("like", (S, Literal("p%", types.STRING))), True),
        (Call("like", (S, Literal("%p", types.STRING))), False),
        (Call("startswith", (S, Literal("p", types.STRING))), True),
        (Call("not", (Call("or", (compare(A, "<", 5), compare(S, "=", "x"))),)), True),
        (Call("and", (compare(A, "<", 5), Call(">", (Call("+", (A, A)), A)))), False),
        (Call("=", (A, Column(("b",), type=types.LONG))), False),
        (Call("=", (Column(("unknown",), None), Literal(5, types.LONG))), False),
        (Call("=", (S, Literal(5, types.LONG))), False),
        (Call("=", (Call("cast", (S, Literal("int", types.STRING))), Literal(5, pa.int32()))), False),
        (Call("raise_error", (S,)), False),
        (Call("sql", (Literal("a RLIKE 'x'", types.STRING), S)), False),
        (Column(("flag",), type=types.BOOLEAN), True),
        (TRUE, True),
        (Call("is_null", (Call("+", (A, A)),)), False),
    ],
)
def test_A1_which_conditions_are_leakproof(condition: Expr, expected: bool) -> None:
    assert is_leakproof(condition) is expected

"""Rules that a connector brings: applied, switched off, timed and checked like those of Tamis. And its policies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

import tamis
from tamis.connectors import (
    Call,
    Column,
    Connector,
    Context,
    Expr,
    Literal,
    Named,
    Node,
    Project,
    Rule,
    TableScan,
    TopN,
)
from tamis.errors import AccessDenied

ROWS = pa.table({"id": [3, 1, 2], "doubled": [6, 2, 4]})


@dataclass(frozen=True)
class NumbersHandle:
    columns: tuple[str, ...] = ("id", "doubled")
    smallest: int | None = None


@dataclass
class Numbers(Connector):
    """A table of numbers, which returns its smallest ids by itself: its own rule recognises that query."""

    name: str = "numbers"
    own_rules: Sequence[Rule] = ()

    def table(self, name: tuple[str, ...]) -> NumbersHandle | None:
        return NumbersHandle() if name == ("all",) else None

    def columns(self, handle: Any) -> pa.Schema:
        return pa.schema([ROWS.schema.field(name) for name in handle.columns])

    def read(self, handle: Any) -> Iterator[pa.RecordBatch]:
        rows = ROWS if handle.smallest is None else ROWS.sort_by("id").slice(0, handle.smallest)
        yield from rows.select(list(handle.columns)).to_batches()

    def rules(self) -> Sequence[Rule]:
        return self.own_rules


class TakeSmallest:
    """TopN(TableScan(all), by id, n)  ─▶  TableScan(the n smallest)."""

    name = "take_smallest"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case TopN(TableScan(handle=NumbersHandle(smallest=None) as handle) as scan, (key,), count):
                is_by_id = isinstance(key.expr, Column) and key.expr.path[0].endswith(".id") and not key.descending
                return replace(scan, handle=replace(handle, smallest=count)) if is_by_id else None
            case _:
                return None


class LosesAColumn:
    name = "loses_a_column"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case TableScan(handle=NumbersHandle(("id", "doubled"))):
                return replace(node, handle=NumbersHandle(("id",)), columns=node.columns[:1])
            case _:
                return None


class ReadsNothing:
    """Adds a projection that reads a column which the scan does not return."""

    name = "reads_nothing"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case TableScan(handle=NumbersHandle()):
                names = [Named(each.name, Column(("elsewhere",), type=each.type)) for each in node.columns]
                return Project(node, tuple(names))
            case _:
                return None


class NarrowsTheHandleOnly:
    name = "narrows_the_handle_only"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case TableScan(handle=NumbersHandle(("id", "doubled"))):
                return replace(node, handle=NumbersHandle(("id",)))
            case _:
                return None


class ClashesWithTamis(TakeSmallest):
    name = "push_limit_into_scan"


def connect(*rules: Rule, name: str = "n") -> tamis.Session:
    return tamis.connect().attach(name, Numbers(own_rules=rules))


QUERY = "SELECT id, doubled FROM n.all ORDER BY id LIMIT 2"


def count_applied(session: tamis.Session, query: str, **options: Any) -> dict[str, int]:
    found = json.loads(session.explain(query, format="json", **options))
    return {each["rule"]: each["applied"] for each in found["rules"]}


def test_a_rule_of_a_connector_fires_is_counted_and_can_be_switched_off() -> None:
    session = connect(TakeSmallest())
    assert count_applied(session, QUERY)["take_smallest"] == 1
    expected = [{"id": 1, "doubled": 2}, {"id": 2, "doubled": 4}]
    assert session.sql(QUERY).to_arrow().to_pylist() == expected
    for rules in ({"take_smallest": False}, False):
        assert count_applied(session, QUERY, rules=rules)["take_smallest"] == 0
        assert session.sql(QUERY, rules=rules).to_arrow().to_pylist() == expected


def test_a_rule_sees_no_node_that_reads_tables_of_others() -> None:
    session = connect(TakeSmallest()).attach("other", Numbers())
    session.register("mine", ROWS)
    assert count_applied(session, QUERY.replace("n.all", "other.all"))["take_smallest"] == 0
    assert count_applied(session, QUERY.replace("n.all", "mine"))["take_smallest"] == 0
    joined = "SELECT n.id, n.doubled FROM n.all n JOIN mine m ON n.id = m.id ORDER BY n.id LIMIT 2"
    assert count_applied(session, joined)["take_smallest"] == 0


def test_a_rule_sees_no_table_under_a_policy() -> None:
    policy = {"tables": {"n.all": [{"principals": ["ana"], "rows": "id > 1"}]}}
    session = tamis.connect(policies=policy).attach("n", Numbers(own_rules=[TakeSmallest()])).as_principal("ana")
    # The rule would take hidden rows among the two smallest.
    assert session.sql(QUERY).to_arrow()["id"].to_pylist() == [2, 3]


def test_two_connectors_of_one_class_may_have_the_same_rules() -> None:
    session = connect(TakeSmallest()).attach("m", Numbers(own_rules=[TakeSmallest()]))
    query = f"SELECT * FROM ({QUERY}) UNION ALL ({QUERY.replace('n.all', 'm.all')})"
    assert count_applied(session, query)["take_smallest"] == 2


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (LosesAColumn(), "'loses_a_column' made a wrong plan: expected the columns all.id, all.doubled, found all.id"),
        (ReadsNothing(), "'reads_nothing' made a wrong plan: Project reads 'elsewhere'"),
        (NarrowsTheHandleOnly(), "'narrows_the_handle_only' made a wrong plan: a scan names 2 columns"),
    ],
)
def test_a_wrong_replacement_is_an_error_that_names_the_rule(rule: Rule, message: str) -> None:
    session = connect(rule)
    query = "SELECT id, doubled FROM n.all n"
    with pytest.raises(tamis.TamisError, match=message):
        session.sql(query).to_arrow()
    assert session.sql(query, rules={rule.name: False}).to_arrow().num_rows == 3


def test_a_rule_with_the_name_of_another_is_refused_when_the_connector_is_attached() -> None:
    with pytest.raises(tamis.TamisError, match="Numbers has a rule 'push_limit_into_scan', and so has Tamis"):
        connect(ClashesWithTamis())

    class Others(Numbers):
        """Another class of connectors."""

    session = connect(TakeSmallest())
    with pytest.raises(tamis.TamisError, match="Others has a rule 'take_smallest', and so has Numbers"):
        session.attach("m", Others(own_rules=[TakeSmallest()]))
    assert session.sql(QUERY).to_arrow().num_rows == 2


def test_an_unknown_rule_is_an_error_that_lists_the_rules_of_connectors() -> None:
    with pytest.raises(tamis.TamisError, match=r"no rule 'take_largest'. Did you mean 'take_smallest'[?] Rules: "):
        connect(TakeSmallest()).sql(QUERY, rules={"take_largest": False})


# --- Policies of connectors -------------------------------------------------------------------------------------------


ID = Column(("id",), type=pa.int64())


@dataclass
class Protected(Numbers):
    """Only root sees the number 1, and doubled numbers."""

    def additional_filter(self, handle: Any, principal: str | None) -> Expr | None:
        if principal == "unknown":
            raise tamis.TamisError("cannot look up 'unknown'")
        return None if principal == "root" else Call(">", (ID, Literal(1, pa.int64())))

    def masks(self, handle: Any, principal: str | None) -> dict[str, Expr]:
        return {} if principal == "root" else {"doubled": Call("-", (Literal(0, pa.int64()), ID))}


def test_A3_a_row_filter_and_masks_of_a_connector_apply_before_the_query() -> None:
    session = tamis.connect().attach("n", Protected(own_rules=[TakeSmallest()]))
    assert session.as_principal("root").sql(QUERY).to_arrow().to_pydict() == {"id": [1, 2], "doubled": [2, 4]}
    for other in (session, session.as_principal("ana")):
        assert other.sql(QUERY).to_arrow().to_pydict() == {"id": [2, 3], "doubled": [-2, -3]}
        assert other.sql("SELECT id FROM n.all WHERE doubled > 0").to_arrow().num_rows == 0
        assert other.sql("SELECT count(*) AS n, min(id) AS m FROM n.all").to_arrow().to_pylist() == [{"n": 2, "m": 2}]


def test_A6_a_connector_that_cannot_return_its_policy_denies() -> None:
    session = tamis.connect().attach("n", Protected()).as_principal("unknown")
    with pytest.raises(AccessDenied, match="could not return its policy"):
        session.sql(QUERY).to_arrow()


def test_policies_of_a_session_apply_in_addition_to_those_of_a_connector() -> None:
    policy = {"tables": {"n.all": [{"principals": ["ana", "root"], "rows": "id < 3"}]}}
    session = tamis.connect(policies=policy).attach("n", Protected())
    found = {name: session.as_principal(name).sql(QUERY).to_arrow()["id"].to_pylist() for name in ("root", "ana")}
    assert found == {"root": [1, 2], "ana": [2]}

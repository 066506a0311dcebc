"""Plans of queries: supported SQL, and what is pushed below unsupported SQL."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tamis
from tamis.query.plan.explain import plan_to_dict
from tamis.query.plan.nodes import Filter, Join, Node, Project, Sql, TableScan, get_outputs, walk_plan
from tamis.query.query import get_compiled_query

ORDERS = pa.table({"id": [1], "customer": [1], "amount": [1.0], "day": ["a"], "note": ["n"]})
CUSTOMERS = pa.table({"id": [1], "name": ["x"], "region": ["eu"]})


@pytest.fixture(scope="module")
def session() -> tamis.Session:
    made = tamis.connect()
    made.register("orders", ORDERS)
    made.register("customers", CUSTOMERS)
    return made


def make_plan(session: tamis.Session, query: str) -> Node:
    found: Node = get_compiled_query(session.sql(query)).plan
    return found


def list_kinds(node: Node) -> list[str]:
    return [type(each).__name__ for each in walk_plan(node)]


@pytest.mark.parametrize(
    ("query", "nodes"),
    [
        ("SELECT * FROM orders", "TableScan"),
        ("SELECT id FROM orders WHERE amount > 1", "Project Filter TableScan"),
        ("SELECT customer, sum(amount) FROM orders GROUP BY customer", "Aggregate TableScan"),
        ("SELECT count(*) AS n FROM orders HAVING n > 1", "Filter Aggregate TableScan"),
        ("SELECT id FROM orders ORDER BY amount LIMIT 3", "Project TopN TableScan"),
        ("SELECT id FROM orders ORDER BY amount LIMIT 3 OFFSET 1", "Project Limit Sort TableScan"),
        ("SELECT DISTINCT id FROM orders LIMIT 3", "Limit Aggregate Project TableScan"),
        ("SELECT o.id FROM orders o JOIN customers c ON o.customer = c.id", "Project Join TableScan TableScan"),
        ("SELECT id FROM orders UNION ALL SELECT id FROM customers", "Union Project TableScan Project TableScan"),
        ("SELECT id FROM orders WHERE id IN (SELECT id FROM customers)", "Project Join TableScan Project TableScan"),
        (
            "SELECT id FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id AND o.id > 3)",
            "Project Join TableScan Filter TableScan",
        ),
        (
            "SELECT id FROM orders WHERE amount > (SELECT avg(amount) FROM orders)",
            "Project Filter Join TableScan Aggregate TableScan",
        ),
    ],
)
def test_plan_nodes_of_supported_queries(session: tamis.Session, query: str, nodes: str) -> None:
    assert " ".join(list_kinds(make_plan(session, query))) == nodes


def test_column_ids_are_unique_in_a_plan(session: tamis.Session) -> None:
    found = make_plan(
        session, "SELECT a.id, b.id FROM orders a JOIN orders b ON a.id = b.customer JOIN customers c ON a.id = c.id"
    )
    names = [output.name for node in walk_plan(found) if isinstance(node, TableScan) for output in get_outputs(node)]
    assert len(names) == len({name.casefold() for name in names}) == 13


def test_a_join_condition_is_split_into_equal_pairs_and_a_filter(session: tamis.Session) -> None:
    found = make_plan(
        session, "SELECT 1 AS one FROM orders o LEFT JOIN customers c ON c.id = o.customer AND o.amount > 5"
    )
    (join,) = (node for node in walk_plan(found) if isinstance(node, Join))
    assert join.kind == "left"
    assert [(one.name, other.name) for one, other in join.criteria] == [("orders.customer", "customers.id")]
    assert join.filter is not None


def list_inputs(node: Node) -> list[Node]:
    assert isinstance(node, Sql), node
    return [source for _, source in node.inputs]


def test_conditions_and_columns_are_pushed_below_unsupported_sql(session: tamis.Session) -> None:
    query = """
        SELECT o.id, o.amount FROM orders o JOIN customers c ON o.customer = c.id
        WHERE o.day = 'a' AND c.region = 'eu' AND o.id + c.id > 5 AND rand() < 2 AND o.id NOT IN (SELECT 1)"""
    below = list_inputs(make_plan(session, query))[1:]
    assert [list_kinds(each) for each in below] == [["Project", "Filter", "TableScan"]] * 2
    assert [[output.name.split(".")[1] for output in get_outputs(each)] for each in below] == [
        ["id", "customer", "amount", "day"],
        ["id", "region"],
    ]
    conditions = [str(node.predicate) for each in below for node in walk_plan(each) if isinstance(node, Filter)]
    assert ["day" in conditions[0], "region" in conditions[1]] == [True, True]


@pytest.mark.parametrize(
    ("join", "filtered"),
    [
        ("JOIN", ["orders", "customers"]),
        ("LEFT JOIN", ["orders"]),
        ("RIGHT JOIN", ["customers"]),
        ("FULL JOIN", []),
    ],
)
def test_conditions_are_not_pushed_to_the_null_extended_side_of_an_outer_join(
    session: tamis.Session, join: str, filtered: list[str]
) -> None:
    query = f"""
        SELECT o.id FROM orders o {join} customers c ON o.customer = c.id
        WHERE o.day IS NULL AND c.region IS NULL AND o.id NOT IN (SELECT 1)"""
    below = list_inputs(make_plan(session, query))
    found = [node for each in below for node in walk_plan(each) if isinstance(node, Filter)]
    assert sorted(str(node.predicate).split("`")[1].split(".")[0] for node in found) == sorted(filtered)


def test_failing_or_nondeterministic_conditions_are_not_pushed_below_unsupported_sql(session: tamis.Session) -> None:
    query = "SELECT id FROM orders WHERE CAST(note AS INT) > 3 AND rand() < 0.5 AND id NOT IN (SELECT 1)"
    assert [kind for each in list_inputs(make_plan(session, query)) for kind in list_kinds(each)] == [
        "Sql",
        "Project",
        "TableScan",
    ]


def test_subqueries_of_unsupported_sql_are_planned_separately(session: tamis.Session) -> None:
    query = """
        SELECT id FROM orders WHERE customer NOT IN (SELECT id FROM customers WHERE region = 'eu') AND day = 'a'"""
    below = list_inputs(make_plan(session, query))
    assert sorted(" ".join(list_kinds(each)) for each in below) == ["Project Filter TableScan"] * 2


def test_a_correlated_subquery_stays_in_its_outer_query(session: tamis.Session) -> None:
    query = "SELECT c.id, (SELECT sum(amount) FROM orders o WHERE o.customer = c.id AND o.day = 'a') FROM customers c"
    below = list_inputs(make_plan(session, query))
    assert sorted(" ".join(list_kinds(each)) for each in below) == ["Project Filter TableScan", "Project TableScan"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT o.id, rank() OVER (ORDER BY c.name) AS r FROM orders o JOIN customers c ON o.customer = c.id "
        "WHERE o.day = 'a' ORDER BY r",
        "SELECT c.name, count(*) FROM orders o, customers c WHERE o.customer = c.id GROUP BY ROLLUP (c.name)",
        "SELECT ntile(2) OVER (ORDER BY o.id) FROM orders o JOIN customers c ON o.customer = c.id "
        "WHERE o.day = 'a' AND c.id > 3",
    ],
)
def test_from_and_where_below_unsupported_clauses_are_planned(session: tamis.Session, query: str) -> None:
    (below,) = list_inputs(make_plan(session, query))
    assert list_kinds(below) == ["Project", "Filter", "Join", "TableScan", "TableScan"]


def test_a_star_reads_all_columns_and_a_count_none(session: tamis.Session) -> None:
    everything = list_inputs(make_plan(session, "SELECT *, rank() OVER (ORDER BY id) FROM orders"))
    assert len(get_outputs(everything[0])) == len(ORDERS.column_names)
    counted = list_inputs(make_plan(session, "SELECT count(*) OVER (PARTITION BY day) FROM orders"))
    assert [output.name for output in get_outputs(counted[0])] == ["orders.day"]


def test_order_by_an_alias_sorts_by_its_value(session: tamis.Session) -> None:
    found = get_compiled_query(session.sql("SELECT -id AS id FROM orders ORDER BY id")).plan
    assert isinstance(found, Project)
    assert "-" in plan_to_dict(found.source, {})["what"]

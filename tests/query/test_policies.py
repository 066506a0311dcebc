"""Row filters and masks from files, Python and functions: which rows and values each principal sees."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.query.protected import EU, POLICIES, ROWS, open_session, write_orders
from tamis import col
from tamis.errors import AccessDenied, InvalidArgument, TableError
from tamis.query.policies import load_policies
from tamis.session import Session

YAML = """
groups:
  europe: [ana, eva]
tables:
  orders:
    - principals: [admin]
      rows: "TRUE"
    - principals: ["@europe"]
      rows: region = 'eu'
      masks:
        card: concat('****', right(card, 4))
        salary: "NULL"
    - principals: [ben]
      rows: owner = current_user()
    - principals: [mask]
      masks: {y: "-1"}
"""


def write_yaml(folder: Path) -> object:
    (folder / "policies.yaml").write_text(YAML)
    return folder / "policies.yaml"


def write_json(folder: Path) -> object:
    (folder / "policies.json").write_text(json.dumps(POLICIES))
    return str(folder / "policies.json")


def make_policies(folder: Path) -> object:
    rules = [dict(rule) for rule in POLICIES["tables"]["orders"]]
    rules[1] |= {"rows": col("region") == "eu"}
    return {**POLICIES, "tables": {"orders": rules}}


def make_policy_function(folder: Path) -> object:
    def find_policy(table: str, principal: str | None) -> Any:
        if table != "orders" or principal not in ("ana", "eva"):
            return None
        masks = {"card": "concat('****', right(card, 4))", "salary": "NULL"}
        return {"rows": "region = 'eu'", "masks": masks}

    return find_policy


@pytest.fixture(scope="module", params=["hive", "delta", "iceberg"])
def protected(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Session:
    return open_session(tmp_path_factory.mktemp(request.param), request.param)


def read_ids(connection: Session, query: str) -> list[int]:
    return sorted(connection.sql(query).to_arrow().column(0).to_pylist())


@pytest.mark.parametrize(
    "source", [write_yaml, write_json, make_policies, make_policy_function], ids=lambda each: each.__name__
)
def test_policies_come_from_files_from_python_and_from_functions(
    tmp_path: Path, source: Callable[[Path], object]
) -> None:
    ana = open_session(tmp_path, "hive", source(tmp_path)).as_principal("ana")
    found = ana.sql("SELECT id, card, salary FROM orders ORDER BY id").to_arrow()
    assert found["id"].to_pylist() == EU
    assert found["card"].to_pylist() == [f"****{number:04}" for number in EU]
    assert found["salary"].to_pylist() == [None] * 6
    assert found.schema.field("salary").type == pa.float64()
    with pytest.raises(AccessDenied):
        open_session(tmp_path / "x", "hive", source(tmp_path)).as_principal("zoe").sql(
            "SELECT 1 FROM orders"
        ).to_arrow()


def test_the_first_rule_for_a_principal_applies(protected: Session) -> None:
    assert read_ids(protected.as_principal("ana"), "SELECT id FROM orders") == EU
    assert read_ids(protected.as_principal("eva"), "SELECT id FROM orders") == EU
    assert read_ids(protected.as_principal("admin"), "SELECT id FROM orders") == list(range(12))
    assert read_ids(protected.as_principal("ben"), "SELECT id FROM orders") == [1, 3, 5, 7, 9, 11]
    assert protected.as_principal("mask").sql("SELECT min(y), max(y) FROM orders").to_arrow().to_pylist() == [
        {"min(y)": -1, "max(y)": -1}
    ]


@pytest.mark.parametrize("who", [None, "zoe", "@europe", "*", "ANA", "ana ", "admin'--"])
def test_A6_a_principal_without_a_rule_sees_nothing(protected: Session, who: str | None) -> None:
    connection = protected if who is None else protected.as_principal(who)
    with pytest.raises(AccessDenied):
        connection.sql("SELECT count(*) FROM orders").to_arrow()
    with pytest.raises(AccessDenied):
        connection.explain("SELECT count(*) FROM orders")


def test_A6_a_table_without_policies_is_denied_by_default(tmp_path: Path) -> None:
    rows = pa.table({"a": [1]})
    denying = open_session(tmp_path)
    denying.register("others", rows)
    with pytest.raises(AccessDenied, match="others"):
        denying.as_principal("ana").sql("SELECT * FROM others").to_arrow()
    allowing = open_session(tmp_path / "again", policies={**POLICIES, "default": "allow"})
    allowing.register("others", rows)
    assert allowing.as_principal("ana").sql("SELECT * FROM others").to_arrow() == rows


def _fail(table: str, principal: str | None) -> object:
    raise KeyError("a secret: 20")


@pytest.mark.parametrize(
    "policy",
    [
        _fail,
        lambda table, principal: None,
        lambda table, principal: {},
        lambda table, principal: True,
        lambda table, principal: {"rows": None},
        lambda table, principal: {"rows": "no_such_column = 20"},
        lambda table, principal: {"rows": "card"},
        lambda table, principal: {"rows": "y ="},
        lambda table, principal: {"rows": "rand() < 0.5"},
        lambda table, principal: {"masks": {"no_such_column": "1"}},
        lambda table, principal: {"masks": {"y": "'a text'"}},
        lambda table, principal: {"masks": {"y": None}},
        lambda table, principal: {"rows": "TRUE", "mask": {"y": "1"}},
    ],
)
def test_A6_an_invalid_policy_denies_and_the_reason_is_not_reported(tmp_path: Path, policy: Any) -> None:
    connection = open_session(tmp_path, policies=policy).as_principal("ana")
    with pytest.raises(AccessDenied) as caught:
        connection.sql("SELECT id FROM orders").to_arrow()
    assert "20" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("rows", ["NULL", "region = NULL", "FALSE", "y > NULL AND TRUE"])
def test_A6_a_row_filter_that_is_null_lets_no_row_through(tmp_path: Path, rows: str) -> None:
    connection = open_session(tmp_path, policies=lambda table, principal: {"rows": rows}).as_principal("ana")
    assert read_ids(connection, "SELECT id FROM orders") == []
    assert connection.sql("SELECT count(*) FROM orders").to_arrow().column(0).to_pylist() == [0]


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ({}, "tables is missing"),
        ({"tables": {"orders": [{"rows": "TRUE"}]}}, "no principals"),
        ({"tables": {"orders": [{"principals": ["ana"]}]}}, "is empty: for all rows"),
        ({"tables": {"orders": [{"principals": ["@nobody"], "rows": "TRUE"}]}}, "no group 'nobody'. Groups: none"),
        ({"tables": {"orders": [{"principals": ["a*"], "rows": "TRUE"}]}}, "'a\\*' is not a name"),
        ({"tables": {"orders": [{"principals": ["ana"], "rows": "a = "}]}}, r"tables.orders\[0\].rows"),
        ({"tables": {"orders": [{"principals": ["ana"], "row": "a = 1"}]}}, "unknown key 'row'"),
        ({"tables": {"orders": "ana"}}, "list of rules"),
        ({"tables": {}, "default": "permit"}, "allow or deny"),
        (5, "a path, a mapping or a function"),
    ],
)
def test_policies_that_cannot_be_read_are_refused_when_the_session_is_made(policies: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        tamis.connect(policies=policies)


@pytest.mark.parametrize(
    "text", ["tables: {a: 1, a: 2}", "tables: {1: []}", "tables: [", "- 1", "!!python/object:os.system {}"]
)
def test_a_file_that_is_invalid_missing_or_repeats_a_key_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(InvalidArgument, match=r"p\.yaml"):
        tamis.connect(policies=tmp_path / "p.yaml")
    with pytest.raises(InvalidArgument, match="cannot be read"):
        tamis.connect(policies=tmp_path / "absent.yaml")
    (tmp_path / "p.yaml").write_text(
        "tables:\n  a: [{principals: ana, rows: FALSE}]\n  a: [{principals: ana, rows: TRUE}]\n"
    )
    with pytest.raises(InvalidArgument, match=r"the key 'a' is repeated \(line 2\)"):
        tamis.connect(policies=tmp_path / "p.yaml")
    (tmp_path / "p.json").write_text('{"tables": {}, "tables": {}}')
    with pytest.raises(InvalidArgument, match="the key 'tables' is repeated"):
        tamis.connect(policies=tmp_path / "p.json")


def test_every_name_of_a_table_leads_to_its_policy(tmp_path: Path) -> None:
    path = write_orders(tmp_path, "hive")
    policies = {
        "default": "allow",
        "tables": {
            str(path): [{"principals": ["ana"], "rows": "region = 'eu'"}],
            "Others": [{"principals": ["ana"], "rows": "id > 2"}],
        },
    }
    connection = tamis.connect(policies=policies)
    connection.register("renamed", tamis.open(path))
    ana = connection.as_principal("ana")
    assert read_ids(ana, "SELECT id FROM renamed") == EU
    # The policies of both names apply, regardless of the name in the query.
    connection.register("others", tamis.open(path))
    assert read_ids(ana, "SELECT id FROM others") == [4, 6, 8, 10]
    assert read_ids(ana, "SELECT id FROM RENAMED") == [4, 6, 8, 10]
    (tmp_path / "link").symlink_to(path)
    assert read_ids(
        connection.as_principal("ana").register("linked", tamis.open(tmp_path / "link")), "SELECT id FROM linked"
    ) == [4, 6, 8, 10]
    # A partition is under the policy of its table. Here it lacks the column of the row filter, so it is denied.
    connection.register("part", tamis.open(path / "region=us"))
    with pytest.raises(AccessDenied):
        ana.sql("SELECT * FROM part").to_arrow()


@pytest.mark.parametrize(
    "entry",
    [
        "./lake/orders",
        "lake/../lake/orders/",
        "lake//orders",
        "file:{}",
        "file://{}",
        "FILE://{}/",
        "link/orders",
        "*/lake/*",
    ],
)
def test_every_spelling_of_a_path_finds_its_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "lake" / "orders"
    path.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), path / "0.parquet")
    (tmp_path / "link").symlink_to("lake")
    rule = {"principals": ["ana"], "rows": "id > 1"}
    ana = tamis.connect(policies={"default": "allow", "tables": {entry.format(path): [rule]}}).as_principal("ana")
    for given in ("lake/orders", path, path.as_uri(), "link/orders"):
        assert ana.open(given).scan().count() == 1, given
    assert read_ids(ana.register("renamed", "lake/orders"), "SELECT id FROM renamed") == [2]


def test_spellings_of_a_location_in_an_object_store_are_equal() -> None:
    found = load_policies({"tables": {"s3a://lake/orders/": [{"principals": ["ana"], "rows": "id > 1"}]}})
    assert found is not None
    assert found.find_policy(["s3://lake/orders"], "ana") is not None
    with pytest.raises(AccessDenied):
        found.find_policy(["s3://lake/orders2"], "ana")


def test_A3_masks_see_raw_values_whatever_their_order_and_so_do_row_filters(tmp_path: Path) -> None:
    masks = {"y": "id", "id": "y + 100", "region": "'hidden'"}
    for order in (masks, dict(reversed(masks.items()))):
        policy = {"rows": "region = 'eu' AND y < 13", "masks": order}
        connection = open_session(tmp_path / str(len(str(order))) / next(iter(order)), policies=lambda *_, p=policy: p)
        found = connection.as_principal("ana").sql("SELECT id, y, region FROM orders ORDER BY id").to_arrow()
        assert found.to_pydict() == {"id": [110, 111, 112], "y": [0, 2, 4], "region": ["hidden"] * 3}


@pytest.mark.parametrize("masks", [{"A.b": "0", 'c"`d': "'?'"}, {"`a.b`": "0", '`c"``d`': "'?'"}])
def test_H8_a_column_with_dots_or_quotes_in_its_name_is_masked(masks: dict[str, str]) -> None:
    rows = pa.table({"a.b": [1, 2], 'c"`d': ["x", "y"], "a": [{"b": 3}, {"b": 4}]})
    policies = {"tables": {"t": [{"principals": ["ana"], "rows": "`a.b` > 1", "masks": masks}]}}
    ana = tamis.connect(policies=policies).register("t", rows).as_principal("ana")
    assert ana.sql("SELECT * FROM t").to_arrow().to_pylist() == [{"a.b": 0, 'c"`d': "?", "a": {"b": 4}}]


def test_two_spellings_of_a_column_are_two_masks_of_it() -> None:
    policies = {"tables": {"t": [{"principals": ["ana"], "masks": {"y": "0", "`Y`": "y"}}]}}
    ana = tamis.connect(policies=policies).register("t", pa.table({"y": [1]})).as_principal("ana")
    with pytest.raises(AccessDenied, match="one column twice"):
        ana.sql("SELECT y FROM t")


def test_A3_fields_of_a_masked_struct_are_masked(tmp_path: Path) -> None:
    people = pa.table({"id": [1, 2], "place": [{"city": "a", "street": "x"}, {"city": "b", "street": "y"}]})
    connection = tamis.connect(policies=lambda *_: {"masks": {"place": "NULL"}})
    connection.register("people", people)
    ana = connection.as_principal("ana")
    query = "SELECT id, place.city AS city, place FROM people WHERE place.street = 'x' OR id = 2"
    assert ana.sql(query).to_arrow().to_pylist() == [{"id": 2, "city": None, "place": None}]
    field = tamis.connect(policies=lambda *_: {"masks": {"place.city": "'-'"}})
    field.register("people", people)
    with pytest.raises(AccessDenied, match="whole"):
        field.as_principal("ana").sql("SELECT * FROM people").to_arrow()


def test_A7_sessions_of_two_principals_share_tables_and_nothing_else(protected: Session) -> None:
    ana, ben = protected.as_principal("ana"), protected.as_principal("ben")
    query = "SELECT id FROM orders WHERE y >= 0"
    assert [read_ids(each, query) for each in (ana, ben, ana, ben)] == [EU, [1, 3, 5, 7, 9, 11]] * 2
    assert (ana.principal, ben.principal, protected.principal) == ("ana", "ben", None)


def test_a_policy_function_is_called_for_every_query(tmp_path: Path) -> None:
    allowed = {"ana"}
    connection = open_session(tmp_path, policies=lambda table, who: {"rows": "TRUE"} if who in allowed else None)
    ana = connection.as_principal("ana")
    assert len(read_ids(ana, "SELECT id FROM orders")) == 12
    allowed.clear()
    with pytest.raises(AccessDenied):
        ana.sql("SELECT id FROM orders").to_arrow()


def test_two_masks_of_one_column_deny() -> None:
    rule = {"principals": ["ana"], "masks": {"y": "1"}}
    found = load_policies({"tables": {"orders": [rule], "ord*": [{**rule, "masks": {"Y": "2"}}]}})
    assert found is not None
    with pytest.raises(AccessDenied, match="two policies"):
        found.find_policy(["orders"], "ana")


def test_rows_and_masks_apply_in_every_part_of_a_query(protected: Session) -> None:
    ana = protected.as_principal("ana")
    join = "SELECT a.id FROM orders a JOIN orders b ON a.id = b.id"
    union = "SELECT id FROM orders UNION SELECT id FROM orders"
    window = "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM orders) WHERE n > 0"
    nested = "WITH o AS (SELECT * FROM orders) SELECT id FROM o WHERE id IN (SELECT id FROM orders)"
    correlated = "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM orders p WHERE p.id = o.id)"
    for query in (join, union, window, nested, correlated):
        assert read_ids(ana, query) == EU, query
    assert ROWS["card"][0].as_py() not in str(ana.sql("SELECT * FROM orders").to_arrow().to_pydict())


def make_shop(folder: Path, kind: str) -> Any:
    """Return a function that opens a database with orders of two regions."""
    if kind == "memory":
        connection = duckdb.connect()
        connection.execute("CREATE TABLE orders AS SELECT * FROM (VALUES (1, 'eu'), (2, 'us')) AS t(id, region)")
        return connection.cursor
    path = folder / f"shop.{kind}"
    with contextlib.closing(sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(str(path))) as shop:
        shop.execute("CREATE TABLE orders (id INTEGER, region TEXT)")
        shop.execute("INSERT INTO orders VALUES (1, 'eu'), (2, 'us')")
        if kind == "sqlite":
            shop.commit()
    (folder / f"link.{kind}").symlink_to(path)
    paths = iter((path, folder / f"link.{kind}"))
    return lambda: next(paths)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "memory"])
def test_policies_of_a_table_follow_its_database_to_another_name(tmp_path: Path, kind: str) -> None:
    shop = make_shop(tmp_path, kind)
    policies = {"default": "allow", "tables": {"shop.orders": [{"principals": ["ana"], "rows": "region = 'eu'"}]}}
    connection = tamis.connect(policies=policies)
    connection.attach("second", shop()).attach("shop", shop())
    ana = connection.as_principal("ana")
    for name in ("shop.orders", "second.orders", "second.main.orders", "SECOND.Orders"):
        assert read_ids(ana, f"SELECT id FROM {name}") == [1], name
    with pytest.raises(AccessDenied):
        connection.as_principal("ben").sql("SELECT id FROM second.orders")


def test_policies_of_a_table_do_not_follow_to_another_database(tmp_path: Path) -> None:
    policies = {"default": "allow", "tables": {"shop.orders": [{"principals": ["ana"], "rows": "region = 'eu'"}]}}
    ana = tamis.connect(policies=policies).as_principal("ana")
    (tmp_path / "other").mkdir()
    ana.attach("shop", make_shop(tmp_path, "sqlite")()).attach("second", make_shop(tmp_path / "other", "sqlite")())
    assert read_ids(ana, "SELECT id FROM shop.orders") == [1]
    assert read_ids(ana, "SELECT id FROM second.orders") == [1, 2]


def test_a_policy_function_is_called_for_every_name_of_a_database(tmp_path: Path) -> None:
    shop = make_shop(tmp_path, "sqlite")
    policies = {"shop.orders": {"rows": "region = 'eu'"}, "second.orders": {"rows": "TRUE"}}
    connection = tamis.connect(policies=lambda table, principal: policies.get(table))
    ana = connection.attach("shop", shop()).attach("second", shop()).as_principal("ana")
    assert read_ids(ana, "SELECT id FROM second.orders") == [1]
    policies["shop.orders"] = {"rows": "TRUE", "masks": {"region": "'?'"}}
    policies["second.orders"] = {"rows": "id = 2", "masks": {"Region": "'?'"}}
    assert ana.sql("SELECT * FROM shop.orders").to_arrow().to_pylist() == [{"id": 2, "region": "?"}]
    del policies["second.orders"]
    assert read_ids(ana, "SELECT id FROM shop.orders") == [1, 2]
    # The name in the query has no policy, so it is denied, even if another name has one.
    with pytest.raises(AccessDenied):
        ana.sql("SELECT id FROM second.orders")


def test_a_database_that_is_unreachable_is_named_if_policies_need_it(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as made:
        made.execute("CREATE TABLE orders AS SELECT 1 AS x")
        made.commit()
    other = duckdb.connect()
    connection = tamis.connect(
        policies={"default": "allow", "tables": {"a.orders": [{"principals": ["*"], "rows": "x < 5"}]}}
    )
    connection.attach("a", f"sqlite:///{tmp_path}/a.db")
    connection.attach("b", other)
    assert read_ids(connection.as_principal("ana"), "SELECT x FROM a.orders") == [1]
    other.close()
    with pytest.raises(TableError, match=r"^cannot identify the database 'b', .* leave it out"):
        connection.as_principal("ana").sql("SELECT x FROM a.orders").to_arrow()

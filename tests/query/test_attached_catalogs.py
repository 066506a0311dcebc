"""Iceberg catalogs under a name of a session."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import tamis
from tamis.errors import AccessDenied, InvalidArgument, TableError, TableNotFound, TamisError


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    found = SqlCatalog("prod", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse"))
    for namespace in ("shop", "shop.eu"):
        found.create_namespace(namespace)
        table = found.create_table(f"{namespace}.orders", pa.schema([("id", pa.int64()), ("region", pa.string())]))
        table.append(pa.table({"id": [1, 2], "region": ["eu", "us"]}))
    return found


def read_ids(session: tamis.Session, query: str) -> list[int]:
    return sorted(session.sql(query).to_arrow()[0].to_pylist())


@pytest.mark.parametrize("form", ["object", "properties"])
def test_tables_by_their_names(catalog: SqlCatalog, form: str) -> None:
    session = tamis.connect()
    if form == "object":
        session.attach("prod", catalog)
    else:
        session.attach("prod", catalog={"type": "sql", "name": "prod", "uri": catalog.properties["uri"]})
    assert session.tables == ["prod.shop.eu.orders", "prod.shop.orders"]
    assert read_ids(session, "SELECT id FROM prod.shop.orders WHERE region = 'eu'") == [1]
    assert read_ids(session, "SELECT prod.shop.orders.id FROM PROD.shop.orders") == [1, 2]
    assert read_ids(session, "SELECT prod.shop.eu.orders.id FROM prod.shop.eu.orders") == [1, 2]
    assert read_ids(session, "SELECT max(prod.shop.eu.orders.id) OVER () FROM prod.shop.eu.orders LIMIT 1") == [2]
    assert read_ids(session, "SELECT a.id FROM prod.shop.orders a JOIN prod.shop.eu.orders b ON a.id = b.id") == [1, 2]


def test_each_query_sees_the_newest_snapshot_and_others_by_tag_or_number(catalog: SqlCatalog) -> None:
    table = catalog.load_table("shop.orders")
    first = table.current_snapshot()
    assert first is not None
    table.manage_snapshots().create_tag(first.snapshot_id, "first").commit()
    session = tamis.connect().attach("prod", catalog)
    earlier = session.sql("SELECT id FROM prod.shop.orders")
    table.append(pa.table({"id": [3], "region": ["eu"]}))
    assert read_ids(session, "SELECT id FROM prod.shop.orders") == [1, 2, 3]
    assert sorted(earlier.to_arrow()["id"].to_pylist()) == [1, 2]
    assert read_ids(session, "SELECT id FROM prod.shop.orders VERSION AS OF 'first'") == [1, 2]
    assert read_ids(session, f"SELECT id FROM prod.shop.orders VERSION AS OF {first.snapshot_id}") == [1, 2]


@pytest.mark.parametrize(
    ("query", "kind", "message"),
    [
        ("SELECT * FROM prod.shop.ordres", TableNotFound, "Did you mean 'shop.orders'"),
        ("SELECT * FROM prod.orders", InvalidArgument, "write prod.namespace.orders"),
        ("SELECT * FROM prod", TableNotFound, "prod.shop.orders"),
        ("SELECT * FROM prd.shop.orders", TableNotFound, "Did you mean 'prod.shop.orders'"),
        ("SELECT * FROM a.b.c.d.e", TableNotFound, "no table 'a.b.c.d.e'"),
    ],
)
def test_mistakes(catalog: SqlCatalog, query: str, kind: type[TamisError], message: str) -> None:
    session = tamis.connect().attach("prod", catalog)
    with pytest.raises(kind, match=message):
        session.sql(query)


def test_what_cannot_be_attached(catalog: SqlCatalog, tmp_path: Path) -> None:
    session = tamis.connect().attach("prod", catalog)
    with pytest.raises(InvalidArgument, match="the name 'PROD' is already in use"):
        session.attach("PROD", catalog)
    with pytest.raises(InvalidArgument, match="the name 'delta' is already in use"):
        session.attach("delta", catalog)
    with pytest.raises(InvalidArgument, match="attach a database by its URI"):
        session.attach("other")
    with pytest.raises(InvalidArgument, match=r"Session.attach\(\) has no argument .read_only"):
        session.attach("other", catalog=catalog, read_only=True)
    with pytest.raises(InvalidArgument, match="database file not found"):
        session.attach("other", catalog={"type": "sql", "uri": f"sqlite:///{tmp_path}/nothing.db"})
    assert session.detach("Prod").tables == []
    with pytest.raises(InvalidArgument, match="nothing is attached as 'prod'"):
        session.detach("prod")


def test_another_catalog_under_the_same_name(catalog: SqlCatalog, tmp_path: Path) -> None:
    other = SqlCatalog("other", uri=f"sqlite:///{tmp_path}/other.db", warehouse=str(tmp_path / "elsewhere"))
    other.create_namespace("shop")
    other.create_table("shop.orders", pa.schema([("id", pa.int64())])).append(pa.table({"id": [70]}))
    session = tamis.connect().attach("prod", catalog)
    assert read_ids(session, "SELECT id FROM prod.shop.orders") == [1, 2]
    session.detach("prod").attach("prod", other)
    assert read_ids(session, "SELECT id FROM prod.shop.orders") == [70]


@pytest.mark.parametrize("name", ["prod.shop.orders", "shop.orders", "Here.Shop.Orders", "orders"])
def test_policies_apply_to_every_name_of_a_catalog_that_is_attached_twice(catalog: SqlCatalog, name: str) -> None:
    policies = {"default": "allow", "tables": {name: [{"principals": ["ana"], "rows": "region = 'eu'"}]}}
    session = tamis.connect(policies=policies).attach("here", catalog).attach("there", catalog)
    ana = session.as_principal("ana")
    for attached in ("here", "there"):
        assert read_ids(ana, f"SELECT id FROM {attached}.shop.orders") == [1]
    with pytest.raises(AccessDenied):
        session.as_principal("ben").sql("SELECT id FROM there.shop.orders")


def test_a_policy_of_a_registered_table_follows_it_into_the_catalog(catalog: SqlCatalog) -> None:
    policies = {"default": "allow", "tables": {"mine": [{"principals": ["ana"], "rows": "region = 'eu'"}]}}
    session = tamis.connect(policies=policies).attach("prod", catalog)
    session.register("mine", tamis.open("shop.orders", catalog=catalog))
    assert read_ids(session.as_principal("ana"), "SELECT id FROM prod.shop.orders") == [1]


def test_a_damaged_file_is_not_reported_under_policies(catalog: SqlCatalog, tmp_path: Path) -> None:
    (metadata,) = (tmp_path / "warehouse" / "shop" / "orders" / "metadata").glob("00001-*.metadata.json")
    session = tamis.connect(policies={"default": "allow", "tables": {}}).attach("prod", catalog)
    metadata.write_text("{")
    with pytest.raises(TableError) as raised:
        session.sql("SELECT id FROM prod.shop.orders")
    assert str(tmp_path) not in str(raised.value)

"""Iceberg tables opened by catalog: the same tables as by folder, and Tamis errors for all failures."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.sql import SqlCatalog

import tamis
from builders.iceberg.edits import add_column, edit_metadata
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field, list_of
from tamis.errors import InvalidArgument, MissingDependency, StorageError, TableNotFound, TamisError, UnsupportedFeature
from tamis.formats.iceberg.catalogs import select_storage_properties


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    made = SqlCatalog("here", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    made.create_namespace("ns")
    return made


def register_table(catalog: Catalog, folder: Path, **options: Any) -> IcebergFolder:
    table = IcebergFolder(folder, [field(1, "id", "long")], **options)
    table.commit(table.data_file("1.parquet", pa.table({"id": [1]})))
    catalog.register_table("ns.t", str(table.save()))
    return table


def add_default(kind: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(metadata: dict[str, Any]) -> None:
        one = field(2, "x", kind, **{"initial-default": value, "write-default": value})
        metadata["schemas"][-1]["fields"].append(one)
        metadata["last-column-id"] = 9

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (add_default(list_of(3, "int"), [1, 2]), [1, 2]),
        (add_default([field(3, "p", "int", **{"initial-default": 5})], {}), {"p": 5}),
        (add_default("timestamp_ns", "2017-11-16T22:31:08.123456789"), None),
    ],
    ids=["list", "struct", "timestamp_ns"],
)
def test_I5_tables_with_defaults_that_pyiceberg_rejects_open_by_catalog(
    tmp_path: Path, catalog: SqlCatalog, change: Callable[[dict[str, Any]], None], expected: Any
) -> None:
    register_table(catalog, tmp_path / "t", version=3)
    edit_metadata(tmp_path / "t", change)
    opened = tamis.open("ns.t", catalog=catalog)
    rows = opened.scan().to_arrow()
    assert rows.equals(tamis.open(tmp_path / "t").scan().to_arrow())
    assert expected is None or rows["x"].to_pylist() == [expected]
    assert opened.name == "t"
    assert opened.refresh().version == opened.version


def test_I9_a_table_whose_metadata_lists_manifests_opens_by_its_catalog(tmp_path: Path, catalog: SqlCatalog) -> None:
    table = register_table(catalog, tmp_path / "t", version=1)
    table.manifests_in_metadata = True
    table.commit(table.data_file("2.parquet", pa.table({"id": [2]})))
    # The catalog names the third.
    table.save("v3.metadata.json")
    assert sorted(tamis.open("ns.t", catalog=catalog).scan().to_arrow()["id"].to_pylist()) == [1, 2]


def test_types_that_pyiceberg_rejects_do_not_prevent_opening(tmp_path: Path, catalog: SqlCatalog) -> None:
    register_table(catalog, tmp_path / "t", version=3)
    add_column(tmp_path / "t", 2, "v", "variant")
    assert tamis.open("ns.t", catalog=catalog).scan(columns=["id"]).to_arrow()["id"].to_pylist() == [1]


class _Failing(InMemoryCatalog):
    def __init__(self, error: Exception) -> None:
        super().__init__("failing")
        self._error = error

    def load_table(self, identifier: Any) -> Any:
        raise self._error


def test_a_catalog_that_cannot_return_the_metadata_location_alone(tmp_path: Path) -> None:
    class Elsewhere(Catalog):  # type: ignore[misc]
        """Not a database."""

        def load_table(self, identifier: Any) -> Any:
            raise TypeError("Cannot deserialize bytes")

    Elsewhere.__abstractmethods__ = frozenset()
    with pytest.raises(
        UnsupportedFeature, match=r"Cannot deserialize bytes\. Open the table by its folder or its meta"
    ):
        tamis.open("ns.t", catalog=Elsewhere("elsewhere"))


def test_errors_of_catalog_libraries_become_tamis_errors() -> None:
    from pyiceberg.exceptions import DynamoDbError, NoSuchIdentifierError, NotInstalledError, ServerError
    from sqlalchemy.exc import OperationalError

    raised: list[tuple[Exception, type[TamisError]]] = [
        (OperationalError("SELECT", {}, Exception("gone")), StorageError),
        (DynamoDbError("no"), StorageError),
        (ServerError("no"), StorageError),
        (ConnectionError("no"), StorageError),
        (NotInstalledError("no boto3"), MissingDependency),
        (NoSuchIdentifierError("no"), TableNotFound),
    ]
    for error, expected in raised:
        with pytest.raises(expected, match=r"no|gone"):
            tamis.open("ns.t", catalog=_Failing(error))


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (
            {"type": "sql", "uri": "sqlite:////nowhere/at/all/x.db", "warehouse": "x"},
            "database file not found: '/nowhere/at",
        ),
        ({"type": "sql"}, "the property 'uri' is missing"),
        ({"type": "sql", "uri": "no url"}, "Could not parse"),
        ({"type": "sql", "uri": "nonsense://"}, "nonsense"),
        ({"type": "nonsense"}, "unknown type 'nonsense'. Types: .*glue, hive, .*rest, sql"),
        ({"uri": 5}, "URI"),
    ],
)
def test_a_catalog_that_cannot_be_opened(properties: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"the catalog cannot be opened: .*{message}"):
        tamis.open("ns.t", catalog=properties)


@pytest.mark.parametrize("name", ["t", "", "ns..t", ".t", "ns. "])
def test_invalid_table_identifiers(catalog: SqlCatalog, name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"for the catalog 'here': expected namespace\.table"):
        tamis.open(name, catalog=catalog)


def test_a_mistyped_database_is_not_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for uri in ("sqlite:///nope.db", f"sqlite:///{tmp_path}/nope.db", "sqlite:///file:nope.db?uri=true"):
        # This also holds for writers with the same properties.
        properties = {"name": "here", "type": "sql", "uri": uri, "init_catalog_tables": "true"}
        with pytest.raises(
            InvalidArgument, match=r"^the catalog 'here' cannot be opened: database file not found: '.*nope\.db'"
        ):
            tamis.open("ns.t", catalog=properties)
    assert not list(tmp_path.iterdir())


def test_no_catalog_is_created_in_a_database_without_one(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    path.touch()
    with pytest.raises(InvalidArgument, match="its database has no table 'iceberg_tables', so it"):
        tamis.open("ns.t", catalog={"uri": f"sqlite:///{path}"})
    assert path.stat().st_size == 0


def test_a_catalog_database_is_not_changed(tmp_path: Path, catalog: SqlCatalog) -> None:
    register_table(catalog, tmp_path / "t")
    path = tmp_path / "catalog.db"
    before = path.read_bytes()
    properties = {"name": "here", "type": "sql", "uri": f"sqlite:///{path}", "schema_version": "v1"}
    assert tamis.open("ns.t", catalog=properties).scan().count() == 1
    assert path.read_bytes() == before


def test_a_forgotten_catalog_name_is_suggested(tmp_path: Path, catalog: SqlCatalog) -> None:
    register_table(catalog, tmp_path / "t")
    with pytest.raises(
        TableNotFound,
        match=r"^no table 'ns\.t' in the catalog 'tamis', whose database has the catalogs here: ",
    ):
        tamis.open("ns.t", catalog={"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"})
    with pytest.raises(TableNotFound, match=r"^no table 'ns\.tt' in the catalog 'here'\. Did you mean 'ns\.t'\?$"):
        tamis.open("ns.tt", catalog=catalog)


def test_a_configured_catalog_by_its_name(tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    register_table(catalog, tmp_path / "t")
    with pytest.raises(InvalidArgument, match=r"^pyiceberg is not configured for the catalog 'nope': add it to \.py"):
        tamis.open("ns.t", catalog="nope")
    monkeypatch.setenv("PYICEBERG_CATALOG__HERE__URI", f"sqlite:///{tmp_path}/catalog.db")
    assert tamis.open("ns.t", catalog="here").scan().count() == 1
    monkeypatch.setenv("PYICEBERG_CATALOG__HERE__URI", f"sqlite:///{tmp_path}/catalgo.db")
    with pytest.raises(InvalidArgument, match=r"database file not found: '.*/catalgo\.db'"):
        tamis.open("ns.t", catalog="here")


def test_storage_properties_of_a_catalog() -> None:
    keys = {"client.access-key-id": "all", "client.secret-access-key": "all", "client.session-token": "all"}
    assert select_storage_properties(keys) == {name.replace("client.", "s3."): "all" for name in keys}
    own = {"s3.access-key-id": "files", "s3.secret-access-key": "files"}
    # A key of the files without a token has none.
    assert select_storage_properties({**keys, **own, "client.region": "r", "token": "t", "s3.signer": "x"}) == {
        "s3.region": "r",
        **own,
    }


def test_I10_a_moved_and_reregistered_table_is_read_at_its_new_location(tmp_path: Path, catalog: SqlCatalog) -> None:
    register_table(catalog, tmp_path / "old")
    shutil.move(tmp_path / "old", tmp_path / "new")
    catalog.drop_table("ns.t")
    (newest,) = sorted((tmp_path / "new" / "metadata").glob("*.metadata.json"))[-1:]
    catalog.register_table("ns.t", str(newest))
    opened = tamis.open("ns.t", catalog=catalog)
    assert opened.scan().to_arrow().to_pylist() == [{"id": 1}]
    assert opened.refresh().scan().count() == 1
    (level,) = [each for each in opened.scan().plan("files").report.levels if each.level == "manifests"]
    assert level.note == f"moved: the metadata records '{tmp_path}/old', files are read from '{tmp_path}/new'"
    assert tamis.iceberg.list_files("ns.t", catalog=catalog)["path"].to_pylist()[0].startswith(f"{tmp_path}/new/")
    with pytest.raises(UnsupportedFeature, match="was moved"):
        tamis.open("ns.t", catalog=catalog, relocate=False)
    with pytest.raises(UnsupportedFeature, match="was moved"):
        tamis.iceberg.list_files("ns.t", catalog=catalog, relocate=False)


def test_I10_metadata_apart_from_its_table_does_not_mean_that_it_was_moved(tmp_path: Path, catalog: SqlCatalog) -> None:
    table = register_table(catalog, tmp_path / "t")
    catalog.drop_table("ns.t")
    (tmp_path / "apart" / "metadata").mkdir(parents=True)
    apart = shutil.copy(table.save(), tmp_path / "apart" / "metadata")
    catalog.register_table("ns.t", str(apart))
    opened = tamis.open("ns.t", catalog=catalog, relocate=False)
    assert opened.uri == str(tmp_path / "t")
    assert opened.scan().to_arrow().to_pylist() == [{"id": 1}]


@pytest.mark.parametrize("name", ["ns.t", "NS.T", "here.ns.t", "t", "*.t"])
def test_policies_find_a_table_by_its_name_in_the_catalog(tmp_path: Path, catalog: SqlCatalog, name: str) -> None:
    register_table(catalog, tmp_path / "some folder")
    policies = {"default": "allow", "tables": {name: [{"principals": ["ana"], "rows": "id > 1"}]}}
    connection = tamis.connect(policies=policies).as_principal("ana")
    assert connection.open("ns.t", catalog=catalog).scan().count() == 0
    connection.register("renamed", tamis.open("ns.t", catalog=catalog).refresh())
    assert connection.sql("SELECT id FROM renamed").to_arrow().num_rows == 0


def test_the_error_for_a_table_name_suggests_a_catalog(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound, match="or catalog= for a table in a catalog"):
        tamis.open(tmp_path / "ns.t")
    with pytest.raises(TableNotFound, match=r"or a Parquet file$"):
        tamis.open(tmp_path / "part-0.parquet")

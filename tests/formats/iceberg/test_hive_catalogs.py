"""Iceberg tables in a Hive metastore, which stores the location of a table's metadata."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

pytest.importorskip("thrift", reason="Hive's metastore is asked by Thrift: pip install 'pyiceberg[hive]'")
from pyiceberg.catalog import load_catalog

import tamis
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from builders.servers.hive_metastore import Metastore
from tamis.cli.application import program
from tamis.errors import StorageError, TableNotFound, TamisError


@pytest.fixture
def metastore() -> Iterator[Metastore]:
    with Metastore() as made:
        yield made


def write_table(folder: Path) -> IcebergFolder:
    table = IcebergFolder(folder, [field(1, "id", "long")])
    table.commit(table.data_file("1.parquet", pa.table({"id": [1, 2, 3]})))
    return table


def make_properties(metastore: Metastore) -> dict[str, str]:
    return {"name": "hms", "type": "hive", "uri": metastore.uri}


def test_a_table_opens_by_properties_and_by_the_catalog_and_follows_its_commits(
    tmp_path: Path, metastore: Metastore
) -> None:
    table = write_table(tmp_path / "t")
    metastore.add("shop", "orders", metadata_location=str(table.save()))
    for by in (make_properties(metastore), load_catalog(**make_properties(metastore))):
        opened = tamis.open("shop.orders", catalog=by)
        assert opened.scan("id > 1").to_arrow()["id"].to_pylist() == [2, 3]
    table.commit(table.data_file("2.parquet", pa.table({"id": [4]})))
    metastore.add("shop", "orders", metadata_location=str(table.save()))
    assert (opened.scan().count(), opened.refresh().scan().count()) == (3, 4)
    options = [part for name, value in make_properties(metastore).items() for part in ("--catalog", f"{name}={value}")]
    assert CliRunner().invoke(program, ["count", "shop.orders", *options]).output == "4\n"


def test_missing_and_foreign_tables_are_errors(tmp_path: Path, metastore: Metastore) -> None:
    metastore.add("shop", "orders", metadata_location=str(write_table(tmp_path / "t").save()))
    metastore.add("shop", "plain", table_type="EXTERNAL_TABLE")
    metastore.add("shop", "broken")
    metastore.add("shop", "moved", metadata_location=str(tmp_path / "gone" / "v1.metadata.json"))
    with pytest.raises(TableNotFound, match=r"^no table 'shop\.order' in the catalog 'hms'\. Did you mean 'shop\."):
        tamis.open("shop.order", catalog=make_properties(metastore))
    for name, said in (("plain", "EXTERNAL_TABLE"), ("broken", "metadata_location"), ("moved", "gone")):
        with pytest.raises(TamisError, match=said) as found:
            tamis.open(f"shop.{name}", catalog=make_properties(metastore))
        assert "\n" not in str(found.value)


def test_an_unreachable_metastore() -> None:
    with Metastore() as metastore:
        properties = make_properties(metastore)
    with pytest.raises(StorageError, match=r"the catalog 'hms'.*127\.0\.0\.1"):
        tamis.open("ns.t", catalog=properties)

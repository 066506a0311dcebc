"""Iceberg tables in REST and Glue catalogs: server responses are respected, and failures are one-line errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog

import tamis
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from builders.servers.iceberg_rest import RestServer
from tamis.cli.application import program
from tamis.errors import InvalidArgument, MissingDependency, StorageError, TableNotFound, UnsupportedFeature


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RestServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with RestServer() as made:
        yield made


def write_table(folder: Path, location: str | None = None, **options: Any) -> IcebergFolder:
    table = IcebergFolder(folder, [field(1, "id", "long")], location=location, **options)
    table.commit(table.data_file("1.parquet", pa.table({"id": [1, 2, 3]})))
    return table


def make_properties(server: RestServer, **more: str) -> dict[str, str]:
    return {"name": "lake", "type": "rest", "uri": server.uri, **more}


def test_a_table_opens_by_the_properties_of_its_catalog_and_by_the_catalog_itself(
    tmp_path: Path, server: RestServer
) -> None:
    server.token = "t0ken"
    table = write_table(tmp_path / "t")
    server.add("shop.eu.orders", table.save())
    properties = make_properties(server, token="t0ken")
    opened = tamis.open("shop.eu.orders", catalog=properties)
    assert (opened.name, opened.format) == ("orders", "iceberg")
    assert opened.scan("id > 1").to_arrow()["id"].to_pylist() == [2, 3]
    catalog = load_catalog(**properties)
    assert tamis.open("shop.eu.orders", catalog=catalog).version == opened.version
    # Later commits are visible after opening again.
    table.commit(table.data_file("2.parquet", pa.table({"id": [4]})))
    server.add("shop.eu.orders", table.save())
    assert opened.scan().count() == 3
    assert opened.refresh().scan().count() == 4


def test_the_command_line_takes_properties(tmp_path: Path, server: RestServer) -> None:
    server.add("ns.t", write_table(tmp_path / "t").save())
    options = [part for name, value in make_properties(server).items() for part in ("--catalog", f"{name}={value}")]
    assert CliRunner().invoke(program, ["count", "ns.t", *options]).output == "3\n"


def test_the_configuration_of_a_server_is_used(tmp_path: Path, server: RestServer) -> None:
    server.config = {"defaults": {"prefix": "lake one"}, "overrides": {}}
    server.add("ns.t", write_table(tmp_path / "t").save())
    assert tamis.open("ns.t", catalog=make_properties(server)).scan().count() == 3
    assert server.seen[-1].path == "/v1/lake one/namespaces/ns/tables/t"


@pytest.mark.parametrize("vended", ["config", "storage-credentials"])
def test_files_are_read_with_the_keys_that_the_catalog_hands_out(
    tmp_path: Path, server: RestServer, vended: str
) -> None:
    metadata = write_table(tmp_path / "t", "s3://lake/t").save()
    server.buckets["lake"] = tmp_path
    keys = {"s3.access-key-id": "VENDED", "s3.secret-access-key": "secret", "s3.session-token": "for an hour"}
    answer: Any = keys if vended == "config" else [{"prefix": "s3://lake/", "config": keys}]
    location = f"s3://lake/t/metadata/{metadata.name}"
    server.add("ns.t", metadata, location, **{vended: answer})
    # The catalog's own keys are not for the files, but the region is.
    own = {"client.access-key-id": "MINE", "client.session-token": "mine", "client.region": "eu-west-3"}
    opened = tamis.open("ns.t", catalog=make_properties(server, **own, **{"s3.endpoint": server.uri}))
    assert opened.scan("id = 2").to_arrow()["id"].to_pylist() == [2]
    reads = [each.headers for each in server.seen if each.path.startswith("/lake/t/")]
    signed = {each["authorization"].split("Credential=")[1].split("/20")[0] for each in reads}
    assert signed == {"VENDED"}
    assert {each["x-amz-security-token"] for each in reads} == {"for an hour"}
    assert all("/eu-west-3/s3/" in each["authorization"] for each in reads)
    # Given options take precedence.
    mine = {"s3.endpoint": server.uri, "AWS_ACCESS_KEY_ID": "GIVEN", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "r"}
    assert tamis.open("ns.t", catalog=make_properties(server), storage_options=mine).scan().count() == 3
    assert "Credential=GIVEN/" in server.seen[-1].headers["authorization"]


def test_a_catalog_without_a_metadata_location(tmp_path: Path, server: RestServer) -> None:
    metadata = write_table(tmp_path / "t").save()
    server.add("ns.t", metadata)
    del server.tables["ns.t"]["metadata-location"]
    metadata.unlink()
    assert tamis.open("ns.t", catalog=make_properties(server)).scan("id < 3").count() == 2


def test_a_missing_table(tmp_path: Path, server: RestServer) -> None:
    server.add("ns.t", write_table(tmp_path / "t").save())
    with pytest.raises(TableNotFound, match=r"^no table 'ns\.tt' in the catalog 'lake'\. Did you mean 'ns\.t'\?$"):
        tamis.open("ns.tt", catalog=make_properties(server))
    with pytest.raises(TableNotFound, match=r"^no table 'other\.t' in the catalog 'lake': NoSuchTableEx"):
        tamis.open("other.t", catalog=make_properties(server))


def test_denied_access_is_an_error(tmp_path: Path, server: RestServer) -> None:
    server.token = "t0ken"
    server.add("ns.t", write_table(tmp_path / "t").save())
    with pytest.raises(
        StorageError, match=r"^the catalog 'lake' denies access: NotAuth.*: the token is not known\. Set 'token'"
    ) as found:
        tamis.open("ns.t", catalog=make_properties(server, token="another"))
    assert "another" not in str(found.value)
    server.failing["/t"] = (403, '{"error": {"message": "not yours", "type": "ForbiddenException", "code": 403}}')
    with pytest.raises(StorageError, match=r"^the catalog denies access to 'ns\.t' of the.* 'lake': Forb.*yours"):
        tamis.open("ns.t", catalog=make_properties(server, token="t0ken"))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (500, '{"error": {"message": "out of\\norder", "type": "InternalServerError", "code": 500}}'),
        (503, ""),
        (501, ""),
        (429, "slow down"),
        (502, "<html>\n" + "bad gateway " * 10_000),
    ],
)
def test_a_server_that_fails_is_one_line_that_names_the_catalog(
    tmp_path: Path, server: RestServer, status: int, text: str
) -> None:
    server.add("ns.t", write_table(tmp_path / "t").save())
    server.failing["/t"] = (status, text)
    with pytest.raises(StorageError, match=r"^'ns\.t' of the catalog 'lake' cannot be loaded: ") as found:
        tamis.open("ns.t", catalog=make_properties(server))
    server.failing["/config"] = server.failing.pop("/t")
    with pytest.raises(StorageError, match=r"^the catalog 'lake' cannot be opened: ") as at_once:
        tamis.open("ns.t", catalog=make_properties(server))
    for message in (str(found.value), str(at_once.value)):
        assert "\n" not in message
        assert len(message) < 500


def test_invalid_responses(tmp_path: Path, server: RestServer) -> None:
    server.add("ns.t", write_table(tmp_path / "t").save())
    server.failing["/t"] = (200, "<html>hello</html>")
    with pytest.raises(UnsupportedFeature, match=r"^pyiceberg cannot read the metadata of 'ns\.t' of the.* 'lake'"):
        tamis.open("ns.t", catalog=make_properties(server))
    server.failing = {"/config": (200, "<html>hello</html>")}
    with pytest.raises(InvalidArgument, match=r"^the catalog 'lake' cannot be opened: "):
        tamis.open("ns.t", catalog=make_properties(server))


def test_an_unreachable_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with RestServer() as server:
        properties = make_properties(server)
    with pytest.raises(StorageError, match=r"^the catalog 'lake' cannot be opened: .*127\.0\.0\.1.*refused$") as found:
        tamis.open("ns.t", catalog=properties)
    assert "Max retries" not in str(found.value)


def test_a_table_opens_by_a_Glue_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moto = pytest.importorskip("moto", reason="the Glue of tests comes with tamis[test]")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    metadata = write_table(tmp_path / "t").save()
    properties = {"name": "aws", "type": "glue", "glue.region": "us-east-1"}
    with moto.mock_aws():
        catalog = load_catalog(**properties)
        catalog.create_namespace("ns")
        catalog.register_table("ns.t", str(metadata))
        for by in (properties, catalog):
            assert tamis.open("ns.t", catalog=by).scan("id > 1").count() == 2
        with pytest.raises(TableNotFound, match=r"^no table 'ns\.tt' in the catalog 'aws'\. Did you mean 'ns\.t'\?$"):
            tamis.open("ns.tt", catalog=properties)


@pytest.mark.parametrize("kind", ["hive", "glue"])
def test_a_catalog_whose_library_is_not_installed(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    # An entry of None is a module that cannot be imported.
    monkeypatch.setitem(sys.modules, f"pyiceberg.catalog.{kind}", None)
    message = rf"^the catalog cannot be opened: .* support not installed: pip install 'pyiceberg\[{kind}\]'$"
    with pytest.raises(MissingDependency, match=message):
        tamis.open("ns.t", catalog={"type": kind, "uri": "thrift://127.0.0.1:9083"})


# --- What a catalog demands of readers --------------------------------------------------------------------------------

FILTER = {"type": "eq", "term": "id", "value": 1}
MASKS = [{"field-id": 2, "action": {"type": "mask-alphanum"}}]


@pytest.mark.parametrize(
    "restrictions",
    [
        {"required-row-filter": FILTER},
        {"required-column-projections": MASKS},
        {"required-row-filter": FILTER, "required-column-projections": []},
        {"required-row-filter": True},
        {"something-newer": {"a": [0]}},
        ["of another shape"],
    ],
)
def test_I15_read_restrictions_are_rejected_by_name_and_never_ignored(
    tmp_path: Path, server: RestServer, restrictions: Any
) -> None:
    table = write_table(tmp_path / "t")
    server.add("ns.t", table.save(), **{"read-restrictions": restrictions})
    catalog = make_properties(server)
    for ask in (
        lambda: tamis.open("ns.t", catalog=catalog),
        lambda: tamis.iceberg.list_files("ns.t", catalog=catalog),
        lambda: tamis.iceberg.snapshot_info("ns.t", catalog=catalog),
    ):
        with pytest.raises(UnsupportedFeature, match=r"demands read-restrictions.*'ns\.t'"):
            ask()


@pytest.mark.parametrize("restrictions", [None, {}, {"required-column-projections": [], "required-row-filter": None}])
def test_I15_empty_restrictions_are_accepted(tmp_path: Path, server: RestServer, restrictions: Any) -> None:
    table = write_table(tmp_path / "t")
    server.add("ns.t", table.save(), **{"read-restrictions": restrictions})
    opened = tamis.open("ns.t", catalog=make_properties(server))
    assert opened.scan().count() == opened.scan().to_arrow().num_rows > 0


def test_I15_restrictions_that_come_later_are_seen_by_refresh(tmp_path: Path, server: RestServer) -> None:
    table = write_table(tmp_path / "t")
    server.add("ns.t", table.save())
    opened = tamis.open("ns.t", catalog=make_properties(server))
    server.tables["ns.t"]["read-restrictions"] = {"required-row-filter": FILTER}
    with pytest.raises(UnsupportedFeature, match="demands read-restrictions"):
        opened.refresh()


@pytest.mark.parametrize("where", ["table", "overrides", "defaults"])
@pytest.mark.parametrize("mode", ["server", "SERVER", "something-newer"])
def test_I15_server_side_planning_is_rejected_by_name(
    tmp_path: Path, server: RestServer, where: str, mode: str
) -> None:
    table = write_table(tmp_path / "t")
    asked = {"scan-planning-mode": mode}
    server.add("ns.t", table.save(), **({"config": asked} if where == "table" else {}))
    if where != "table":
        server.config = {"defaults": {}, "overrides": {}} | {where: asked}
    with pytest.raises(UnsupportedFeature, match=rf"server-side scan planning for 'ns\.t'.*scan-planning-mode: {mode}"):
        tamis.open("ns.t", catalog=make_properties(server))


def test_I15_client_side_planning_is_accepted(tmp_path: Path, server: RestServer) -> None:
    table = write_table(tmp_path / "t")
    server.config = {"defaults": {"scan-planning-mode": "server"}, "overrides": {}}
    server.add("ns.t", table.save(), config={"scan-planning-mode": "client"})
    server.add("ns.u", table.save())
    assert tamis.open("ns.t", catalog=make_properties(server)).scan().count() > 0
    own = make_properties(server, **{"scan-planning-mode": "client"})
    assert tamis.open("ns.u", catalog=own).scan().count() > 0

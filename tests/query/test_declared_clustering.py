"""The clustering that a table declares: shown, and never taken for the order of rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

import tamis
from builders.delta.log import DeltaLog, add
from builders.pyiceberg.tables import make_catalog, make_name
from tamis.formats.delta.table import DeltaTable
from tamis.formats.source import HasClustering


def clustering(*columns: list[str], removed: bool = False) -> dict[str, Any]:
    configuration = json.dumps({"clusteringColumns": list(columns), "domainName": "delta.clustering"})
    return {"domainMetadata": {"domain": "delta.clustering", "configuration": configuration, "removed": removed}}


OTHER = {"domainMetadata": {"domain": "delta.rowTracking", "configuration": "{}", "removed": False}}


def find_clustering(folder: Path) -> tuple[tuple[str, ...], ...]:
    source = tamis.open(folder)._source
    assert isinstance(source, HasClustering)
    return source.clustering_columns


def test_the_clustering_columns_of_a_delta_table(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "day": "date"})
    log.commit(OTHER, clustering(["day"], ["id"]))
    assert find_clustering(tmp_path) == (("day",), ("id",))
    table = tamis.open(tmp_path)
    log.commit(add("a.parquet"), clustering(["id"]))
    assert find_clustering(tmp_path) == (("id",),)
    assert isinstance(table._source, DeltaTable)
    assert table._source.refresh().clustering_columns == (("id",),)
    log.commit(clustering(["id"], removed=True))
    assert find_clustering(tmp_path) == ()


@pytest.mark.parametrize("form", [{}, {"parts": 2}, {"sidecars": 1}, {"sidecars": 1, "top": "json"}], ids=str)
def test_the_clustering_columns_come_from_checkpoints(tmp_path: Path, form: dict[str, Any]) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "day": "date"}, features=["v2Checkpoint"])
    log.commit(OTHER, clustering(["day"]), add("a.parquet"))
    log.checkpoint(**form)
    log.path(0).unlink()
    log.commit(add("b.parquet"))
    assert find_clustering(tmp_path) == (("day",),)


def test_the_clustering_columns_have_logical_names(tmp_path: Path) -> None:
    def field(name: str, kind: Any, physical: str, number: int) -> dict[str, Any]:
        mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
        return {"name": name, "type": kind, "nullable": True, "metadata": mapping}

    inner = {"type": "struct", "fields": [field("x", "long", "col-2", 2)]}
    log = DeltaLog(
        tmp_path,
        [field("s", inner, "col-1", 1), field("id", "long", "col-3", 3)],
        configuration={"delta.columnMapping.mode": "name"},
        features=["columnMapping"],
    )
    log.commit(clustering(["col-1", "col-2"], ["col-9"], ["col-3"]))
    assert find_clustering(tmp_path) == (("s", "x"), ("id",))


@pytest.mark.parametrize("configuration", ["{", "[]", '{"clusteringColumns": 3}', '{"clusteringColumns": [3]}', None])
def test_a_clustering_that_cannot_be_read_is_ignored(tmp_path: Path, configuration: str | None) -> None:
    DeltaLog(tmp_path).commit({"domainMetadata": {"domain": "delta.clustering", "configuration": configuration}})
    assert find_clustering(tmp_path) == ()


def make_iceberg(folder: Path, *fields: SortField) -> Any:
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "at", TimestampType()), NestedField(3, "s", StringType())
    )
    return make_catalog().create_table(make_name(), schema, location=str(folder), sort_order=SortOrder(*fields))


def test_the_sort_order_of_an_iceberg_table(tmp_path: Path) -> None:
    make_iceberg(
        tmp_path,
        SortField(2, transform=DayTransform()),
        SortField(3, transform=IdentityTransform(), direction=SortDirection.DESC),
        SortField(1, transform=BucketTransform(8)),
    )
    assert find_clustering(tmp_path) == (("at",), ("s",))
    make_iceberg(tmp_path / "unsorted")
    assert find_clustering(tmp_path / "unsorted") == ()


def test_a_declared_order_that_files_do_not_have_changes_no_result(tmp_path: Path) -> None:
    table = make_iceberg(tmp_path, SortField(1, transform=IdentityTransform()))
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us")), ("s", pa.string())])
    for start in (50, 0, 100, 40):
        ids = [start + number * 7 % 30 for number in range(30)]
        table.append(pa.table({"id": ids, "at": pa.nulls(30, pa.timestamp("us")), "s": ["x"] * 30}, schema=schema))
    session = tamis.connect()
    session.register("t", session.open(tmp_path))
    query = "SELECT id FROM t ORDER BY id"
    assert "clustered by id" in session.explain(query)
    found = session.sql(query).to_arrow()["id"].to_pylist()
    assert len(found) == 120
    assert found == sorted(found)
    assert session.sql("SELECT id FROM t").to_arrow().num_rows == 120


def test_A5_the_clustering_of_a_table_under_a_policy_is_not_shown(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"id": [1, 2]}))
    commit = tmp_path / "t" / "_delta_log" / f"{1:020}.json"
    commit.write_text(json.dumps(clustering(["id"])))
    policy = {"tables": {"t": [{"principals": ["ana"], "rows": "id > 1"}]}}
    session = tamis.connect(policies=policy).as_principal("ana")
    session.register("t", session.open(tmp_path / "t"))
    query = "SELECT * FROM t"
    assert "clustered by" not in session.explain(query)
    plain = tamis.connect()
    plain.register("t", plain.open(tmp_path / "t"))
    assert "clustered by id" in plain.explain(query)

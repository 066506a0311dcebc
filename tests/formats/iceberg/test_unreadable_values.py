"""Extreme partition values: most are supported, and few are out of range of their type."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tamis
import tamis.iceberg
from builders.engines.worker_engine import InProcessEngine
from builders.iceberg.deletes import equality_deletes
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from tamis import PartitionFilter
from tamis.errors import CorruptFile
from tamis.formats.jobs import Planning
from tamis.formats.open_source import open_source


def write_two_files(folder: Path, kind: str, data_type: pa.DataType, values: tuple[int, int]) -> IcebergFolder:
    fields = [field(1, "id", "long"), field(2, "p", kind)]
    table = IcebergFolder(folder, fields, specs=[[(2, "identity", "p")]], version=3)
    for number, value in enumerate(values):
        own = pa.array([value], pa.int32() if data_type.bit_width == 32 else pa.int64()).view(data_type)
        rows = pa.table({"id": pa.array([number]), "p": own})
        table.commit(table.data_file(f"{number}.parquet", rows, partition=(value,), metrics={}))
    return table


@pytest.mark.parametrize(
    ("kind", "data_type", "value", "where"),
    [
        ("date", pa.date32(), 2_932_897, "p > DATE '9999-12-31'"),
        ("date", pa.date32(), 2**31 - 1, "p > DATE '9999-12-31'"),
        ("timestamp", pa.timestamp("us"), 2**63 - 1, "p > TIMESTAMP_NTZ '9999-12-31 00:00:00'"),
        ("timestamptz", pa.timestamp("us", "UTC"), 2**62, "p > TIMESTAMP '9999-12-31 00:00:00'"),
    ],
)
def test_years_beyond_9999_are_supported(
    tmp_path: Path, kind: str, data_type: pa.DataType, value: int, where: str
) -> None:
    write_two_files(tmp_path, kind, data_type, (value, 1000))
    table = tamis.open(tmp_path)
    assert table.scan(where).to_arrow()["id"].to_pylist() == [0]
    assert table.scan(where).count() == table.scan(where).plan("files").num_files == 1
    assert table.scan().to_arrow().num_rows == tamis.iceberg.list_files(tmp_path).num_rows == 2


def check(table: tamis.Table, literal: str) -> None:
    session = tamis.connect().register("t", table)
    assert sorted(table.scan(None, ["id"]).to_arrow()["id"].to_pylist()) == [0, 1]
    assert table.scan("id = 0", ["id"]).to_arrow().num_rows == table.scan("id = 0").count() == 1
    assert table.scan().count() == table.files().num_rows == 2
    assert session.sql("SELECT count(*) c, max(id) m FROM t").to_arrow().to_pylist() == [{"c": 2, "m": 1}]
    for ask in (
        lambda: table.scan().to_arrow(),
        lambda: table.scan(None, ["p"]).to_arrow(),
        lambda: table.scan("p IS NOT NULL", ["id"]).to_arrow(),
        lambda: table.scan("p IS NOT NULL").count(),
        lambda: table.scan(f"p > {literal}").count(),
        lambda: table.scan(f"p < {literal}", ["id"]).to_arrow(),
        lambda: table.scan(PartitionFilter.is_null("p"), ["id"]).to_arrow(),
        lambda: session.sql("SELECT max(p) FROM t").to_arrow(),
        lambda: session.sql("SELECT p, count(*) FROM t GROUP BY p").to_arrow(),
    ):
        with pytest.raises(CorruptFile, match="a partition value of column 'p' that is not a valid "):
            ask()


def open_everywhere(folder: Path) -> list[tamis.Table]:
    return [tamis.open(folder), tamis.Table(open_source(folder, planning=Planning(InProcessEngine(), "spark")))]


def test_I1_a_date_out_of_range_after_promotion_to_timestamp_loses_no_row(tmp_path: Path) -> None:
    table = write_two_files(tmp_path, "date", pa.date32(), (2**31 - 1, 1000))
    table.evolve([field(1, "id", "long"), field(2, "p", "timestamp")])
    for opened in open_everywhere(tmp_path):
        check(opened, "TIMESTAMP_NTZ '2000-01-01 00:00:00'")
    with pytest.raises(CorruptFile, match="a partition value of column 'p'"):
        tamis.iceberg.list_files(tmp_path, filter=PartitionFilter.is_null("p"))


def test_I1_a_missing_column_with_an_invalid_partition_value(tmp_path: Path) -> None:
    fields = [field(1, "id", "long"), field(2, "p", "date")]
    table = IcebergFolder(tmp_path, fields, specs=[[(2, "identity", "p")]], version=3)
    for number, value in enumerate((2**31 - 1, 1000)):
        rows = pa.table({"id": pa.array([number])})
        table.commit(table.data_file(f"{number}.parquet", rows, fields=fields[:1], partition=(value,), metrics={}))
    table.evolve([field(1, "id", "long"), field(2, "p", "timestamp")])
    for opened in open_everywhere(tmp_path):
        check(opened, "TIMESTAMP_NTZ '2000-01-01 00:00:00'")


def test_I3_invalid_partition_values_are_distinct_partitions(tmp_path: Path) -> None:
    table = write_two_files(tmp_path, "date", pa.date32(), (2**31 - 1, 1000))
    rows = pa.table({"id": pa.array([0, 1])})
    table.commit(equality_deletes(table, "d.parquet", rows, fields=table.fields[:1], partition=(None,)))
    table.commit(equality_deletes(table, "e.parquet", rows, fields=table.fields[:1], partition=(2**31 - 1,)))
    table.evolve([field(1, "id", "long"), field(2, "p", "timestamp")])
    assert tamis.open(tmp_path).scan(None, ["id"]).to_arrow()["id"].to_pylist() == [1]

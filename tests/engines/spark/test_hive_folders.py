"""Folders that Spark writes and reads, and folders of others that Tamis reads on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import tamis
from builders.hive.partition_kinds import KINDS, Kind

NOT_OF_SPARK = ("timestamp_ntz", "timestamp")
"""Spark writes times in the zone of its session, and infers them as such."""


def read_with_spark(spark: Any, root: Path, given: Kind) -> dict[int, object]:
    return given.by_id(spark.read.parquet(str(root)).toArrow())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in NOT_OF_SPARK])
@pytest.mark.one_in(3)
def test_H1_H3_H10_H11_folders_of_spark_are_read_as_spark_reads_them(spark: Any, tmp_path: Path, kind: str) -> None:
    given, root = KINDS[kind], tmp_path / "table"
    spark.createDataFrame(given.rows).coalesce(1).write.partitionBy("p").parquet(str(root))
    before = read_with_spark(spark, root, given)
    table = tamis.open(root)
    assert given.by_id(table.scan().to_arrow()) == before
    assert given.by_id(table.scan().to_spark(spark).toArrow()) == before
    # The empty text is NULL in a folder of Spark.
    assert before == {number: None if value == "" else value for number, value in given.by_id(given.rows).items()}
    tamis.index.build(root)
    assert read_with_spark(spark, root, given) == before


@pytest.mark.parametrize("kind", ["other scripts", "empty", "special"])
@pytest.mark.parametrize("reader", ["spark", "arrow"])
def test_H1_H9_folders_of_pyarrow_are_read_on_spark(spark: Any, tmp_path: Path, kind: str, reader: str) -> None:
    given, root = KINDS[kind], tmp_path / "table"
    partitioning = ds.partitioning(pa.schema([given.rows.schema.field("p")]), flavor="hive")
    ds.write_dataset(given.rows, root, format="parquet", partitioning=partitioning)
    table = tamis.open(root)
    assert given.by_id(table.scan().to_spark(spark, reader=reader).toArrow()) == given.by_id(given.rows)
    if "ñ" in given.values:
        assert table.scan("p = 'ñ'").to_spark(spark, reader=reader).count() == 1
        with table.files_dataframe(spark) as files:
            assert files.files_for_scan("p = 'ñ'").files.num_rows == 1


def test_X14_a_link_out_of_the_table_is_refused_on_spark(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "table"
    ds.write_dataset(pa.table({"id": [1]}), root, format="parquet")
    ds.write_dataset(pa.table({"id": [2]}), tmp_path / "secret", format="parquet")
    (root / "link.parquet").symlink_to(next((tmp_path / "secret").iterdir()))
    for reader in ("spark", "arrow"):
        with pytest.raises(tamis.TamisError, match="leads out of the table's folder"):
            tamis.open(root).scan().to_spark(spark, reader=reader)
        allowed = tamis.open(root, allow_outside=True).scan().to_spark(spark, reader=reader)
        assert sorted(row.id for row in allowed.collect()) == [1, 2]

"""Detection of tables that are clustered by a column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from builders.hive.tables import write_hive_table
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from tamis.expr.nodes import Column
from tamis.query.connectors.lake_connector import LakeConnector
from tamis.tuning import DEFAULT_TUNING, Tuning

SHUFFLED = np.random.default_rng(3).permutation(2000)

ANY_SIZE = Tuning(min_bytes_to_check_clustering=0)


def write_delta_table(folder: Path, parts: Sequence[pa.Table]) -> Path:
    log = DeltaLog(folder, {"key": "long"})
    log.commit(*(data_file(log, f"{number}.parquet", part) for number, part in enumerate(parts)))
    return folder


def is_clustered(path: Path, column: str, tuning: Tuning = ANY_SIZE) -> bool | None:
    lake = LakeConnector("lake")
    lake.add(("t",), tamis.open(path, tuning=tuning)._source)
    return lake.is_clustered(lake.table(("t",)), Column((column,), None))


def test_clustering_by_the_bounds_of_files(tmp_path: Path) -> None:
    parts = [pa.table({"key": range(number * 100, number * 100 + 100)}) for number in range(8)]
    assert is_clustered(write_delta_table(tmp_path / "sorted", parts), "key") is True
    parts = [pa.table({"key": part}) for part in np.split(SHUFFLED, 8)]
    assert is_clustered(write_delta_table(tmp_path / "shuffled", parts), "key") is False


def test_clustering_of_structs_is_unknown_and_they_join(tmp_path: Path) -> None:
    session = tamis.connect(tuning=ANY_SIZE)
    kind = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    for name, count in (("big", 2000), ("small", 20)):
        values = [{"x": n, "y": -n} for n in range(count)]
        pq.write_table(pa.table({"id": range(count), "s": pa.array(values, kind)}), tmp_path / f"{name}.parquet")
        session.register(name, tmp_path / f"{name}.parquet")
    assert is_clustered(tmp_path / "big.parquet", "s") is None
    query = "SELECT count(*) AS n FROM big JOIN small ON big.s = small.s WHERE small.id < 5"
    assert session.sql(query).to_arrow()["n"].to_pylist() == [5]


def test_clustering_by_partitions(tmp_path: Path) -> None:
    rows = pa.table({"key": SHUFFLED})
    path = write_hive_table(tmp_path / "t", [({"region": name}, rows) for name in ("eu", "us")])
    assert is_clustered(path, "region") is True
    assert is_clustered(path, "key") is False


@pytest.mark.parametrize(
    ("keys", "options", "expected"),
    [
        (np.arange(2000), {"row_group_size": 100}, True),
        (SHUFFLED, {"row_group_size": 100}, False),
        (np.arange(2000), {"write_page_index": True, "data_page_size": 64, "write_batch_size": 64,
                           "use_dictionary": False}, True),
        (SHUFFLED, {"write_page_index": True, "data_page_size": 64, "write_batch_size": 64, "use_dictionary": False},
         False),
        (SHUFFLED, {"row_group_size": 100, "bloom_filter_options": {"key": {"ndv": 100, "fpp": 0.01}}}, True),
        (np.arange(2000), {"write_statistics": False}, None),
    ],
    ids=["row groups", "shuffled row groups", "pages", "shuffled pages", "Bloom filters", "unknown"],
)  # fmt: skip
def test_clustering_inside_of_files(
    tmp_path: Path, keys: np.ndarray, options: dict[str, object], expected: bool | None
) -> None:
    pq.write_table(pa.table({"key": keys}), tmp_path / "t.parquet", **options)
    assert is_clustered(tmp_path / "t.parquet", "key") is expected


def test_clustering_of_files_without_statistics(tmp_path: Path) -> None:
    """A directory has no bounds in metadata; values may be shuffled inside of files with disjoint ranges."""
    parts = [pa.table({"key": number * 1000 + SHUFFLED[:500] % 1000}) for number in range(6)]
    path = write_hive_table(tmp_path / "apart", [({}, part) for part in parts], row_group_size=100)
    assert is_clustered(path, "key") is True
    parts = [pa.table({"key": part}) for part in np.split(SHUFFLED, 8)]
    path = write_hive_table(tmp_path / "mixed", [({}, part) for part in parts], row_group_size=100)
    assert is_clustered(path, "key") is False


def test_clustering_of_iceberg_files_and_partitions(tmp_path: Path) -> None:
    """A bucket has values from the whole range, but each value has one bucket. A renamed column is unknown."""
    fields = [
        field(1, "key", "long"),
        field(2, "bucketed", "long"),
        field(3, "within", "long"),
        field(4, "new", "long"),
    ]
    table = IcebergFolder(tmp_path, fields, specs=[[(2, "bucket[8]", "bucketed_bucket")]])
    before = [
        field(1, "key", "long"),
        field(2, "bucketed", "long"),
        field(3, "within", "long"),
        field(4, "old", "long"),
    ]
    parts = [
        pa.table({"key": part, "bucketed": part, "within": np.sort(part), "old": part})
        for part in np.split(SHUFFLED, 4)
    ]
    table.commit(
        *(
            table.data_file(
                f"{number}.parquet", part, fields=before, partition=(number,), options={"row_group_size": 50}
            )
            for number, part in enumerate(parts)
        )
    )
    found = {name: is_clustered(tmp_path, name) for name in ("key", "bucketed", "within", "new")}
    assert found == {"key": False, "bucketed": True, "within": True, "new": None}


def test_small_files_are_not_inspected(tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": np.arange(2000)}), tmp_path / "t.parquet", row_group_size=100)
    assert is_clustered(tmp_path / "t.parquet", "key", DEFAULT_TUNING) is False


def test_clustering_of_a_missing_file_is_unknown(tmp_path: Path) -> None:
    folder = write_delta_table(tmp_path, [pa.table({"key": part}) for part in np.split(SHUFFLED, 2)])
    for path in folder.glob("*.parquet"):
        path.unlink()
    assert is_clustered(folder, "key") is None


def test_unclustered_keys_do_not_prune(tmp_path: Path) -> None:
    facts = {
        "sorted": [pa.table({"key": range(number * 100, number * 100 + 100)}) for number in range(20)],
        "shuffled": [pa.table({"key": part}) for part in np.split(SHUFFLED, 20)],
    }
    session = tamis.connect(tuning=ANY_SIZE)
    for name, parts in facts.items():
        session.register(name, session.open(write_delta_table(tmp_path / name, parts)))
    pq.write_table(pa.table({"id": range(10), "name": [f"n{each}" for each in range(10)]}), tmp_path / "d.parquet")
    session.register("d", session.open(tmp_path / "d.parquet"))
    query = "SELECT count(*) FROM {} JOIN d ON key = id WHERE name IN ('n3', 'n4')"
    for name, prunes in {"sorted": True, "shuffled": False}.items():
        assert ("dynamic filter on the left side" in session.explain(query.format(name))) is prunes
        assert session.sql(query.format(name)).to_arrow()[0].to_pylist() == [2]


def test_keys_do_not_prune_a_small_table_beside_a_large_one(tmp_path: Path) -> None:
    """Keys of a second dimension prune the first dimension only, regardless of the number of facts."""
    session = tamis.connect(tuning=ANY_SIZE)
    facts = [pa.table({"key": range(number * 1000, number * 1000 + 1000)}) for number in range(4)]
    session.register("facts", session.open(write_delta_table(tmp_path / "facts", facts)))
    for name, count in {"middle": 12, "far": 4}.items():
        rows = pa.table({f"{name}_id": range(count), "place": [each % 4 for each in range(count)]})
        pq.write_table(rows, tmp_path / f"{name}.parquet", row_group_size=2)
        session.register(name, session.open(tmp_path / f"{name}.parquet"))
    query = """SELECT count(*) FROM facts JOIN middle ON key = middle_id JOIN far ON middle.place = far_id
               WHERE far.place = 3"""
    assert "dynamic filter" not in session.explain(query)
    assert session.sql(query).to_arrow()[0].to_pylist() == [3]

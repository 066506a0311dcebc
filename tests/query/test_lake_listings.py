"""Files are listed once for each filter; other versions and limits have separate listings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.delta.log import DeltaLog, remove
from builders.delta.tables import data_file
from builders.hive.tables import write_hive_table
from tamis import types
from tamis.expr.nodes import Call, Literal
from tamis.formats.delta.table import DeltaTable
from tamis.query.connectors.lake_connector import LakeConnector
from tamis.query.connectors.lake_handle import LakeHandle


def make_rows(first: int, count: int = 10) -> pa.Table:
    return pa.table({"id": range(first, first + count), "value": range(count)})


def write_delta_table(folder: Path, files: int) -> DeltaLog:
    log = DeltaLog(folder, {"id": "long", "value": "long"})
    log.commit(*(data_file(log, f"{number}.parquet", make_rows(10 * number)) for number in range(files)))
    return log


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The filters of the listings of Delta tables, in order."""
    found: list[str] = []

    def record_calls(method: Callable[..., object]) -> Callable[..., object]:
        def list_files(table: DeltaTable, predicate: object, *args: object, **options: object) -> object:
            found.append(f"{table.name}: {getattr(predicate, 'text', None)}")
            return method(table, predicate, *args, **options)

        return list_files

    for name in ("list_files", "list_files_with_statistics"):
        monkeypatch.setattr(DeltaTable, name, record_calls(getattr(DeltaTable, name)))
    return found


def test_files_of_a_join_with_a_dynamic_filter_are_listed_once_for_each_filter(
    tmp_path: Path, listed: list[str]
) -> None:
    write_delta_table(tmp_path / "facts", 20)
    write_delta_table(tmp_path / "names", 1)
    session = tamis.connect()
    for name in ("facts", "names"):
        session.register(name, tamis.open(tmp_path / name))
    query = "SELECT sum(facts.value) FROM facts JOIN names ON facts.id = names.id WHERE names.value = 7"
    assert "dynamic filter on the left side" in session.explain(query)
    assert session.sql(query).to_arrow()[0].to_pylist() == [7]
    assert sorted(listed) == ["facts: None", "facts: id = 7", "names: value = 7"]
    # A version does not change, so its listings stay valid.
    assert session.sql(query).to_arrow()[0].to_pylist() == [7]
    assert len(listed) == 3


def test_a_newer_version_under_the_same_name_is_listed_again(tmp_path: Path) -> None:
    log = write_delta_table(tmp_path, 2)
    session = tamis.connect()
    session.register("t", tamis.open(tmp_path))
    query = "SELECT count(id), sum(value) FROM t WHERE id >= 5"
    assert session.sql(query).to_arrow().to_pylist()[0]["count(id)"] == 15
    log.commit(remove("1.parquet"), data_file(log, "2.parquet", make_rows(100, 3)))
    session.register("t", tamis.open(tmp_path))
    assert session.sql(query).to_arrow().to_pylist()[0]["count(id)"] == 8


def test_a_reopened_directory_is_listed_again_while_an_older_query_still_runs(tmp_path: Path) -> None:
    path = write_hive_table(tmp_path / "t", [({"day": "1"}, make_rows(0))])
    session = tamis.connect()
    session.register("t", tamis.open(path))
    older = session.sql("SELECT id, value FROM t WHERE id >= 5")
    assert len(older.to_arrow()) == 5
    pq.write_table(make_rows(10, 4), path / "day=1" / "another.parquet")
    session.register("t", tamis.open(path))
    assert len(older.to_arrow()) == 5
    assert len(session.sql("SELECT id, value FROM t WHERE id >= 5").to_arrow()) == 9


def test_limits_and_pruning_predicates_have_separate_listings(tmp_path: Path) -> None:
    write_delta_table(tmp_path, 3)
    lake = LakeConnector("lake")
    lake.add(("t",), tamis.open(tmp_path)._source)
    handle = lake.table(("t",))
    assert isinstance(handle, LakeHandle)
    pushed = lake.push_pruning(handle, Call(">=", (handle.columns[0].column, Literal(20, types.LONG))))
    assert pushed is not None
    limited = lake.push_limit(handle, 4)
    assert limited is not None

    def count(given: object) -> int:
        return sum(batch.num_rows for batch in lake.read(given))

    assert [count(each) for each in (handle, pushed, limited.handle, handle)] == [30, 10, 4, 30]
    assert lake.properties(pushed).rows == 10
    assert not lake.properties(pushed).rows_are_exact

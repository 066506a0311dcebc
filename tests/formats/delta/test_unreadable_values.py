"""Partition values that the type of their column cannot represent: only queries that need the column are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
import tamis.delta
from builders.delta.log import Action, DeltaLog, remove
from builders.delta.statistics import field, mapping
from builders.delta.tables import data_file
from builders.engines.worker_engine import InProcessEngine
from tamis import PartitionFilter
from tamis.errors import CorruptFile
from tamis.formats.delta.planning.file_batches import FILE_BATCH_CACHE
from tamis.formats.jobs import Planning
from tamis.formats.open_source import open_source

KINDS = [
    ("date", "+999999999-01-01", "2024-03-01", "DATE '2024-03-01'"),
    ("timestamp", "+9999999-01-01 00:00:00", "2024-03-01 00:00:00", "TIMESTAMP '2024-03-01 00:00:00'"),
    ("timestamp_ntz", "+9999999-01-01 00:00:00", "2024-03-01 00:00:00", "TIMESTAMP_NTZ '2024-03-01 00:00:00'"),
    ("integer", "abc", "7", "7"),
    ("byte", "300", "7", "7"),
    ("decimal(5,2)", "1000", "7", "7"),
    ("boolean", "maybe", "true", "true"),
]


def make_two_files(log: DeltaLog, wrong: str, right: str) -> list[Action]:
    """Return the add actions of two files; the first has an invalid partition value."""
    return [
        data_file(
            log,
            f"{number}.parquet",
            pa.table({"id": pa.array([number, number + 10])}),
            {"p": text, "q": str(number)},
        )
        for number, text in enumerate([wrong, right])
    ]


def open_everywhere(folder: Path) -> list[tamis.Table]:
    """Open the table with local planning and with planning in workers."""
    FILE_BATCH_CACHE.clear()
    return [tamis.open(folder), tamis.Table(open_source(folder, planning=Planning(InProcessEngine(), "spark")))]


def check(table: tamis.Table, wrong: str, literal: str) -> None:
    session = tamis.connect().register("t", table)
    answers: list[tuple[Callable[[], Any], Any]] = [
        (lambda: sorted(table.scan(None, ["id"]).to_arrow()["id"].to_pylist()), [0, 1, 10, 11]),
        (lambda: table.scan().count(), 4),
        (lambda: table.scan("q = 0").count(), 2),
        (lambda: sorted(table.scan("q = 0", ["id", "q"]).to_arrow()["id"].to_pylist()), [0, 10]),
        (lambda: table.scan("id > 5", ["id"], levels=()).to_arrow().num_rows, 2),
        (lambda: table.scan("id > 5", ["id"]).count(), 2),
        (lambda: table.scan(None, ["id"], limit=1).to_arrow().num_rows, 1),
        # The file with the wrong value is not read.
        (lambda: table.scan("id = 11").to_arrow()["q"].to_pylist(), [1]),
        (lambda: table.scan("q = 1").to_arrow().num_rows, 2),
        (lambda: table.files().num_rows, 2),
        (lambda: session.sql("SELECT count(*) c, max(id) m FROM t").to_arrow().to_pylist(), [{"c": 4, "m": 11}]),
        (lambda: session.sql("SELECT q, sum(id) s FROM t GROUP BY q ORDER BY q").to_arrow()["s"].to_pylist(), [10, 12]),
        (lambda: session.sql("SELECT id FROM t WHERE q = 0 ORDER BY id").to_arrow()["id"].to_pylist(), [0, 10]),
        (lambda: session.sql("SELECT id FROM t ORDER BY id DESC LIMIT 1").to_arrow()["id"].to_pylist(), [11]),
        (lambda: table.scan(PartitionFilter.eq("p", wrong), ["id"]).to_arrow().num_rows, 2),
    ]
    for number, (ask, expected) in enumerate(answers):
        assert ask() == expected, number
    refused: list[Callable[[], Any]] = [
        lambda: table.scan().to_arrow(),
        lambda: list(table.scan(None, ["p"]).to_batches()),
        lambda: table.scan(f"p = {literal}", ["id"]).to_arrow(),
        lambda: table.scan(f"p = {literal}").count(),
        lambda: table.scan(f"id = 1 OR p = {literal}").count(),
        lambda: table.scan("p IS NULL").count(),
        lambda: table.scan("p IS NOT NULL", ["id"]).plan(),
        lambda: session.sql("SELECT * FROM t").to_arrow(),
        lambda: session.sql("SELECT count(p) FROM t").to_arrow(),
        lambda: session.sql("SELECT max(p) FROM t").to_arrow(),
        lambda: session.sql("SELECT p, count(*) FROM t GROUP BY p").to_arrow(),
        lambda: session.sql("SELECT id FROM t ORDER BY p LIMIT 1").to_arrow(),
        lambda: session.sql(f"SELECT count(*) FROM t WHERE p <> {literal}").to_arrow(),
    ]
    for number, ask in enumerate(refused):
        with pytest.raises(CorruptFile) as caught:
            ask()
        assert f"partition value {wrong!r} of column 'p'" in str(caught.value), number


@pytest.mark.parametrize(("kind", "wrong", "right", "literal"), KINDS, ids=[kind for kind, *_ in KINDS])
@pytest.mark.one_in(3)
def test_D5_an_invalid_value_fails_only_queries_that_need_the_column(
    tmp_path: Path, kind: str, wrong: str, right: str, literal: str
) -> None:
    features = ["timestampNtz"] if kind == "timestamp_ntz" else None
    log = DeltaLog(tmp_path, {"id": "long", "p": kind, "q": "integer"}, partition_columns=["p", "q"], features=features)
    log.commit(*make_two_files(log, wrong, right))
    check(tamis.open(tmp_path), wrong, literal)
    log.checkpoint(0)
    for table in open_everywhere(tmp_path):
        check(table, wrong, literal)
    assert tamis.delta.list_files(tmp_path, filter=PartitionFilter.eq("p", wrong)).num_rows == 1
    assert tamis.delta.list_files(tmp_path, filter=PartitionFilter.eq("q", "1")).num_rows == 1


def test_D6_a_mapped_column_with_an_invalid_value(tmp_path: Path) -> None:
    columns = [
        field("id", "long", **mapping(1, "id")),
        field("p", "integer", **mapping(2, "col-2")),
        field("q", "integer", **mapping(3, "q")),
    ]
    log = DeltaLog(
        tmp_path, columns, partition_columns=["p", "q"], reader=2, configuration={"delta.columnMapping.mode": "name"}
    )
    adds = make_two_files(log, "abc", "7")
    for each in adds:
        values = each["add"]["partitionValues"]
        values["col-2"] = values.pop("p")
    log.commit(*adds)
    for table in open_everywhere(tmp_path):
        check(table, "abc", "7")


def test_the_only_partition_column_may_be_unreadable(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "p": "integer"}, partition_columns=["p"])
    for number, text in enumerate(["abc", "1", None]):
        log.commit(data_file(log, f"{number}.parquet", pa.table({"id": pa.array([number])}), {"p": text}))
    for table in open_everywhere(tmp_path):
        assert sorted(table.scan("id < 2", ["id"]).to_arrow()["id"].to_pylist()) == [0, 1]
        assert table.scan(None, ["id"]).to_arrow().num_rows == table.scan().count() == 3
        assert table.scan("id >= 1").to_arrow().to_pylist() == [{"id": 1, "p": 1}, {"id": 2, "p": None}]
        with pytest.raises(CorruptFile, match=r"'abc' of column 'p' in the Delta table .* is not a valid int"):
            table.scan("p = 1").to_arrow()


def test_a_removed_file_with_an_invalid_value_has_no_effect(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "p": "integer", "q": "integer"}, partition_columns=["p", "q"])
    log.commit(*make_two_files(log, "abc", "7"))
    log.checkpoint(0)
    FILE_BATCH_CACHE.clear()
    first = tamis.open(tmp_path)
    with pytest.raises(CorruptFile, match="'abc'"):
        first.scan("p = 7").count()
    log.commit(remove("0.parquet"))
    for table in open_everywhere(tmp_path):
        assert table.scan("p = 7").count() == 2
        assert sorted(table.scan().to_arrow()["p"].to_pylist()) == [7, 7]
    with pytest.raises(CorruptFile, match="'abc'"):
        first.scan("p = 7").count()


def test_the_error_has_the_value_of_a_live_file(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "p": "integer", "q": "integer"}, partition_columns=["p", "q"])
    log.commit(*make_two_files(log, "abc", "xyz"))
    log.checkpoint(0)
    log.commit(remove("0.parquet"))
    for table in open_everywhere(tmp_path):
        with pytest.raises(CorruptFile, match="'xyz'"):
            table.scan().to_arrow()


def test_D15_a_generated_partition_column_with_an_invalid_value_prunes_nothing(tmp_path: Path) -> None:
    columns = [
        field("day", "date"),
        field("year", "integer", **{"delta.generationExpression": "YEAR(day)"}),
    ]
    log = DeltaLog(tmp_path, columns, partition_columns=["year"])
    days = [pa.table({"day": pa.array([days], pa.int32()).cast(pa.date32())}) for days in (19_000, 20_000)]
    log.commit(
        *(
            data_file(log, f"{number}.parquet", rows, {"year": text}, stats=None)
            for number, (rows, text) in enumerate(zip(days, ["abc", "2024"], strict=True))
        )
    )
    for table in open_everywhere(tmp_path):
        where = "day = DATE '2022-01-08'"
        assert table.scan(where, ["day"]).to_arrow().num_rows == table.scan(where).count() == 1


def test_file_batches_lack_a_column_that_is_unreadable_in_the_plan(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"p": "integer", "q": "integer", "id": "long"}, partition_columns=["p", "q"])
    log.commit(*make_two_files(log, "abc", "7"))
    for where, values in [("q = 0", None), ("q = 1", [None, 7])]:
        plan = tamis.open(tmp_path).scan(where, ["id"]).plan("files")
        (found,) = plan.file_batches()
        assert found.batch.schema.names == plan.files.column_names
        assert found.batch.filter(found.selection)["path"].to_pylist() == plan.files["path"].to_pylist()
        assert values is None or sorted(found.batch["p"].to_pylist(), key=str) == sorted(values, key=str)

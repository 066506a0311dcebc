"""Thresholds: which values they accept, what they reach, and that none of them changes a result."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tamis
from builders.delta.cases import draw_delta_case
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from builders.hive.scan_cases import draw_scan_case
from builders.iceberg.cases import draw_iceberg_case
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from builders.query import sql_queries, sql_tables
from builders.values.choices import Choices, SeededChoices
from oracles.formats.delta import DeltaRows
from oracles.formats.hive import HiveTable
from oracles.formats.iceberg import IcebergRows
from oracles.frame import ROW, SUBSETS, RowTable, evaluate_masks
from tamis.errors import InvalidArgument
from tamis.expr.sql.printer import to_sql
from tamis.formats.jobs import Arguments, storage_to_arguments
from tamis.formats.source import LEVELS
from tamis.io.storage import open_storage
from tamis.query.plan.nodes import TableScan, walk_plan
from tamis.query.query import get_compiled_query
from tamis.scan.scan import get_planner
from tamis.tuning import _STEPS, DEFAULT_TUNING, Tuning, check_tuning

FIELDS = fields(Tuning)
SOME, OTHER = Tuning(max_batch_rows=7), Tuning(max_batch_rows=3, min_native_share=0.5)


# --- Values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [each.name for each in FIELDS])
def test_a_threshold_is_a_number(name: str) -> None:
    for value in ("1", None, True, [1]):
        with pytest.raises(InvalidArgument, match=rf"^{name} must be a (whole )?number, found a"):
            Tuning(**{name: value})


@pytest.mark.parametrize("name", [each.name for each in FIELDS if each.type == "int"])
def test_a_count_is_a_whole_number_that_is_not_negative(name: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{name} must be a whole number, found a float$"):
        Tuning(**{name: 1.5})
    with pytest.raises(InvalidArgument, match=rf"^{name} must be at least [01], found -1$"):
        Tuning(**{name: -1})


@pytest.mark.parametrize("name", sorted(_STEPS))
def test_a_step_is_at_least_one(name: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{name} must be at least 1, found 0$"):
        Tuning(**{name: 0})
    assert getattr(Tuning(**{name: 1}), name) == 1


@pytest.mark.parametrize("name", ["max_files_per_index_item", "max_files_per_index_part", "max_bytes_per_index_part"])
def test_an_index_is_built_with_the_smallest_parts(name: str, tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(pa.table({"id": [number]}), tmp_path / f"{number}.parquet")
    assert tamis.index.build(tmp_path, tuning=Tuning(**{name: 1})).files == 3
    assert tamis.open(tmp_path).scan("id = 2").to_arrow()["id"].to_pylist() == [2]


def test_a_share_may_be_a_whole_number() -> None:
    assert Tuning(max_share_by_pages=1).max_share_by_pages == 1


def test_an_unknown_threshold_and_a_change_are_errors() -> None:
    with pytest.raises(TypeError, match="max_batch_row"):
        Tuning(max_batch_row=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        SOME.max_batch_rows = 1  # type: ignore[misc]


@pytest.mark.parametrize("given", [{"max_batch_rows": 7}, "fast", 1, True])
def test_only_a_tuning_is_accepted_as_one(given: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": [1]}), path)
    calls: list[Callable[[], object]] = [
        lambda: check_tuning(given),
        lambda: tamis.open(path, tuning=given),
        lambda: tamis.connect(tuning=given),
        lambda: tamis.connect().open(path, tuning=given),
        lambda: tamis.open(path).scan(tuning=given),
        lambda: tamis.parquet.Pruner(tamis.open(path).schema, tuning=given).prune(path),
        lambda: tamis.index.build(tmp_path, tuning=given),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument, match=r"^tuning must be a tamis\.Tuning, found a"):
            call()


def test_None_means_the_default_tuning() -> None:
    assert check_tuning(None) is DEFAULT_TUNING
    assert Tuning() == DEFAULT_TUNING


def test_json_has_only_what_differs_from_the_defaults() -> None:
    assert DEFAULT_TUNING.to_json() == {}
    assert OTHER.to_json() == {"max_batch_rows": 3, "min_native_share": 0.5}
    assert Tuning(max_batch_rows=DEFAULT_TUNING.max_batch_rows).to_json() == {}


@pytest.mark.parametrize("seed", range(20))
def test_json_returns_the_same_tuning(seed: int) -> None:
    tuning = _make_tuning(SeededChoices(seed))
    assert Tuning(**json.loads(json.dumps(tuning.to_json()))) == tuning


# --- What a tuning reaches --------------------------------------------------------------------------------------------


def write_delta(folder: Path) -> Path:
    for number in range(2):
        deltalake.write_deltalake(str(folder / "delta"), pa.table({"id": [number]}), mode="append")
    return folder / "delta"


def write_iceberg(folder: Path) -> Path:
    table = IcebergFolder(folder / "iceberg", [field(1, "id", "long")])
    for number in range(2):
        table.commit(table.data_file(f"{number}.parquet", pa.table({"id": [number]})))
    return table.folder


def write_hive(folder: Path) -> Path:
    for number in range(2):
        table_path = folder / "hive" / f"p={number}"
        table_path.mkdir(parents=True)
        pq.write_table(pa.table({"id": [number]}), table_path / "f.parquet")
    return folder / "hive"


Write = Callable[[Path], Path]
VERSIONED = pytest.mark.parametrize("write", [write_delta, write_iceberg])
ALL = pytest.mark.parametrize("write", [write_delta, write_iceberg, write_hive])


def get_tuning(table: Any) -> Tuning:
    return table._source.storage.tuning  # type: ignore[no-any-return]


def find_largest_batch(scan: tamis.Scan) -> int:
    return max(batch.num_rows for batch in scan.to_batches())


@ALL
def test_a_table_passes_its_tuning_to_its_scans(write: Write, tmp_path: Path) -> None:
    table = tamis.open(write(tmp_path), tuning=SOME)
    scan = table.scan("id >= 0")
    for each in (scan, scan.filter("id < 9"), scan.select("id"), scan.limit(1)):
        assert get_planner(each).storage.tuning is SOME
    assert get_tuning(tamis.open(write(tmp_path / "other"))) is DEFAULT_TUNING


@ALL
def test_a_scan_may_have_another_tuning(write: Write, tmp_path: Path) -> None:
    table = tamis.open(write(tmp_path), tuning=SOME)
    scan = table.scan("id >= 0", tuning=OTHER)
    assert get_planner(scan).storage.tuning is OTHER
    assert get_planner(scan.filter("id < 9").select("id")).storage.tuning is OTHER
    assert scan.count() == 2
    # The table keeps its own.
    assert get_planner(table.scan()).storage.tuning is SOME


def test_batches_have_the_rows_that_a_tuning_allows(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": range(100)}), path)
    table = tamis.open(path, tuning=SOME)
    assert find_largest_batch(table.scan()) == 7
    assert find_largest_batch(table.scan(tuning=OTHER)) == 3
    assert find_largest_batch(tamis.open(path).scan()) == 100


@VERSIONED
def test_a_tuning_goes_along_to_other_versions(write: Write, tmp_path: Path) -> None:
    table = tamis.open(write(tmp_path), tuning=SOME)
    older = table.at(version=table.history()["version" if table.format == "delta" else "snapshot_id"][-1].as_py())
    assert older.scan().count() == 1
    assert get_tuning(older) is SOME
    assert get_tuning(older.refresh()) is SOME
    assert older.refresh().scan().count() == 2


def test_a_tuning_goes_along_to_a_branch(tmp_path: Path) -> None:
    table = tamis.open(write_iceberg(tmp_path), tuning=SOME)
    assert get_tuning(table.at(ref="main")) is SOME


@ALL
def test_a_refreshed_table_has_the_same_tuning(write: Write, tmp_path: Path) -> None:
    table = tamis.open(write(tmp_path), tuning=SOME)
    assert get_tuning(table.refresh()) is SOME
    if table.format == "delta":
        deltalake.write_deltalake(str(tmp_path / "delta"), pa.table({"id": [2]}), mode="append")
        assert table.refresh().version == 2
        assert get_tuning(table.refresh()) is SOME


@pytest.mark.parametrize("tuning", [DEFAULT_TUNING, OTHER])
def test_executors_get_the_tuning_of_a_storage(tuning: Tuning, tmp_path: Path) -> None:
    storage = open_storage(tmp_path).with_tuning(tuning)
    text = json.dumps(storage_to_arguments(storage))
    assert Arguments(text).storage.tuning == tuning


@ALL
def test_a_session_passes_its_tuning_to_the_tables_that_it_opens(write: Write, tmp_path: Path) -> None:
    table_path = write(tmp_path)
    session = tamis.connect(tuning=SOME)
    assert get_tuning(session.open(table_path)) is SOME
    assert get_tuning(session.open(table_path, tuning=OTHER)) is OTHER
    assert get_tuning(tamis.connect().open(table_path)) is DEFAULT_TUNING


@ALL
def test_tables_named_by_their_location_in_sql_have_the_tuning_of_the_session(write: Write, tmp_path: Path) -> None:
    table_path = write(tmp_path)
    session = tamis.connect(tuning=SOME)
    format = tamis.open(table_path).format
    query = session.sql(f"SELECT id FROM {format}.`{table_path}`")
    assert query.to_arrow().num_rows == 2
    assert [scan.storage.tuning for scan in find_lake_sources(query)] == [SOME]
    session.register("t", table_path).register("u", tamis.open(table_path, tuning=OTHER))
    query = session.sql("SELECT t.id FROM t JOIN u ON t.id = u.id")
    assert {scan.storage.tuning.max_batch_rows for scan in find_lake_sources(query)} == {7, 3}
    assert get_compiled_query(query).context.tuning is SOME


def find_lake_sources(query: Any) -> list[Any]:
    return [node.handle.source for node in walk_plan(get_compiled_query(query).plan) if isinstance(node, TableScan)]


def test_the_session_of_a_principal_has_the_tuning_of_the_session(tmp_path: Path) -> None:
    table_path = write_delta(tmp_path)
    policies = {"tables": {str(table_path): [{"principals": ["ana"], "rows": "TRUE"}]}}
    session = tamis.connect(policies=policies, tuning=SOME).as_principal("ana")
    table = session.open(table_path)
    assert get_tuning(table) is SOME
    assert get_tuning(table.refresh()) is SOME
    assert table.scan(tuning=OTHER).count() == 2


# --- No tuning changes a result ---------------------------------------------------------------------------------------

FEWER = settings(max_examples=max(1, settings().max_examples // 6))
"""Each example writes a table."""
MODEST = settings(max_examples=max(5, settings().max_examples // 3), suppress_health_check=[*HealthCheck])

LARGE = 2**40


def test_a_cached_delta_table_without_files_is_scanned(tmp_path: Path) -> None:
    DeltaLog(tmp_path, {"id": "long"}).commit()
    table = tamis.open(tmp_path, tuning=Tuning(max_cached_files_together=0))
    assert [table.scan("id = 2").count() for _ in range(2)] == [0, 0]


def test_a_table_without_files_is_queried_with_native_scans_of_any_size(tmp_path: Path) -> None:
    DeltaLog(tmp_path, {"id": "long"}).commit()
    session = tamis.connect(tuning=Tuning(min_native_bytes=0))
    assert session.sql(f"SELECT id FROM delta.`{tmp_path}`").to_arrow().num_rows == 0


def draw_tuning(choices: Choices) -> Tuning:
    """Return a tuning in which each threshold is small, large or the default.

    Hypothesis draws one number for all of them: an example with a draw for each would take minutes to shrink.
    """
    seed = choices.number(0, 1_000_000)
    return _make_tuning(SeededChoices(seed)) if seed else DEFAULT_TUNING


def _make_tuning(choices: Choices) -> Tuning:
    found = {}
    for each in FIELDS:
        least = 1 if each.name in _STEPS else 0
        options = (least, 1, 2, 3, LARGE) if each.type == "int" else (0.0, 0.1, 1.0, float(LARGE), -1.0)
        found[each.name] = choices.one_of((getattr(DEFAULT_TUNING, each.name), *options))
    return Tuning(**found)


def test_batches_of_files_are_not_reused_with_a_tuning_that_reads_other_ones(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "p": "string"}, partition_columns=["p"])
    parts = {0: "a", 1: "a", 2: "b"}
    log.commit(*(data_file(log, f"{n}.parquet", pa.table({"id": [n]}), {"p": p}) for n, p in parts.items()))
    log.checkpoint()
    table = tamis.open(tmp_path)
    # Two batches of two files and one; then three batches of one file each.
    for where, rows in (("p = 'b'", 2), ("p = 'b' AND id = 2", 1)):
        assert table.scan(where, tuning=Tuning(max_batch_rows=rows)).to_arrow()["id"].to_pylist() == [2]


@dataclass
class Case:
    """A random table, as rows and as files."""

    table: RowTable
    location: Path
    options: dict[str, Any]

    def open(self, tuning: Tuning) -> tamis.Table:
        return tamis.open(self.location, tuning=tuning, **self.options)


def draw_delta(choices: Choices, folder: Path) -> Case:
    case = draw_delta_case(choices, folder, predicates=2)
    return Case(DeltaRows(case.rows(), case.predicates), folder, {})


def draw_iceberg(choices: Choices, folder: Path) -> Case:
    case = draw_iceberg_case(choices, folder, predicates=2)
    return Case(IcebergRows(case.rows(), case.predicates, case.done), folder, {})


def draw_hive(choices: Choices, folder: Path) -> Case:
    case = draw_scan_case(choices, predicates=2)
    case.write(folder / "t")
    return Case(HiveTable(case.rows, case.predicates), folder / "t", {"partitioning": case.partitioning})


RANDOM = pytest.mark.parametrize("write", [draw_delta, draw_iceberg, draw_hive])
RandomCase = Callable[[Choices, Path], Case]


@RANDOM
@FEWER
@given(data=st.data())
def test_no_tuning_changes_the_rows_of_a_scan(write: RandomCase, data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = write(choices, Path(folder))
        columns, rows = case.table.project(choices)
        for predicate, mask in zip(case.table.predicates, evaluate_masks(case.table), strict=True):
            expected = rows.filter(mask)
            tuning = draw_tuning(choices)
            opened = case.open(tuning)
            # What one scan leaves in memory helps the next, which has other thresholds.
            for other in (tuning, draw_tuning(choices)):
                levels = choices.one_of([LEVELS, choices.one_of(SUBSETS)])
                scan = opened.scan(predicate.expr, columns, levels=levels, tuning=other)
                context = (predicate, levels, tuning.to_json(), other.to_json(), case.table.notes)
                found = scan.to_arrow()
                assert found.schema.names == expected.schema.names, context
                assert case.table.is_same(found, expected), (*context, found.to_string(), expected.to_string())
                assert opened.scan(predicate.expr, levels=levels, tuning=other).count() == expected.num_rows, context
                limit = choices.number(0, 5)
                limited = opened.scan(predicate.expr, columns, limit, tuning=other).to_arrow()
                assert limited.num_rows == min(limit, expected.num_rows), (limit, *context)


@RANDOM
@FEWER
@given(data=st.data())
def test_no_tuning_changes_a_join_an_aggregate_or_a_top_n(write: RandomCase, data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = write(choices, Path(folder))
        predicate, mask = case.table.predicates[0], evaluate_masks(case.table)[0]
        every = sorted(case.table.rows[ROW].to_pylist())
        matching = sorted(case.table.rows.filter(mask)[ROW].to_pylist())
        tuning = draw_tuning(choices)
        tunings = tuning, draw_tuning(choices)
        session = tamis.connect(tuning=tunings[0])
        session.register("t", case.open(tunings[0]))
        session.register("u", case.open(tunings[1]))
        where = to_sql(get_planner(case.open(DEFAULT_TUNING).scan(predicate.expr)).predicate.expr)
        few, middle = choices.number(1, 4), choices.one_of([0, *every])
        queries = {
            f"SELECT count(*), count({ROW}), min({ROW}), max({ROW}), sum({ROW}) FROM t WHERE {where}": [
                (len(matching), len(matching), min(matching, default=None), max(matching, default=None),
                 sum(matching) if matching else None)
            ],
            f"SELECT {ROW} FROM t WHERE {where} ORDER BY {ROW} DESC LIMIT {few}": [(n,) for n in matching[::-1][:few]],
            f"SELECT t.{ROW} FROM t JOIN u ON t.{ROW} = u.{ROW} WHERE u.{ROW} <= {middle} ORDER BY 1": [
                (n,) for n in every if n <= middle
            ],
            f"SELECT t.{ROW} % 3, count(*) FROM t JOIN (SELECT {ROW} FROM t WHERE {where}) u ON t.{ROW} = u.{ROW} "
            f"GROUP BY 1 ORDER BY 1": sorted(Counter(n % 3 for n in matching).items()),
        }  # fmt: skip
        for query, expected in queries.items():
            found = sql_tables.list_rows(session.sql(query).to_arrow())
            assert found == expected, (query, *(each.to_json() for each in tunings), case.table.notes)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return sql_tables.write_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def peer() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = sql_tables.open_duckdb()
    yield connection
    connection.close()


@MODEST
@given(query=sql_queries.queries(), data=st.data())
def test_no_tuning_changes_the_answer_of_a_query(
    paths: dict[str, Path], peer: duckdb.DuckDBPyConnection, query: str, data: st.DataObject
) -> None:
    text = query.replace("LEFT SEMI JOIN", "SEMI JOIN").replace("LEFT ANTI JOIN", "ANTI JOIN")
    tuning = draw_tuning(Choices(data.draw))
    found = sql_tables.open_session(paths, tuning).sql(query).to_arrow()
    assert sql_tables.has_same_rows(found, peer.sql(text).to_arrow_table()), (query, tuning.to_json())

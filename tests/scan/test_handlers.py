"""A user's own ExpressionHandler makes the same plans; plans have selection vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import BloomFilterProperties, ColumnProperties, WriterProperties, write_deltalake
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import Schema, assign_fresh_schema_ids

import tamis
from builders.effort import IS_THOROUGH
from builders.hive.tables import write_hive_table
from builders.parquet.tuning import PRUNE_PAGES
from builders.pyiceberg.tables import create_table, make_spec
from builders.skipping.duckdb_handler import DuckdbHandler
from builders.values.choices import SeededChoices
from builders.values.predicates import draw_predicate
from builders.values.random_rows import make_subject
from tamis.expr.evaluate import to_physical_value
from tamis.expr.nodes import Call, Column, Expr, Literal, find_columns, walk
from tamis.skipping.handler import ArrowExpressionHandler
from tamis.tuning import Tuning

TUNING = Tuning(**{**PRUNE_PAGES.to_json(), "min_dictionary_saving": 0})
DAYS = [date(2024, 2, 28) + timedelta(days=number) for number in range(4)]


def make_rows(number: int) -> pa.Table:
    """Return the rows of one file: of one kind and day, with ids and times that grow, and some repeated names."""
    ids = range(number * 60, number * 60 + 60)
    return pa.table(
        {
            "kind": pa.array([number % 3 or None] * 60, pa.int32()),
            "day": pa.array([DAYS[number % 4]] * 60),
            "id": pa.array(ids, pa.int64()),
            "x": pa.array([None if i % 7 == 0 else math.nan if i % 31 == 0 else i / 4 for i in ids], pa.float64()),
            "name": pa.array([None if i % 11 == 0 else f"n{i // 20}" for i in ids]),
            "at": pa.array([datetime(2024, 1, 1) + timedelta(hours=i) for i in ids], pa.timestamp("us")),
        }
    )


FILES = [make_rows(number) for number in range(8)]
ROWS = pa.concat_tables(FILES)
PAGED = {"row_group_size": 30, "max_rows_per_page": 6, "write_page_index": True}


def write_delta(folder: Path) -> Path:
    column = ColumnProperties(bloom_filter_properties=BloomFilterProperties(True, fpp=0.01, ndv=100))
    properties = WriterProperties(
        max_row_group_size=30, data_page_row_count_limit=6, write_batch_size=6, default_column_properties=column
    )
    for rows in FILES:
        write_deltalake(folder, rows, mode="append", partition_by=["kind", "day"], writer_properties=properties)
    return folder


def write_iceberg(folder: Path) -> Path:
    schema: Schema = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(ROWS.schema))
    table = create_table(folder, schema, make_spec(schema, ("kind", "identity"), ("day", "month")))
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(FILES):
        path = folder / "data" / f"{number}.parquet"
        pq.write_table(rows, path, **PAGED)
        table.add_files([str(path)])
    return folder


def write_hive(folder: Path) -> Path:
    parts = [
        ({"kind": None if number % 3 == 0 else str(number % 3), "day": str(DAYS[number % 4])}, rows)
        for number, rows in enumerate(FILES)
    ]
    return write_hive_table(folder, [(keys, rows.drop_columns(["kind", "day"])) for keys, rows in parts], **PAGED)


WRITERS: dict[str, Callable[[Path], Path]] = {"delta": write_delta, "iceberg": write_iceberg, "hive": write_hive}


@pytest.fixture(scope="module", params=WRITERS)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return WRITERS[request.param](tmp_path_factory.mktemp(request.param) / "t")


def describe_plan(opened: tamis.Table, where: Any) -> dict[str, Any]:
    """Return everything that a plan decides: files, row groups, the pages of each, residual filters, the report."""
    plan = opened.scan(where).plan("pages")
    report = plan.report.to_dict()
    return {
        "files": plan.files.sort_by("path").to_pylist(),
        "tasks": sorted(
            (
                task.path, task.row_group, task.row_count, task.residual,
                None if task.selection is None else (task.selection.starts.tolist(), task.selection.ends.tolist()),
            )
            for task in plan.tasks
        ),
        "levels": report["levels"],
    }  # fmt: skip


def draw_filters(seed: int, count: int) -> list[Expr]:
    choices = SeededChoices(seed)
    subjects = [
        make_subject(
            (field.name,), field.type, [to_physical_value(value) for value in pc.unique(ROWS[field.name])][::9]
        )
        for field in ROWS.schema
    ]
    return [draw_predicate(choices, choices.some_of(subjects, 1, 3), depth=2).expr for _ in range(count)]


def test_a_handler_of_duckdb_makes_the_same_plans(table: Path) -> None:
    handler = DuckdbHandler()
    theirs = tamis.open(table, tuning=TUNING, handler=handler)
    ours = tamis.open(table, tuning=TUNING)
    skipped = dict.fromkeys(("partitions", "files", "row_groups", "pages"), 0)
    count = 120 if IS_THOROUGH else 40
    for where in draw_filters(5, count):
        expected = describe_plan(ours, where)
        assert describe_plan(theirs, where) == expected, where
        for level in expected["levels"]:
            if level["level"] in skipped:
                skipped[level["level"]] += level["total"] - level["kept"]
    assert len(handler.compiled) > 2 * count
    lacking = {"hive": {"files"}}.get(ours.format, set())
    assert all(count > 0 for level, count in skipped.items() if level not in lacking), skipped


def test_delta_evaluates_the_filter_over_the_actions_of_its_log(tmp_path: Path) -> None:
    handler = DuckdbHandler()
    plan = (
        tamis.open(write_delta(tmp_path / "t"), handler=handler).scan("day = '2024-02-29' AND kind > 1").plan("files")
    )
    assert plan.num_files == 1
    asked = {node for predicate in handler.compiled for node in walk(predicate)}
    for where in ("day = '2024-02-29'", "kind > 1"):
        assert tamis.delta.rewrite_partition_predicate(where, ROWS.schema.remove_metadata()) in asked


class KeepAll:
    """A handler for which every predicate is TRUE: nothing is skipped, and everything is fully matched."""

    def create_selection_vector(self, booleans: Sequence[bool] | pa.BooleanArray) -> pa.BooleanArray:
        return ArrowExpressionHandler().create_selection_vector(booleans)

    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> KeepAll:
        return self

    def eval(self, batch: pa.RecordBatch, selection: pa.BooleanArray | None = None) -> pa.BooleanArray:
        return pa.array([True] * batch.num_rows, pa.bool_())


@pytest.mark.parametrize("where", ["kind = 1", "day = '2024-02-29'", "id < 70", "name = 'n3'", "kind = 1 OR id < 3"])
def test_every_level_asks_the_handler(table: Path, where: str) -> None:
    plan = tamis.open(table, tuning=TUNING, handler=KeepAll()).scan(where).plan("pages")
    assert plan.num_files == len(FILES)
    assert all(level["kept"] == level["total"] for level in plan.report.to_dict()["levels"])
    assert plan.report.to_dict()["levels"]


class RecordBounds(ArrowExpressionHandler):
    """A handler that records, for each number of rows that units have, the lower bounds of ids that it compares."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, set[int]] = {}

    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> Any:
        evaluator = super().predicate_evaluator(schema, predicate)
        names = {node.path[0] for node in walk(predicate) if isinstance(node, Column)}
        return _RecordingEvaluator(evaluator, self.seen) if "lower:id" in names else evaluator


@dataclass
class _RecordingEvaluator:
    evaluator: Any
    seen: dict[int, set[int]]

    def eval(self, batch: pa.RecordBatch, selection: pa.BooleanArray | None = None) -> pa.BooleanArray:
        if {"lower:id", "row_count"} <= set(batch.schema.names):
            for rows, lower in zip(
                *(batch.column(name).to_pylist() for name in ("row_count", "lower:id")), strict=True
            ):
                self.seen.setdefault(rows, set()).add(lower)
        return self.evaluator.eval(batch, selection)


def test_a_conjunct_is_not_evaluated_below_the_files_that_prove_it(table: Path) -> None:
    # Files 1, 4 and 7 prove the first conjunct by their partition, file 0 by its statistics, where the format has any.
    where = "(kind = 1 OR id < 130) AND x > 1"
    handler = RecordBounds()
    opened = tamis.open(table, tuning=TUNING, handler=handler)
    has_statistics = opened.format != "hive"
    assert describe_plan(opened, where) == describe_plan(tamis.open(table, tuning=TUNING), where)
    of_row_groups, of_pages = ({lower // 60 for lower in handler.seen[rows]} for rows in (30, 6))
    assert of_row_groups == ({2} if has_statistics else {0, 2, 3, 5, 6})
    assert of_pages == {2}


def test_a_session_hands_its_handler_to_the_tables_of_queries(table: Path) -> None:
    handler = DuckdbHandler()
    session = tamis.connect(handler=handler)
    session.register("t", str(table))
    found = session.sql("SELECT count(*) AS n FROM t WHERE id < 70").to_arrow()
    assert found["n"].to_pylist() == [70]
    assert handler.compiled
    before = len(handler.compiled)
    assert session.open(table).scan("id < 7").to_arrow().num_rows == 7
    assert len(handler.compiled) > before


def test_a_table_at_another_version_keeps_its_handler(tmp_path: Path) -> None:
    handler = DuckdbHandler()
    opened = tamis.open(write_delta(tmp_path / "t"), handler=handler).at(version=3)
    assert opened.scan("id < 70").plan("files").num_files == 2
    assert handler.compiled


class Nonsense(KeepAll):
    def eval(self, batch: pa.RecordBatch, selection: pa.BooleanArray | None = None) -> Any:
        return pa.array([None] * batch.num_rows, pa.bool_())


def test_a_handler_that_returns_no_selection_vector_is_an_error(table: Path) -> None:
    with pytest.raises(tamis.TamisError, match=r"BooleanArray without nulls, one value for each of the .* Nonsense"):
        tamis.open(table, handler=Nonsense()).scan("id < 70").plan()


class Failing(KeepAll):
    """A handler whose evaluators raise an error, or that raises it itself."""

    def __init__(self, error: BaseException, while_preparing: bool = False) -> None:
        self.error, self.while_preparing = error, while_preparing

    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> KeepAll:
        if self.while_preparing:
            raise self.error
        return self

    def eval(self, batch: pa.RecordBatch, selection: pa.BooleanArray | None = None) -> pa.BooleanArray:
        raise self.error


@pytest.mark.parametrize("while_preparing", [False, True])
@pytest.mark.parametrize("error", [ValueError("boom"), duckdb.InvalidInputException("boom"), pa.ArrowInvalid("boom")])
@pytest.mark.parametrize("where", ["kind = 1", "id < 70", "name = 'n3'"])
def test_an_error_of_a_handler_names_the_handler_and_the_predicate(
    table: Path, where: str, error: Exception, while_preparing: bool
) -> None:
    column = where.split()[0]
    message = rf"^Failing could not evaluate .*{column}.*: {type(error).__name__}: boom$"
    with pytest.raises(tamis.errors.EngineError, match=message) as caught:
        tamis.open(table, tuning=TUNING, handler=Failing(error, while_preparing)).scan(where).plan("pages")
    assert caught.value.__cause__ is error


def test_an_error_of_a_sessions_handler_names_the_handler(table: Path) -> None:
    session = tamis.connect(handler=Failing(ValueError("boom")))
    session.register("t", str(table))
    with pytest.raises(tamis.errors.EngineError, match=r"^Failing could not evaluate .*: ValueError: boom$"):
        session.sql("SELECT count(*) AS n FROM t WHERE id < 70").to_arrow()


class Unprepared(KeepAll):
    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> Any:
        return None


def test_a_handler_that_returns_no_evaluator_is_an_error(table: Path) -> None:
    with pytest.raises(tamis.errors.EngineError, match=r"^Unprepared could not evaluate .*'eval'"):
        tamis.open(table, handler=Unprepared()).scan("id < 70").plan()


def test_errors_of_tamis_and_interrupts_pass_through_a_handler(table: Path) -> None:
    for error in (tamis.errors.StorageError("the cache is gone"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught:
            tamis.open(table, handler=Failing(error)).scan("id < 70").plan()
        assert caught.value is error


def test_a_handler_that_cannot_compute_a_value_skips_nothing(table: Path) -> None:
    failing = Failing(tamis.errors.EvaluationError("overflow"))
    assert tamis.open(table, handler=failing).scan("id < 70").plan().num_files == len(FILES)


@pytest.mark.parametrize("make", [tamis.open, lambda *_, **options: tamis.connect(**options)])
def test_what_is_no_handler_is_an_error(tmp_path: Path, make: Callable[..., Any]) -> None:
    with pytest.raises(tamis.TamisError, match="handler must be an ExpressionHandler, with the methods"):
        make(tmp_path, handler=5)


def test_a_session_with_policies_has_only_its_own_handler(tmp_path: Path) -> None:
    # A handler sees the metadata of rows that a policy hides.
    session = tamis.connect(policies={"tables": {}})
    with pytest.raises(tamis.TamisError, match="a session with policies has one handler"):
        session.open(write_hive(tmp_path / "t"), handler=DuckdbHandler())


class RecordPredicates(ArrowExpressionHandler):
    def __init__(self, *, takes_parsed_values: bool) -> None:
        super().__init__()
        self.takes_parsed_values = takes_parsed_values
        self.functions: set[str] = set()
        self.columns: set[tuple[str, ...]] = set()

    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> Any:
        self.functions |= {node.function for node in walk(predicate) if isinstance(node, Call)}
        self.columns |= {column.path for column in find_columns(predicate)}
        return super().predicate_evaluator(schema, predicate)


def test_a_handler_says_whether_it_takes_parsed_partition_values(tmp_path: Path) -> None:
    folder = write_delta(tmp_path / "t")
    texts, parsed = (RecordPredicates(takes_parsed_values=takes) for takes in (False, True))
    plans = [describe_plan(tamis.open(folder, handler=each), "kind = 1 AND id < 200") for each in (texts, parsed)]
    assert plans[0] == plans[1]
    assert ("add", "partitionValues") in texts.columns
    assert {"element_at", "partition_value"} <= texts.functions
    assert ("add", "partitionValues_parsed", "kind") in parsed.columns
    assert not {"element_at", "partition_value"} & parsed.functions


# --- Selection vectors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [None, "kind = 1", "id < 70", "kind IS NULL AND name = 'n3'", "id < 0", "1 = 0"])
@pytest.mark.parametrize("depth", ["files", "pages"])
def test_file_batches_have_all_files_with_a_selection_vector(table: Path, where: str | None, depth: str) -> None:
    opened = tamis.open(table, tuning=Tuning(max_batch_rows=3))
    plan = opened.scan(where).plan(depth)
    found = list(plan.file_batches())
    assert [len(each.selection) for each in found] == [each.batch.num_rows for each in found]
    assert len(found) > 1
    assert all(each.selection.null_count == 0 for each in found)
    everything = pa.Table.from_batches([each.batch for each in found])
    # Planning does not read the row counts of all files.
    listed = {file["path"]: file for file in opened.files().to_pylist()}
    assert len(listed) == len(FILES)
    assert {file["path"]: file | {"num_records": 60} for file in everything.to_pylist()} == {
        path: file | {"num_records": 60} for path, file in listed.items()
    }
    assert set(everything["num_records"].to_pylist()) <= {None, 60}
    kept = pa.Table.from_batches([each.batch.filter(each.selection) for each in found], everything.schema)
    assert sorted(kept["path"].to_pylist()) == sorted(plan.files["path"].to_pylist())
    if depth == "files":
        assert kept.sort_by("path").equals(plan.files.sort_by("path").combine_chunks())


class OddIds(ArrowExpressionHandler):
    """Answers as Arrow does, but every second row of a batch is FALSE: no other handler has this selection."""

    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> Any:
        evaluator = super().predicate_evaluator(schema, predicate)

        class Evaluator:
            def eval(self, batch: pa.RecordBatch, selection: pa.BooleanArray | None = None) -> pa.BooleanArray:
                every_second = pa.array([row % 2 == 0 for row in range(batch.num_rows)])
                return pc.and_(evaluator.eval(batch, selection), every_second)

        return Evaluator()


@pytest.mark.parametrize("where", ["kind = 1", "day > DATE '2024-02-28'", "kind = 2 AND id < 400"])
def test_the_handler_of_a_table_computes_the_selection_of_file_batches(table: Path, where: str) -> None:
    ours = tamis.open(table).scan(where).plan("files")
    plan = tamis.open(table, handler=OddIds()).scan(where).plan("files")
    assert plan.num_files < ours.num_files
    selected = [path for each in plan.file_batches() for path in each.batch.filter(each.selection)["path"].to_pylist()]
    assert sorted(selected) == sorted(plan.files["path"].to_pylist())
    assert len([path for each in plan.file_batches() for path in each.batch["path"].to_pylist()]) == len(FILES)


def test_a_selection_vector_goes_into_an_evaluator(table: Path) -> None:
    plan = tamis.open(table).scan("id < 200").plan("files")
    is_first = Call("=", (Column(("kind",), type=pa.int32()), Literal(1, pa.int32())))
    handler = ArrowExpressionHandler()
    for each in plan.file_batches():
        both = handler.predicate_evaluator(each.batch.schema, is_first).eval(each.batch, each.selection)
        assert both.to_pylist() == [
            kind == 1 and kept
            for kind, kept in zip(each.batch.column("kind").to_pylist(), each.selection.to_pylist(), strict=True)
        ]


def test_a_plan_under_a_policy_has_no_file_batches(tmp_path: Path) -> None:
    session = tamis.connect(policies={"tables": {"t": [{"principals": "*", "rows": "id > 5"}]}})
    plan = session.open(write_hive(tmp_path / "t")).scan("id < 70").plan("files")
    assert list(plan.file_batches()) == []

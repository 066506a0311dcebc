"""Results of a worker: batches as bytes, errors as data, and short messages for failures of Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from builders.engines.worker_engine import InProcessEngine
from tamis import errors
from tamis.engines.spark import worker
from tamis.engines.spark.jobs import balance_tasks, collect_results
from tamis.engines.spark.sessions import translate_error
from tamis.engines.spark.worker import DONE, MAX_ROWS, JobRunner, error_from_bytes, error_to_bytes
from tamis.errors import (
    CorruptFile,
    EngineError,
    FilterFormatError,
    MissingDependency,
    MisusedExpression,
    ParseError,
    Position,
    TamisError,
)
from tamis.formats.jobs import Arguments, Item, Job


@pytest.mark.parametrize(
    "error",
    [
        CorruptFile("'a.parquet' is no Parquet file"),
        ParseError("unexpected ')'", position=Position(14, line=2, column=3), hint="Remove it"),
        FilterFormatError("no operation 'x'", path="$.filters[1]"),
        MisusedExpression("a filter has no truth"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_keeps_its_class_message_and_attributes(error: TamisError) -> None:
    arrived = error_from_bytes(error_to_bytes(error))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


def test_an_error_of_a_foreign_subclass_becomes_its_nearest_tamis_class() -> None:
    class Special(CorruptFile):
        pass

    arrived = error_from_bytes(error_to_bytes(Special("damaged")))
    assert (type(arrived), str(arrived)) == (CorruptFile, "damaged")
    # Only classes of Tamis are restored from bytes.
    assert type(error_from_bytes(b'{"class": "one_line", "message": "x", "facts": {}}')) is TamisError


def test_X9_a_runner_is_pickled_as_names_and_text() -> None:
    runner = JobRunner("tamis.formats.jobs:read_table", '{"a": 1}', "tamis_read_2_parts")
    content = pickle.dumps(runner)
    assert b"tamis.engines.spark.worker" in content
    assert pickle.loads(content) == runner
    assert pickle.loads(content).__name__ == "tamis_read_2_parts"


def test_large_batches_are_sliced_and_empty_ones_keep_their_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("a", pa.uint64()), ("d", pa.dictionary(pa.int8(), pa.string()))])
    rows = MAX_ROWS + 1
    texts = pa.array(["x", "y", None] * (rows // 3 + 1)).slice(0, rows).dictionary_encode().cast(schema.types[1])
    batch = pa.record_batch([pa.array(np.arange(rows, dtype=np.uint64)), texts], schema=schema)

    def give(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
        yield from (batch, batch.slice(0, 0)) if item == b"some" else ()

    monkeypatch.setattr(worker, "find_function", lambda name: give)
    found = list(InProcessEngine().run(Job("", {}, schema, "give"), [Item(b"some"), Item(b"none"), Item(b"some")]))
    assert [number for number, _ in found] == [0, 0, 0, 2, 2, 2]
    assert [each.num_rows for _, each in found] == [MAX_ROWS, 1, 0] * 2
    assert all(each.schema.equals(schema) for _, each in found)
    assert pa.Table.from_batches([each for number, each in found if number == 2]).equals(pa.Table.from_batches([batch]))


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "x\n  ModuleNotFoundError: No module named 'tamis'\n\n\tat org.apache",
            MissingDependency,
            "tamis.spark.ship",
        ),
        ("ModuleNotFoundError: No module named 'pyroaring.x'", MissingDependency, "the package 'pyroaring'"),
        ("Traceback\nValueError: one\n\nKeyError: 'two'\n\tat java", EngineError, "failed: KeyError: 'two'"),
        ("Job aborted: Python worker exited unexpectedly (crashed)\n\tat org", EngineError, "died repeatedly"),
        ("\n  [SOME_CLASS] The cluster is gone.\nmore", EngineError, "failed: [SOME_CLASS] The cluster is gone."),
        ("", EngineError, "Spark gave no reason"),
        ("x" * 5000, EngineError, "xxx …"),
    ],
)
def test_spark_failures_become_one_line_errors(text: str, kind: type[TamisError], message: str) -> None:
    error = translate_error(text, "tamis: read 2 parts")
    assert type(error) is kind
    assert message in str(error)
    assert "tamis: read 2 parts" in str(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 500


def test_tasks_are_balanced_by_bytes() -> None:
    sizes = [7, 1, 1, 1, 5, 1, 2, 0]
    tasks = balance_tasks(sizes, 3)
    loads = [sum(size for size, task in zip(sizes, tasks, strict=True) if task == number) for number in range(3)]
    assert sorted(loads) == [5, 6, 7]
    assert balance_tasks([0] * 7, 3) == [0, 1, 2, 0, 1, 2, 0]
    assert balance_tasks([5, 5], 100) == [0, 1]
    assert balance_tasks([], 4) == []


def test_a_lost_or_repeated_item_is_an_error() -> None:
    schema = pa.schema(
        [("number", pa.int64()), ("position", pa.int64()), ("kind", pa.string()), ("payload", pa.binary())]
    )
    done = [{"number": number, "position": 0, "kind": DONE, "payload": b""} for number in range(3)]
    assert list(collect_results(pa.Table.from_pylist(done[::-1], schema), 3, "tamis: read 3 parts")) == []
    for given in (done[:2], done[1:], [*done, done[1]], []):
        with pytest.raises(EngineError, match=r"'tamis: read 3 parts' finished \d items? of 3: run it again"):
            list(collect_results(pa.Table.from_pylist(given, schema), 3, "tamis: read 3 parts"))


def test_every_tamis_error_can_be_serialised() -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, TamisError)]
    for kind in kinds:
        error = kind.__new__(kind, "text")
        Exception.__init__(error, "text")
        assert type(error_from_bytes(error_to_bytes(error))) is kind

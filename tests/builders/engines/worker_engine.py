"""An engine for tests, and comparisons of plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

import tamis
from tamis.engines.spark.jobs import collect_results
from tamis.engines.spark.worker import JobRunner
from tamis.formats.delta.planning.file_batches import FILE_BATCH_CACHE
from tamis.formats.jobs import Item, Job
from tamis.scan.planning.tasks import ScanTask


class InProcessEngine:
    """Runs in this process what a Spark worker runs, serialisation included: for tests without Spark."""

    name = "spark"

    def __init__(self) -> None:
        self.jobs: list[tuple[str, int]] = []
        """The jobs that ran, and the number of items of each."""

    def run(self, job: Job, items: Sequence[Item]) -> Iterator[tuple[int, pa.RecordBatch]]:
        self.jobs.append((job.description, len(items)))
        given = pa.record_batch({"number": list(range(len(items))), "item": [item.value for item in items]})
        rows = JobRunner(job.function, job.arguments_text)(iter([given]))
        yield from collect_results(pa.Table.from_batches(rows), len(items), job.description)


def make_fresh_plan(table: tamis.Table, where: object, depth: str, **options: Any) -> tamis.ScanPlan:
    """Return a plan that was made with empty caches."""
    FILE_BATCH_CACHE.clear()
    return table.scan(where, **options).plan(depth)


def assert_same_plans(one: tamis.ScanPlan, other: tamis.ScanPlan) -> None:
    """Check that two plans have the same tasks in the same order, and the same reports."""
    assert one.files.schema.equals(other.files.schema, check_metadata=True)
    assert one.files.equals(other.files)
    assert [_make_comparable(task) for task in one.tasks] == [_make_comparable(task) for task in other.tasks]
    assert one.report.to_dict() == other.report.to_dict()


def _make_comparable(task: ScanTask) -> ScanTask:
    """Return a task in which NaN is replaced by a value that equals itself."""
    return replace(task, constants={path: pa.scalar(repr(value)) for path, value in task.constants.items()})

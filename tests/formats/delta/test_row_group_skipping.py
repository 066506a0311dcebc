"""Row groups of a checkpoint are skipped by their statistics; the plan and its report stay the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.delta.log import DeltaLog, add, deletion_vector, remove
from tamis.errors import CorruptFile
from tamis.formats.delta import checkpoint as checkpoint_rows
from tamis.formats.delta.planning.file_batches import FILE_BATCH_CACHE

FILES, PER_GROUP = 40, 5
VALUES = pa.struct([("id", pa.int64()), ("amount", pa.float64())])
PARSED_STATS = pa.struct([("numRecords", pa.int64()), ("minValues", VALUES), ("maxValues", VALUES)])
PARSED_PARTITIONS = pa.struct([("day", pa.int32()), ("city", pa.string())])


def make_action(number: int) -> dict[str, Any]:
    day, city = number // 10, None if number == 7 else f"c{number % 3}"
    bounds = [{"id": number * 100 + edge, "amount": float(number + edge)} for edge in (0, 99)]
    stats = {"numRecords": 100, "minValues": bounds[0], "maxValues": bounds[1], "nullCount": {"id": 0, "amount": 0}}
    found = add(f"f{number:02d}", {"day": str(day), "city": city or ""}, size=10 + number, stats=json.dumps(stats))
    found["add"]["stats_parsed"] = {name: stats[name] for name in ("numRecords", "minValues", "maxValues")}
    found["add"]["partitionValues_parsed"] = {"day": day, "city": city or ""}
    return found


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    FILE_BATCH_CACHE.clear()


@pytest.fixture(params=["parsed", "plain"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    columns = {"day": "integer", "city": "string", "id": "long", "amount": "double"}
    log = DeltaLog(tmp_path, columns, partition_columns=["day", "city"])
    held = [make_action(number) for number in range(FILES)]
    log.commit(*({"add": {k: v for k, v in each["add"].items() if "_parsed" not in k}} for each in held))
    log.commit(remove("f21"))
    extra = [("stats_parsed", PARSED_STATS), ("partitionValues_parsed", PARSED_PARTITIONS)]
    start = [each for each in log.reconcile(0, 0) if "add" not in each]
    log.checkpoint(
        0, actions=[*start, *held], row_group_size=PER_GROUP, add_fields=extra if request.param == "parsed" else ()
    )
    return request.param, tmp_path


@pytest.mark.parametrize(
    ("where", "files", "row_groups"),
    [
        ("day = 2", [20, *range(22, 30)], 3),
        ("id BETWEEN 1250 AND 1349", [12, 13], 2),
        ("day = 2 AND id = 2050", [20], 1),
        ("day = 9", [], 0),
        ("city = 'c0' AND id < 300", [0], 1),
        ("city IS NULL", [7], 9),
        ("amount < 3", [0, 1, 2], 9),
        ("day = 0 OR id > 3950", [*range(10), 39], 4),
    ],
)
def test_row_groups_that_cannot_hold_a_wanted_file_are_not_read(
    table: tuple[str, Path], where: str, files: list[int], row_groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, folder = table
    read: list[tuple[int, bool]] = []
    plainly = checkpoint_rows.read_row_group

    def count_reads(storage: Any, path: str, size: int, footer: Any, row_group: int, columns: Any, *rest: Any) -> Any:
        read.append((row_group, any("stats" in name or "partitionValues" in name for _, name, *_ in columns)))
        return plainly(storage, path, size, footer, row_group, columns, *rest)

    opened = tamis.open(folder)
    monkeypatch.setattr(checkpoint_rows, "read_row_group", count_reads)
    plan = opened.scan(where).plan("files")
    assert [int(Path(path).name[1:]) for path in plan.files["path"].to_pylist()] == files
    in_full = {row_group for row_group, is_full in read if is_full}
    assert len(in_full) == (row_groups if kind == "parsed" else 9)
    levels = {level.level: level for level in plan.report.levels}
    live = [number for number in range(FILES) if number != 21]
    assert (levels["partitions"].total, levels["partitions"].bytes_total) == (39, sum(10 + each for each in live))
    assert levels["files"].kept == len(files)
    assert any(outcome.skipped for level in levels.values() for outcome in level.by_predicate)


def test_a_plan_after_one_that_skipped_row_groups_sees_all_files(table: tuple[str, Path]) -> None:
    opened = tamis.open(table[1])
    assert opened.scan("day = 3").plan("files").num_files == 10
    assert opened.scan("day = 1").plan("files").num_files == 10
    assert opened.scan().plan("files").num_files == 39


@pytest.mark.parametrize("levels", [("partitions",), ("files",), ()], ids=str)
def test_levels_that_are_switched_off_skip_nothing(table: tuple[str, Path], levels: tuple[str, ...]) -> None:
    found = tamis.open(table[1]).scan("day = 2 AND id = 2050", levels=levels).plan("files").num_files
    assert found == {("partitions",): 9, ("files",): 1, (): 39}[levels]


def test_a_row_group_with_a_file_without_parsed_partition_values_is_read(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"city": "string", "id": "long"}, partition_columns=["city"])
    held = [add(f"f{city}", {"city": city}) for city in ("a", "b", "c")]
    log.commit(*held)
    parsed = pa.struct([("city", pa.string())])
    for each, city in zip(held, ("a", None, "a"), strict=True):
        each["add"]["partitionValues_parsed"] = {"city": city}
    log.checkpoint(0, actions=[*log.start, *held], add_fields=[("partitionValues_parsed", parsed)])
    assert tamis.open(tmp_path).scan("city = 'b'").plan("files").files.num_rows == 1


def test_a_partition_filter_is_rejected_where_partition_values_have_no_strings(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"city": "string", "id": "long"}, partition_columns=["city"])
    held = [add(f"f{city}", {"city": city}) for city in ("a", "b")]
    log.commit(*held)
    for each, city in zip(held, ("a", "b"), strict=True):
        each["add"]["partitionValues_parsed"] = {"city": city}
    parsed = [("partitionValues_parsed", pa.struct([("city", pa.string())]))]
    log.checkpoint(0, actions=[*log.start, *held], add_fields=parsed, omit=["partitionValues"])
    log.path(0).unlink()
    assert tamis.open(tmp_path).scan("city = 'b'").plan("files").files.num_rows == 1
    wanted = tamis.PartitionFilter.eq("city", "b")
    with pytest.raises(CorruptFile, match="no strings for a PartitionFilter to compare"):
        tamis.open(tmp_path).scan(wanted).plan("files")
    with pytest.raises(CorruptFile, match="without partition values"):
        tamis.delta.list_files(tmp_path, filter=wanted)


@pytest.mark.parametrize("where", ["day = 2", "id BETWEEN 1250 AND 1349", "day = 9", "city = 'c1' AND id < 700"])
@pytest.mark.parametrize("is_cached", [False, True])
def test_file_batches_have_the_files_of_skipped_row_groups(
    table: tuple[str, Path], where: str, is_cached: bool
) -> None:
    opened = tamis.open(table[1])
    if is_cached:
        opened.scan().plan("files")
    plan = opened.scan(where).plan("files")
    batches = list(plan.file_batches())
    found = pa.Table.from_batches([each.batch for each in batches])
    assert sorted(found["path"].to_pylist()) == sorted(opened.files()["path"].to_pylist())
    selected = pa.Table.from_batches([each.batch.filter(each.selection) for each in batches])
    assert selected.equals(plan.files.combine_chunks())


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_D1_file_batches_select_one_of_two_files_with_the_same_path(tmp_path: Path, has_checkpoint: bool) -> None:
    log = DeltaLog(tmp_path, {"id": "long"}, features=["deletionVectors"])

    def make_stats(low: int) -> str:
        return json.dumps(
            {"numRecords": 9, "minValues": {"id": low}, "maxValues": {"id": low + 8}, "nullCount": {"id": 0}}
        )

    vectors = [deletion_vector("x" * 20, offset) for offset in (1, 11)]
    log.commit(*(add("a", deletionVector=each, size=7, stats=make_stats(10 * n)) for n, each in enumerate(vectors)))
    if has_checkpoint:
        log.checkpoint()
    for where, selection in [("id < 5", [True, False]), ("id > 12", [False, True]), ("id > 3", [True, True])]:
        (batch,) = tamis.open(tmp_path).scan(where).plan("files").file_batches()
        assert batch.batch["path"].to_pylist() == [str(tmp_path / "a")] * 2
        assert batch.selection.to_pylist() == selection

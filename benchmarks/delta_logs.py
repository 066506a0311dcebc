"""Writes Delta tables that have a log and no data: planning reads nothing else.

File n has the day n modulo `DAYS`, because checkpoints mix the partitions of a table. Its region changes after all
days. Its ids are the thousand numbers from 1,000 n on.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DAYS = 1_000
REGIONS = 10
ROWS = 1_000
"""The number of rows of each file."""
CHECKPOINT = 10
"""The version of the checkpoint."""
COMMITS_AFTER = 4
CHANGES_PER_COMMIT = 25
"""The number of files that each commit after the checkpoint replaces."""
ARCHIVE_PARTITIONS = 100
"""The number of values of `partition_col` in the log of the archive."""
COMMITS_TOGETHER = 1_000
"""The number of commits whose actions are generated together."""

_COLUMNS = {
    "day": "date",
    "region": "string",
    "id": "long",
    "amount": "double",
    "name": "string",
    "ts": "timestamp",
    "qty": "integer",
    "code": "string",
}
"""The two partition columns, then six columns with statistics."""

_MAP = pa.map_(pa.string(), pa.string())
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
    ]
)
_REMOVE = pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())])
_PROTOCOL = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", _MAP),
        ("createdTime", pa.int64()),
    ]
)
_CHECKPOINT_SCHEMA = pa.schema([("protocol", _PROTOCOL), ("metaData", _METADATA), ("add", _ADD), ("remove", _REMOVE)])

Action = dict[str, Any]


def get_day(number: int) -> str:
    return str(np.datetime64("2022-01-01", "D") + number % DAYS)


def get_region(number: int) -> str:
    return f"r{number // DAYS % REGIONS}"


def write_checkpointed_log(folder: Path, *, parts: int, files_per_part: int) -> None:
    """Write a checkpoint of several parts, and a few commits after it that replace some of its files."""
    log = _create_log(folder)
    for part in range(parts):
        table = _make_checkpoint_rows(part * files_per_part, files_per_part, with_start=part == 0)
        name = f"{CHECKPOINT:020}.checkpoint.{part + 1:010}.{parts:010}.parquet"
        pq.write_table(table, log / name, compression="snappy")
    hint = {"version": CHECKPOINT, "size": parts * files_per_part + 2, "parts": parts}
    (log / "_last_checkpoint").write_text(json.dumps(hint))
    _write_commit(log, CHECKPOINT, [])
    files = parts * files_per_part
    for number in range(COMMITS_AFTER):
        rewritten = np.arange(number, files, max(files // CHANGES_PER_COMMIT, 1))[:CHANGES_PER_COMMIT]
        _write_commit(log, CHECKPOINT + 1 + number, [*_make_removes(rewritten), *_make_adds(rewritten, generation=1)])


def write_commits(folder: Path, *, commits: int, files_per_commit: int) -> None:
    """Write commits without a checkpoint. Every tenth file is replaced by the commit after its own."""
    log = _create_log(folder)
    _write_commit(log, 0, _make_table_actions())
    for first in range(0, commits, COMMITS_TOGETHER):
        last = min(first + COMMITS_TOGETHER, commits)
        written = np.arange(first * files_per_commit, last * files_per_commit)
        replaced = written - files_per_commit
        replaced = replaced[(replaced >= 0) & (replaced % 10 == 0)]
        by_commit: dict[int, list[Action]] = {number: [] for number in range(first, last)}
        for numbers, delay, actions in (
            (written, 0, _make_adds(written)),
            (replaced, 1, _make_removes(replaced)),
            (replaced, 1, _make_adds(replaced, generation=1)),
        ):
            for number, action in zip(numbers.tolist(), actions, strict=True):
                by_commit[number // files_per_commit + delay].append(action)
        for number, own in by_commit.items():
            _write_commit(log, number + 1, own)


def append_commit(folder: Path, version: int, action: Action) -> None:
    """Add one version to a table."""
    _write_commit(folder / "_delta_log", version, [action])


def make_add(number: int, generation: int) -> Action:
    """Return the action that adds a file with the day, the region and the ids of another one."""
    (action,) = _make_adds(np.array([number]), generation)
    return action


def make_archive_add(number: int, generation: int) -> Action:
    """Return the same action for the log of the archive, whose files have no statistics."""
    partition = f"part_{number % ARCHIVE_PARTITIONS}"
    return {
        "add": {
            "path": f"{partition}/file_{number}_{generation}.parquet",
            "partitionValues": {"partition_col": partition},
            "size": 1_048_576,
            "modificationTime": 1_700_000_000_000,
            "dataChange": True,
        }
    }


def link_log(folder: Path, copy: Path) -> Path:
    """Copy a log, so that commits can be added to the copy. Its files are hard links."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy, copy_function=os.link)
    return copy


def unpack(folder: Path, archive: Path) -> None:
    """Extract the log of an archive. The archive's top folder becomes this folder."""
    with pa.input_stream(archive, compression="zstd") as stream, tarfile.open(fileobj=stream, mode="r|") as packed:
        for member in packed:
            member.name = member.name.partition("/")[2]
            if member.name:
                packed.extract(member, folder, filter="data")


def _create_log(folder: Path) -> Path:
    log = folder / "_delta_log"
    log.mkdir()
    return log


def _make_table_actions() -> list[Action]:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _COLUMNS.items()]
    metadata = {
        "id": "11111111-1111-1111-1111-111111111111",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["day", "region"],
        "configuration": {},
        "createdTime": 1_700_000_000_000,
    }
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]


def _write_commit(log: Path, version: int, actions: Sequence[Mapping[str, Any]]) -> None:
    info = {"commitInfo": {"timestamp": 1_700_000_000_000 + version, "operation": "WRITE"}}
    lines = [json.dumps(action, separators=(",", ":")) for action in (info, *actions)]
    (log / f"{version:020}.json").write_text("\n".join(lines) + "\n")


def _make_checkpoint_rows(first: int, count: int, *, with_start: bool) -> pa.Table:
    """Return the rows of one part of a checkpoint."""
    adds = _make_add_structs(np.arange(first, first + count))
    rows = pa.table(
        {field.name: adds if field.name == "add" else pa.nulls(count, field.type) for field in _CHECKPOINT_SCHEMA},
        schema=_CHECKPOINT_SCHEMA,
    )
    if not with_start:
        return rows
    start = [{name: _replace_empty_maps(fields) for name, fields in action.items()} for action in _make_table_actions()]
    return pa.concat_tables([pa.Table.from_pylist(start, _CHECKPOINT_SCHEMA), rows])


def _replace_empty_maps(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Replace empty maps by empty lists, as pyarrow expects them."""
    found = {name: [] if value == {} else value for name, value in fields.items()}
    if "format" in found:
        found["format"] = _replace_empty_maps(found["format"])
    return found


def _make_adds(numbers: np.ndarray, generation: int = 0) -> list[Action]:
    found = _make_add_structs(numbers, generation).to_pylist()
    return [{"add": fields | {"partitionValues": dict(fields["partitionValues"])}} for fields in found]


def _make_removes(numbers: np.ndarray) -> list[Action]:
    paths = _make_paths(numbers, *_make_partition_values(numbers), 0).to_pylist()
    return [{"remove": {"path": path, "deletionTimestamp": 1_700_000_000_000, "dataChange": True}} for path in paths]


def _make_add_structs(numbers: np.ndarray, generation: int = 0) -> pa.StructArray:
    count = len(numbers)
    day, region = _make_partition_values(numbers)
    pairs = pa.array(np.arange(0, 2 * count + 1, 2, dtype=np.int32))
    order = np.arange(2 * count).reshape(2, count).T.ravel()
    values = pa.concat_arrays([day, region]).take(pa.array(order))
    keys = pa.array(["day", "region"]).take(pa.array(np.tile([0, 1], count)))
    columns = [
        _make_paths(numbers, day, region, generation),
        pa.MapArray.from_arrays(pairs, keys, values),
        pa.array(1_000_000 + numbers % 1000),
        pa.array(1_700_000_000_000 + numbers),
        pa.repeat(False, count),
        _make_statistics(numbers, day),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(_ADD))


def _make_partition_values(numbers: np.ndarray) -> tuple[pa.Array, pa.Array]:
    days, regions = _list_partition_values()
    return days.take(pa.array(numbers % DAYS)), regions.take(pa.array(numbers // DAYS % REGIONS))


@cache
def _list_partition_values() -> tuple[pa.Array, pa.Array]:
    days = pa.array([get_day(number) for number in range(DAYS)])
    return days, pa.array([get_region(number * DAYS) for number in range(REGIONS)])


def _make_paths(numbers: np.ndarray, day: pa.Array, region: pa.Array, generation: int) -> pa.Array:
    """Return paths as Spark names files, with a part that is unique."""
    with np.errstate(over="ignore"):
        mixed = [(numbers.astype(np.uint64) + np.uint64(salt)) * np.uint64(0x9E3779B97F4A7C15) for salt in (1, 2)]
        mixed = [each ^ (each >> np.uint64(29)) for each in mixed]
    unique = [pa.array(each).cast(pa.string()) for each in mixed]
    return _join(
        "day=",
        day,
        "/region=",
        region,
        "/part-",
        _pad(numbers, 7),
        "-",
        *unique,
        f".c{generation:03}.snappy.parquet",
    )


def _make_statistics(numbers: np.ndarray, day: pa.Array) -> pa.Array:
    lowest = numbers * ROWS
    cents = numbers * 7_919 % 1_000_000
    code = numbers % 997
    return _join(
        f'{{"numRecords":{ROWS},"minValues":{{"id":',
        _to_text(lowest),
        ',"amount":',
        _to_text(cents / 100),
        ',"name":"name',
        _pad(lowest, 11),
        '","ts":"',
        day,
        'T00:00:00.000Z","qty":1,"code":"c',
        _pad(code, 5),
        '"},"maxValues":{"id":',
        _to_text(lowest + ROWS - 1),
        ',"amount":',
        _to_text(cents / 100 + 500),
        ',"name":"name',
        _pad(lowest + ROWS - 1, 11),
        '","ts":"',
        day,
        'T23:59:59.999Z","qty":',
        _to_text(numbers % 100 + 1),
        ',"code":"c',
        _pad(code + 3, 5),
        '"},"nullCount":{"id":0,"amount":0,"name":0,"ts":0,"qty":3,"code":0}}',
    )


def _to_text(numbers: np.ndarray) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _pad(numbers: np.ndarray, width: int) -> pa.Array:
    return pc.utf8_lpad(_to_text(numbers), width, "0")


def _join(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")

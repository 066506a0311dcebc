"""Delta tables that are nothing but a log: what planning reads, and none of the data.

File n of such a table is of the day n modulo `DAYS`, as checkpoints mix the partitions of a table, and of a region
that changes after all days; its ids are the thousand numbers from 1,000 n on.
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
"""The rows of each file."""
CHECKPOINT = 10
"""The version of the checkpoint."""
COMMITS_AFTER = 4
CHANGES_PER_COMMIT = 25
"""How many files each commit after the checkpoint writes anew."""
ARCHIVE_PARTITIONS = 100
"""The values of `partition_col` in the log that others wrote."""
COMMITS_TOGETHER = 1_000
"""How many commits are made up at once, before they are written one by one."""

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
"""Partition columns first, then six with statistics."""

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


def day_of(number: int) -> str:
    return str(np.datetime64("2022-01-01", "D") + number % DAYS)


def region_of(number: int) -> str:
    return f"r{number // DAYS % REGIONS}"


def write_checkpointed_log(folder: Path, *, parts: int, files_per_part: int) -> None:
    """A checkpoint of several parts, and a few commits after it, which replace some of its files."""
    log = _log_of(folder)
    for part in range(parts):
        table = _actions(part * files_per_part, files_per_part, with_start=part == 0)
        name = f"{CHECKPOINT:020}.checkpoint.{part + 1:010}.{parts:010}.parquet"
        pq.write_table(table, log / name, compression="snappy")
    hint = {"version": CHECKPOINT, "size": parts * files_per_part + 2, "parts": parts}
    (log / "_last_checkpoint").write_text(json.dumps(hint))
    _write_commit(log, CHECKPOINT, [])
    files = parts * files_per_part
    for number in range(COMMITS_AFTER):
        rewritten = np.arange(number, files, max(files // CHANGES_PER_COMMIT, 1))[:CHANGES_PER_COMMIT]
        _write_commit(log, CHECKPOINT + 1 + number, [*_removes(rewritten), *_adds(rewritten, generation=1)])


def write_commits(folder: Path, *, commits: int, files_per_commit: int) -> None:
    """Commits without any checkpoint; every tenth file is replaced by the commit after its own."""
    log = _log_of(folder)
    _write_commit(log, 0, _start())
    for first in range(0, commits, COMMITS_TOGETHER):
        last = min(first + COMMITS_TOGETHER, commits)
        written = np.arange(first * files_per_commit, last * files_per_commit)
        replaced = written - files_per_commit
        replaced = replaced[(replaced >= 0) & (replaced % 10 == 0)]
        by_commit: dict[int, list[Action]] = {number: [] for number in range(first, last)}
        for numbers, behind, actions in (
            (written, 0, _adds(written)),
            (replaced, 1, _removes(replaced)),
            (replaced, 1, _adds(replaced, generation=1)),
        ):
            for number, action in zip(numbers.tolist(), actions, strict=True):
                by_commit[number // files_per_commit + behind].append(action)
        for number, own in by_commit.items():
            _write_commit(log, number + 1, own)


def append_commit(folder: Path, version: int, action: Action) -> None:
    """One more version of a table."""
    _write_commit(folder / "_delta_log", version, [action])


def addition(number: int, generation: int) -> Action:
    """One more file of the day, the region and the ids of another."""
    (action,) = _adds(np.array([number]), generation)
    return action


def addition_to_archive(number: int, generation: int) -> Action:
    """The same for the log of the archive, whose files have no statistics."""
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


def linked_copy(folder: Path, copy: Path) -> Path:
    """The same log under another name, to which commits can be added: its files are links."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy, copy_function=os.link)
    return copy


def unpack(folder: Path, archive: Path) -> None:
    """The log of an archive, whose one folder becomes this one."""
    with pa.input_stream(archive, compression="zstd") as stream, tarfile.open(fileobj=stream, mode="r|") as packed:
        for member in packed:
            member.name = member.name.partition("/")[2]
            if member.name:
                packed.extract(member, folder, filter="data")


def _log_of(folder: Path) -> Path:
    log = folder / "_delta_log"
    log.mkdir()
    return log


def _start() -> list[Action]:
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


def _actions(first: int, count: int, *, with_start: bool) -> pa.Table:
    """The rows of a part of a checkpoint."""
    adds = _add_structs(np.arange(first, first + count))
    rows = pa.table(
        {field.name: adds if field.name == "add" else pa.nulls(count, field.type) for field in _CHECKPOINT_SCHEMA},
        schema=_CHECKPOINT_SCHEMA,
    )
    if not with_start:
        return rows
    start = [{name: _with_pairs(fields) for name, fields in action.items()} for action in _start()]
    return pa.concat_tables([pa.Table.from_pylist(start, _CHECKPOINT_SCHEMA), rows])


def _with_pairs(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Maps, all of which are empty here, as pyarrow takes them."""
    found = {name: [] if value == {} else value for name, value in fields.items()}
    if "format" in found:
        found["format"] = _with_pairs(found["format"])
    return found


def _adds(numbers: np.ndarray, generation: int = 0) -> list[Action]:
    found = _add_structs(numbers, generation).to_pylist()
    return [{"add": fields | {"partitionValues": dict(fields["partitionValues"])}} for fields in found]


def _removes(numbers: np.ndarray) -> list[Action]:
    paths = _paths(numbers, *_partitions(numbers), 0).to_pylist()
    return [{"remove": {"path": path, "deletionTimestamp": 1_700_000_000_000, "dataChange": True}} for path in paths]


def _add_structs(numbers: np.ndarray, generation: int = 0) -> pa.StructArray:
    count = len(numbers)
    day, region = _partitions(numbers)
    pairs = pa.array(np.arange(0, 2 * count + 1, 2, dtype=np.int32))
    order = np.arange(2 * count).reshape(2, count).T.ravel()
    values = pa.concat_arrays([day, region]).take(pa.array(order))
    keys = pa.array(["day", "region"]).take(pa.array(np.tile([0, 1], count)))
    columns = [
        _paths(numbers, day, region, generation),
        pa.MapArray.from_arrays(pairs, keys, values),
        pa.array(1_000_000 + numbers % 1000),
        pa.array(1_700_000_000_000 + numbers),
        pa.repeat(False, count),
        _statistics(numbers, day),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(_ADD))


def _partitions(numbers: np.ndarray) -> tuple[pa.Array, pa.Array]:
    days, regions = _partition_texts()
    return days.take(pa.array(numbers % DAYS)), regions.take(pa.array(numbers // DAYS % REGIONS))


@cache
def _partition_texts() -> tuple[pa.Array, pa.Array]:
    days = pa.array([day_of(number) for number in range(DAYS)])
    return days, pa.array([region_of(number * DAYS) for number in range(REGIONS)])


def _paths(numbers: np.ndarray, day: pa.Array, region: pa.Array, generation: int) -> pa.Array:
    """As Spark names files: a part of each name is like no other's."""
    with np.errstate(over="ignore"):
        mixed = [(numbers.astype(np.uint64) + np.uint64(salt)) * np.uint64(0x9E3779B97F4A7C15) for salt in (1, 2)]
        mixed = [each ^ (each >> np.uint64(29)) for each in mixed]
    unlike = [pa.array(each).cast(pa.string()) for each in mixed]
    return _joined(
        "day=",
        day,
        "/region=",
        region,
        "/part-",
        _padded(numbers, 7),
        "-",
        *unlike,
        f".c{generation:03}.snappy.parquet",
    )


def _statistics(numbers: np.ndarray, day: pa.Array) -> pa.Array:
    lowest = numbers * ROWS
    cents = numbers * 7_919 % 1_000_000
    code = numbers % 997
    return _joined(
        f'{{"numRecords":{ROWS},"minValues":{{"id":',
        _text(lowest),
        ',"amount":',
        _text(cents / 100),
        ',"name":"name',
        _padded(lowest, 11),
        '","ts":"',
        day,
        'T00:00:00.000Z","qty":1,"code":"c',
        _padded(code, 5),
        '"},"maxValues":{"id":',
        _text(lowest + ROWS - 1),
        ',"amount":',
        _text(cents / 100 + 500),
        ',"name":"name',
        _padded(lowest + ROWS - 1, 11),
        '","ts":"',
        day,
        'T23:59:59.999Z","qty":',
        _text(numbers % 100 + 1),
        ',"code":"c',
        _padded(code + 3, 5),
        '"},"nullCount":{"id":0,"amount":0,"name":0,"ts":0,"qty":3,"code":0}}',
    )


def _text(numbers: np.ndarray) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _padded(numbers: np.ndarray, width: int) -> pa.Array:
    return pc.utf8_lpad(_text(numbers), width, "0")


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")

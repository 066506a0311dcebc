"""The history of a table, from the `commitInfo` actions of its commits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.io.threads import LOCAL_PATIENCE, run_in_threads
from tamis.tables.delta.log import LogListing
from tamis.tables.delta.log_time import (
    compute_modification_times,
    find_in_commit_timestamp_version,
    parse_in_commit_timestamp,
    read_commit_info,
)

HISTORY_SCHEMA = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("operation", pa.string()),
        ("operation_parameters", pa.string()),
        ("operation_metrics", pa.string()),
        ("user_id", pa.string()),
        ("user_name", pa.string()),
        ("user_metadata", pa.string()),
        ("engine_info", pa.string()),
        ("read_version", pa.int64()),
        ("isolation_level", pa.string()),
        ("is_blind_append", pa.bool_()),
        ("written_at", pa.timestamp("ms", "UTC")),
    ]
)
"""`timestamp` is the one that time travel uses, `written_at` the one in `commitInfo`. Maps are JSON strings."""

_NAMES = {
    "operation": "operation",
    "operation_parameters": "operationParameters",
    "operation_metrics": "operationMetrics",
    "user_id": "userId",
    "user_name": "userName",
    "user_metadata": "userMetadata",
    "engine_info": "engineInfo",
    "read_version": "readVersion",
    "isolation_level": "isolationLevel",
    "is_blind_append": "isBlindAppend",
    "written_at": "timestamp",
}


def read_history(
    listing: LogListing, configuration: Mapping[str, str], version: int, limit: int | None = None
) -> pa.Table:
    """Return a row for each commit up to a version that is still in the log, newest first, with the columns `HISTORY_SCHEMA`.

    Fields that a writer left out, or wrote with an unexpected type, are null.
    """
    storage = listing.storage
    commits = listing.list_commits(0, version)[::-1]
    if limit is not None:
        commits = commits[: max(limit, 0)]
    patience = LOCAL_PATIENCE if storage.is_local else 0.0
    read = partial(read_commit_info, storage)
    infos = [info or {} for info in run_in_threads(read, commits, storage.threads, patience=patience)]
    versions = [commit.first for commit in commits]
    columns: dict[str, Sequence[Any]] = {
        name: [_to_type(info.get(logged), HISTORY_SCHEMA.field(name).type) for info in infos]
        for name, logged in _NAMES.items()
    }
    columns["version"] = versions
    columns["timestamp"] = _find_timestamps(listing, configuration, versions, infos)
    return pa.table([pa.array(columns[field.name], field.type) for field in HISTORY_SCHEMA], schema=HISTORY_SCHEMA)


def _find_timestamps(
    listing: LogListing, configuration: Mapping[str, str], versions: Sequence[int], infos: Sequence[Mapping[str, Any]]
) -> list[int | None]:
    enabled = find_in_commit_timestamp_version(configuration)
    if listing.modified_ns.null_count:
        written: list[int | None] = [None] * len(versions)
    else:
        written = compute_modification_times(listing)[np.searchsorted(listing.versions, versions)].tolist()
    return [
        parse_in_commit_timestamp(info) if enabled is not None and version >= enabled else time
        for version, info, time in zip(versions, infos, written, strict=True)
    ]


def _to_type(value: Any, data_type: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_boolean(data_type):
        return value if isinstance(value, bool) else None
    if pa.types.is_integer(data_type) or pa.types.is_timestamp(data_type):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return value if is_whole and -(2**63) <= value < 2**63 else None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    # JSON can hold half of a surrogate pair, which UTF-8 cannot encode.
    return text.encode("utf-8", "replace").decode()

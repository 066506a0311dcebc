"""Hand-made Delta logs: commits, compactions, hints, and checkpoints in every form, with or without data files.

    log = DeltaLog(tmp_path, {"id": "long", "day": "string"}, partition_columns=["day"])
    log.commit(add("day=a/1.parquet", {"day": "a"}))           # version 0 also has the protocol and the metadata
    log.commit(remove("day=a/1.parquet"), add("2.parquet"))
    log.checkpoint(1, parts=2)
    log.list_live_files(1)                                     # the live files, by a simple replay

Actions are dictionaries as the log has them, so that a test can break any of them.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

Action = dict[str, Any]

_TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_ADD = [
    ("path", pa.string()),
    ("partitionValues", _TEXTS),
    ("size", pa.int64()),
    ("modificationTime", pa.int64()),
    ("dataChange", pa.bool_()),
    ("stats", pa.string()),
    ("deletionVector", _VECTOR),
]
_REMOVE = [
    ("path", pa.string()),
    ("deletionTimestamp", pa.int64()),
    ("dataChange", pa.bool_()),
    ("deletionVector", _VECTOR),
]
_OTHERS = {
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", pa.list_(pa.string())),
            ("writerFeatures", pa.list_(pa.string())),
        ]
    ),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", _TEXTS),
            ("createdTime", pa.int64()),
        ]
    ),
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64())]),
    "domainMetadata": pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
    "checkpointMetadata": pa.struct([("version", pa.int64())]),
    "sidecar": pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())]),
}


def add(path: str, partition_values: Mapping[str, str | None] | None = None, **fields: Any) -> Action:
    """Return an `add` action. `fields` replace or extend its usual fields: size, stats, deletionVector, …"""
    known = {
        "path": path,
        "partitionValues": dict(partition_values or {}),
        "size": 100,
        "modificationTime": 1_700_000_000_000,
        "dataChange": True,
    }
    return {"add": known | fields}


def remove(path: str, **fields: Any) -> Action:
    return {"remove": {"path": path, "deletionTimestamp": 1_700_000_000_000, "dataChange": True} | fields}


def deletion_vector(name: str = "ab^-aqEH.-t@S}K{vb[*k^", offset: int | None = 1, **fields: Any) -> dict[str, Any]:
    """Return a descriptor for the `deletionVector` of an action. No file is written."""
    known = {"storageType": "u", "pathOrInlineDv": name, "sizeInBytes": 36, "cardinality": 2}
    return known | ({} if offset is None else {"offset": offset}) | fields


def commit_info(**fields: Any) -> Action:
    return {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "WRITE"} | fields}


def protocol(reader: int = 1, writer: int = 2, features: Sequence[str] | None = None) -> Action:
    """Return a `protocol` action. `features` lists required reader features and implies versions 3 and 7."""
    if features is None:
        return {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer}}
    named = {"readerFeatures": list(features), "writerFeatures": list(features)}
    return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | named}


def metadata(
    columns: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    partition_columns: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    **fields: Any,
) -> Action:
    """Return a `metaData` action. Columns are types by name (`{"id": "long"}`) or schema fields."""
    if isinstance(columns, Mapping):
        columns = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    known = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": list(columns)}),
        "partitionColumns": list(partition_columns),
        "configuration": dict(configuration or {}),
        "createdTime": 1_700_000_000_000,
    }
    return {"metaData": known | fields}


class DeltaLog:
    """A log in a folder. Versions count up from 0, unless a test passes a version."""

    def __init__(
        self,
        folder: Path,
        columns: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        *,
        partition_columns: Sequence[str] = (),
        configuration: Mapping[str, str] | None = None,
        features: Sequence[str] | None = None,
        reader: int = 1,
    ) -> None:
        self.table = folder
        self.folder = folder / "_delta_log"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.start: tuple[Action, ...] = (
            protocol(reader, features=features),
            metadata(columns or {"id": "long"}, partition_columns, configuration),
        )
        self.commits: dict[int, tuple[Action, ...]] = {}

    @property
    def version(self) -> int:
        return max(self.commits, default=-1)

    def path(self, version: int, ending: str = "json") -> Path:
        return self.folder / f"{version:020}.{ending}"

    def commit(self, *actions: Action, version: int | None = None, milliseconds: int | None = None) -> int:
        """Write a commit and return its version. `milliseconds` is its modification time.

        Version 0 starts with `self.start`.
        """
        number = self.version + 1 if version is None else version
        if number == 0:
            actions = (*self.start, *actions)
        self.commits[number] = actions
        self.write(number, "".join(f"{format_action(action)}\n" for action in actions or [commit_info()]), milliseconds)
        return number

    def write(self, version: int, text: str | bytes, milliseconds: int | None = None) -> Path:
        """Write a commit with any bytes, valid or not, and return its path."""
        path = self.path(version)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        if milliseconds is not None:
            os.utime(path, ns=(milliseconds * 1_000_000, milliseconds * 1_000_000))
        return path

    def compact(self, first: int, last: int) -> Path:
        """Write a log compaction of the commits from one version to another."""
        path = self.folder / f"{first:020}.{last:020}.compacted.json"
        path.write_text("".join(f"{format_action(action)}\n" for action in self.reconcile(first, last)))
        return path

    def write_hint(self, text: str) -> None:
        (self.folder / "_last_checkpoint").write_text(text)

    def reconcile(self, first: int, last: int) -> list[Action]:
        """Return the actions of several commits after log reconciliation, with the removes."""
        newest: dict[Any, Action] = {}
        for version in range(first, last + 1):
            for action in self.commits[version]:
                ((name, fields),) = action.items()
                if name in ("add", "remove"):
                    key: Any = get_file_key(fields)
                elif name == "txn":
                    key = (name, fields["appId"])
                elif name == "domainMetadata":
                    key = (name, fields["domain"])
                elif name in ("protocol", "metaData"):
                    key = name
                else:
                    continue
                newest.pop(key, None)
                newest[key] = action
        return list(newest.values())

    def list_live_files(self, version: int | None = None) -> list[dict[str, Any]]:
        """Return the adds that are live at a version, by a replay of all commits of this log."""
        actions = self.reconcile(min(self.commits), self.version if version is None else version)
        return [action["add"] for action in actions if "add" in action]

    def checkpoint(
        self,
        version: int | None = None,
        *,
        parts: int | None = None,
        sidecars: int | None = None,
        top: str = "parquet",
        uuid_named: bool = True,
        actions: Sequence[Action] | None = None,
        row_group_size: int | None = None,
        add_fields: Sequence[tuple[str, pa.DataType]] = (),
        omit: Sequence[str] = (),
    ) -> list[Path]:
        """Write a checkpoint, and return its files, the top one first.

        The default is a classic checkpoint. `parts` makes it multi-part. `sidecars` makes it V2, with a `top` file in
        JSON or Parquet (0 sidecars: the top file has all actions); `uuid_named=False` gives it the name of a classic
        one. `actions` replace those of the commits. `add_fields` are further columns of adds (`stats_parsed`),
        and `omit` names usual columns that they lack.
        """
        number = self.version if version is None else version
        held = list(self.reconcile(min(self.commits), number) if actions is None else actions)
        write = _Writer(add_fields, omit, row_group_size)
        if parts is not None:
            paths = [self.path(number, f"checkpoint.{part:010}.{parts:010}.parquet") for part in range(1, parts + 1)]
            for position, path in enumerate(paths):
                write.parquet(path, held[position::parts])
            return paths
        if sidecars is None:
            path = self.path(number, "checkpoint.parquet")
            write.parquet(path, held)
            return [path]
        return self._write_sidecars(number, held, sidecars, top, uuid_named, write)

    def _write_sidecars(
        self, version: int, held: list[Action], sidecars: int, top: str, uuid_named: bool, write: _Writer
    ) -> list[Path]:
        files = [action for action in held if "add" in action or "remove" in action] if sidecars else []
        others = [action for action in held if action not in files]
        (self.folder / "_sidecars").mkdir(exist_ok=True)
        paths = [self.folder / "_sidecars" / f"{uuid.uuid4()}.parquet" for _ in range(sidecars)]
        for position, path in enumerate(paths):
            write.parquet(path, files[position::sidecars], ("add", "remove"))
        own = [
            {"checkpointMetadata": {"version": version}},
            *others,
            *(
                {"sidecar": {"path": path.name, "sizeInBytes": path.stat().st_size, "modificationTime": 1}}
                for path in paths
            ),
        ]
        named = f"checkpoint.{uuid.uuid4()}.{top}" if uuid_named else f"checkpoint.{top}"
        path = self.path(version, named)
        if top == "json":
            path.write_text("".join(f"{format_action(action)}\n" for action in own))
        else:
            write.parquet(path, own)
        return [path, *paths]


class _Writer:
    def __init__(
        self, add_fields: Sequence[tuple[str, pa.DataType]], omit: Sequence[str], row_group_size: int | None
    ) -> None:
        adds = pa.struct([field for field in [*_ADD, *add_fields] if field[0] not in omit])
        self._types = {"add": adds, "remove": pa.struct(_REMOVE), **_OTHERS}
        self._row_group_size = row_group_size

    def parquet(self, path: Path, actions: Sequence[Action], names: Sequence[str] | None = None) -> None:
        present = {name for action in actions for name in action}
        # V2 columns are in V2 checkpoints only.
        usual = names or [
            name for name in self._types if name in present or name not in ("sidecar", "checkpointMetadata")
        ]
        schema = pa.schema([(name, self._types[name]) for name in usual])
        table = pa.Table.from_pylist([_use_pairs(action) for action in actions], schema)
        pq.write_table(table, path, row_group_size=self._row_group_size)


def _use_pairs(value: Any) -> Any:
    """Return a value with its maps as lists of pairs, which pyarrow needs."""
    maps = ("partitionValues", "configuration", "options")
    if isinstance(value, dict):
        return {
            name: list(inner.items()) if name in maps and isinstance(inner, dict) else _use_pairs(inner)
            for name, inner in value.items()
        }
    return value


def format_action(action: Action) -> str:
    return json.dumps(action, separators=(",", ":"), ensure_ascii=False)


def get_file_key(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key that two actions about the same file share."""
    vector = fields.get("deletionVector")
    identity = None if vector is None else (vector["storageType"], vector["pathOrInlineDv"], vector.get("offset"))
    return unquote(fields["path"]), identity

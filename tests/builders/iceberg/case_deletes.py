"""Random deletes in Iceberg tables that are written by hand: the delete files, and the rows they delete."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from builders.iceberg.deletes import deletion_vectors, equality_deletes, position_deletes
from builders.iceberg.tables import File, IcebergFolder
from builders.iceberg.values import to_arrow_type
from builders.values.by_type import make_array
from builders.values.choices import Choices
from tamis.expr.evaluate import to_physical_value


@dataclass(frozen=True)
class StoredFile:
    """A data file: its rows as the table returns them, its sequence number, and its deleted rows."""

    file: File
    rows: pa.Table
    sequence: int
    deleted: frozenset[int] = frozenset()

    @property
    def live_rows(self) -> pa.Table:
        kept = [row for row in range(self.rows.num_rows) if row not in self.deleted]
        return self.rows.take(pa.array(kept, pa.int64()))


@dataclass(frozen=True)
class Deletion:
    """Delete files, and the positions that they delete, by data file path."""

    files: list[File]
    rows_of: dict[str, set[int]]
    description: str


def draw_deletes(choices: Choices, table: IcebergFolder, live: list[StoredFile], sequence: int) -> list[Deletion]:
    """Return one or two kinds of deletes in one commit. A file has at most one deletion vector."""
    found = []
    for kind in choices.some_of(["positions", "values", "vectors"], 1, 2):
        name = f"d{sequence}-{len(found)}"
        if kind == "values":
            made = _delete_by_value(choices, table, live, name, sequence)
        elif kind == "vectors" and table.version > 2:
            made = _delete_by_vector(choices, table, live, name, found)
        else:
            made = _delete_by_position(choices, table, live, name, found)
        if made is not None:
            found.append(made)
    return found


def _choose_rows(choices: Choices, stored: StoredFile) -> set[int]:
    return {row for row in range(stored.rows.num_rows) if choices.flag(3)}


def _delete_by_position(
    choices: Choices, table: IcebergFolder, live: list[StoredFile], name: str, before: list[Deletion]
) -> Deletion | None:
    """Return a position delete file for each partition with deleted rows."""
    rows_of: dict[str, set[int]] = {}
    of_partition: dict[tuple[int, str], list[StoredFile]] = defaultdict(list)
    for stored in live:
        # A deletion vector replaces all position deletes of the same or an earlier commit.
        if stored.file.path in _find_files_with_vectors(table, before) or not choices.flag():
            continue
        if rows := _choose_rows(choices, stored):
            rows_of[stored.file.path] = rows
            of_partition[stored.file.spec, repr(stored.file.partition)].append(stored)
    files = []
    for number, group in enumerate(of_partition.values()):
        deleted = [
            (stored.file.path, row)
            for stored in sorted(group, key=lambda each: each.file.path)
            for row in sorted(rows_of[stored.file.path])
        ]
        files.append(
            position_deletes(
                table,
                f"{name}-{number}.parquet",
                deleted,
                spec=group[0].file.spec,
                partition=group[0].file.partition,
                referenced=deleted[0][0] if len(group) == 1 and choices.flag() else None,
                truncate=choices.one_of([None, 5]),
                metrics={} if choices.flag(5) else None,
            )
        )
    return Deletion(files, rows_of, f"positions {rows_of}") if files else None


def _find_files_with_vectors(table: IcebergFolder, before: list[Deletion]) -> set[str]:
    known = [file for snapshot in table.snapshots[-1:] for file, _ in snapshot.files]
    known += [file for each in before for file in each.files]
    return {file.metrics["referenced_data_file"] for file in known if file.format == "puffin"}


def _delete_by_vector(
    choices: Choices, table: IcebergFolder, live: list[StoredFile], name: str, before: list[Deletion]
) -> Deletion | None:
    gone = {stored.file.path: set(stored.deleted) for stored in live}
    for each in before:
        for path, rows in each.rows_of.items():
            gone[path] |= rows
    has_vector = _find_files_with_vectors(table, before)
    rows_of = {
        stored.file.path: gone[stored.file.path] | _choose_rows(choices, stored)
        for stored in live
        if stored.file.path not in has_vector and choices.flag()
    }
    rows_of = {path: rows for path, rows in rows_of.items() if rows}
    if not rows_of:
        return None
    files = {stored.file.path: stored.file for stored in live}
    vectors = {path: sorted(rows) for path, rows in rows_of.items()}
    return Deletion(deletion_vectors(table, f"{name}.puffin", vectors, files), rows_of, f"vectors {rows_of}")


def _delete_by_value(
    choices: Choices, table: IcebergFolder, live: list[StoredFile], name: str, sequence: int
) -> Deletion | None:
    """Delete rows by equality in one or two columns, in the partition of a file or in all partitions."""
    keys = [each for each in table.fields if each["type"] not in ("float", "double") and isinstance(each["type"], str)]
    chosen = {each["id"]: each for each in choices.some_of(keys, 1, 2)}
    fields = list(chosen.values())
    sources = [stored for stored in live if stored.rows.num_rows]
    if not sources:
        return None
    source = choices.one_of(sources)
    rows = [row for row in range(source.rows.num_rows) if choices.flag()] or [0]
    values = {each["name"]: [to_physical_value(source.rows[each["name"]][row]) for row in rows] for each in fields}
    columns = {each["name"]: make_array(to_arrow_type(each["type"]), values[each["name"]]) for each in fields}
    unpartitioned = [number for number, spec in enumerate(table.specs) if not spec]
    is_global = bool(unpartitioned) and choices.flag()
    spec, partition = (unpartitioned[0], ()) if is_global else (source.file.spec, source.file.partition)
    if choices.flag(4):
        columns["beside"] = pa.array([None] * len(rows), pa.string())
        beside = [*fields, {"id": 99, "name": "beside", "required": False, "type": "string"}]
    else:
        beside = fields
    deleted = set(zip(*(map(_make_key, values[each["name"]]) for each in fields), strict=True))
    file = equality_deletes(
        table,
        f"{name}.parquet",
        pa.table(columns),
        ids=list(chosen),
        fields=beside,
        spec=spec,
        partition=partition,
        metrics={} if choices.flag(5) else None,
    )
    # A spec without fields, or with void fields only, is unpartitioned: its equality deletes apply to all files.
    is_for_all = all(transform == "void" for _, transform, _ in table.specs[spec])
    rows_of = {
        stored.file.path: _find_equal_rows(stored, [each["name"] for each in fields], deleted)
        for stored in live
        if stored.sequence < sequence
        and (is_for_all or (stored.file.spec, repr(stored.file.partition)) == (spec, repr(partition)))
    }
    return Deletion([file], rows_of, f"values {values} of {'all' if is_for_all else partition}")


def _find_equal_rows(stored: StoredFile, names: list[str], deleted: set[tuple[Any, ...]]) -> set[int]:
    found = zip(*([_make_key(to_physical_value(value)) for value in stored.rows[name]] for name in names), strict=True)
    return {row for row, values in enumerate(found) if values in deleted}


def _make_key(value: Any) -> Any:
    """Return a key by which NULL equals NULL, and TRUE differs from 1."""
    return (type(value).__name__, value)

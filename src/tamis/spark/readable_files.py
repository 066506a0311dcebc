"""Find the files that a native Spark scan reads correctly, and their physical column names.

The physical names of columns in files may differ from the logical ones, and older files may lack columns. A native scan
reads such files by their physical names, and renames the columns. Files with the same names are read together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.parquet.field_names import ColumnMapping, MappedField
from tamis.scan.projection import Path, narrow
from tamis.scan.stored_names import AskedColumns, columns_told_apart
from tamis.spark.stored_names import stored_names, stored_names_in
from tamis.tables.delta.table import DeltaTable
from tamis.tables.jobs import Engine, can_serialise
from tamis.tables.source import FILE_FORMAT, PARQUET, TableSource

MOST_READ_HERE = 4096
"""The footers of up to this many files are read in this process, to check whether a native scan supports them; those of
more files in executors."""

MOST_NAMINGS = 4
"""The number of different sets of physical column names for which native scans are used, one scan for each set."""

NOT_READABLE = -1

Names = Mapping[str, str | None]
"""Physical column names by logical names; None for a column that the file lacks, and which is NULL there."""

_GLOB = re.compile(r"[{}\[\]*?\\]")
"""Characters that Spark interprets as glob patterns."""


@dataclass(frozen=True)
class ReadableFiles:
    """For each file of a listing, the index of its physical names, or `NOT_READABLE`."""

    naming: npt.NDArray[np.int64]
    names: Sequence[Names]

    @staticmethod
    def none(count: int) -> ReadableFiles:
        return ReadableFiles(np.full(count, NOT_READABLE), ())


def readable_files(source: TableSource, files: pa.Table, needed: Sequence[Path], engine: Engine) -> ReadableFiles:
    """Return which files a native scan reads correctly.

    These have no deleted rows, paths without special characters, and the types of the table. Delta's writers
    guarantee the types; for other formats, they are checked in the footers.
    """
    paths = [path for path in needed if path[0] not in source.partition_columns]
    is_plain = _find_plain_files(files)
    if isinstance(source, DeltaTable) and (source.field_names is None or not source.field_names.by_id):
        names = _find_names_in_log(source.field_names, narrow(source.schema, paths).names)
        return (
            ReadableFiles.none(len(is_plain))
            if names is None
            else ReadableFiles(np.where(is_plain, 0, NOT_READABLE), [names])
        )
    return _check_footers(source, files, paths, is_plain, engine)


def _find_plain_files(files: pa.Table) -> npt.NDArray[np.bool_]:
    paths = files["path"]
    has_glob = pc.match_substring_regex(paths, _GLOB.pattern)
    # Spark ignores files whose names start or end like this.
    is_hidden = pc.match_substring_regex(paths, r"(^|/)[._][^/]*$|\._COPYING_$")
    plain = pc.invert(pc.or_(has_glob, is_hidden))
    if "deletion_vector" in files.column_names:
        plain = pc.and_(plain, pc.is_null(files["deletion_vector"]))
    if "deletes" in files.column_names:
        plain = pc.and_(plain, pc.equal(pc.fill_null(pc.list_value_length(files["deletes"]), 0), 0))
    if FILE_FORMAT in files.column_names:
        plain = pc.and_(plain, pc.equal(files[FILE_FORMAT].cast(pa.string()), PARQUET))
    return np.array(plain.combine_chunks() if isinstance(plain, pa.ChunkedArray) else plain)


def _find_names_in_log(names: ColumnMapping | None, columns: Sequence[str]) -> Names | None:
    """Return the physical column names of all files, from the log; None if nested fields are renamed."""
    if names is None:
        return {}
    physical = {each.name: (str(key), each) for key, each in names.fields.items()}
    wanted = [physical[name] for name in columns]
    is_distinct = len({key.casefold() for key, _ in physical.values()}) == len(physical)
    if not is_distinct or any(_has_renamed_fields(each) for _, each in wanted):
        return None
    return {each.name: key for key, each in wanted}


def _has_renamed_fields(field: MappedField) -> bool:
    return any(key != inner.name or _has_renamed_fields(inner) for key, inner in field.inner.items())


def _check_footers(
    source: TableSource, files: pa.Table, paths: Sequence[Path], is_plain: npt.NDArray[np.bool_], engine: Engine
) -> ReadableFiles:
    candidates = np.flatnonzero(is_plain)
    asked = AskedColumns(narrow(source.schema, paths), paths, source.field_names, columns_told_apart(files))
    chosen = files.select(["path", "size", "modified_ns"]).take(pa.array(candidates))
    if len(candidates) <= MOST_READ_HERE:
        found = stored_names(source.storage, chosen, asked)
    elif can_serialise(source.storage):
        found = stored_names_in(engine, source.storage, chosen, asked, source.name)
    else:
        return ReadableFiles.none(files.num_rows)
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(kind for kind in found if kind is not None))}
    naming = np.full(files.num_rows, NOT_READABLE)
    naming[candidates] = [NOT_READABLE if kind is None else kinds[kind] for kind in found]
    if len(kinds) > MOST_NAMINGS:
        counts = np.bincount(naming[naming >= 0], minlength=len(kinds))
        naming[~np.isin(naming, np.argsort(-counts, kind="stable")[:MOST_NAMINGS])] = NOT_READABLE
    return ReadableFiles(naming, [dict(zip(asked.schema.names, kind, strict=True)) for kind in kinds])

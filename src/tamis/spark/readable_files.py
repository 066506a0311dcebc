"""Which files Spark's own Parquet reader reads as they are read here, and what those call the columns of the table.

Files may know columns by other names than the table does, or lack some that came later: such files are read by their
own names, and the columns put in place. Files with the same names are read together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.parquet.field_names import FieldName, FieldNames
from tamis.scan.projection import Path, narrow
from tamis.scan.stored_names import AskedColumns, columns_told_apart
from tamis.spark.stored_names import stored_names, stored_names_in
from tamis.tables.delta.table import DeltaTable
from tamis.tables.jobs import Engine, can_travel
from tamis.tables.source import FILE_FORMAT, PARQUET, TableSource

MOST_READ_HERE = 4096
"""Of so many files without a log the footers are read in this process, to see whether Spark's reader understands them;
of more by the executors."""

MOST_NAMINGS = 4
"""Files with so many different names for the columns are given to Spark's reader, each kind in a scan of its own."""

NOT_READABLE = -1

Names = Mapping[str, str | None]
"""What a file calls columns, by their names in the table; None for one that it lacks, and that is NULL there."""

_GLOB = re.compile(r"[{}\[\]*?\\]")
"""Signs that Spark takes for a pattern."""


@dataclass(frozen=True)
class ReadableFiles:
    """For each file of a listing the number of its names, or `NOT_READABLE`."""

    naming: npt.NDArray[np.int64]
    names: Sequence[Names]

    @staticmethod
    def none(count: int) -> ReadableFiles:
        return ReadableFiles(np.full(count, NOT_READABLE), ())


def readable_files(source: TableSource, files: pa.Table, needed: Sequence[Path], engine: Engine) -> ReadableFiles:
    """Which files Spark's reader can be given.

    Those are without deleted rows, under paths that it takes as they are, and of the table's types: it would read
    others as they are not. Delta's writers see to that; of other files the footers tell.
    """
    paths = [path for path in needed if path[0] not in source.partition_columns]
    is_plain = _are_plain(files)
    if isinstance(source, DeltaTable) and (source.field_names is None or not source.field_names.by_id):
        names = _names_of_log(source.field_names, narrow(source.schema, paths).names)
        return (
            ReadableFiles.none(len(is_plain))
            if names is None
            else ReadableFiles(np.where(is_plain, 0, NOT_READABLE), [names])
        )
    return _by_footers(source, files, paths, is_plain, engine)


def _are_plain(files: pa.Table) -> npt.NDArray[np.bool_]:
    paths = files["path"]
    odd = pc.match_substring_regex(paths, _GLOB.pattern)
    # Files whose names start or end so are invisible to Spark.
    hidden = pc.match_substring_regex(paths, r"(^|/)[._][^/]*$|\._COPYING_$")
    plain = pc.invert(pc.or_(odd, hidden))
    if "deletion_vector" in files.column_names:
        plain = pc.and_(plain, pc.is_null(files["deletion_vector"]))
    if "deletes" in files.column_names:
        plain = pc.and_(plain, pc.equal(pc.fill_null(pc.list_value_length(files["deletes"]), 0), 0))
    if FILE_FORMAT in files.column_names:
        plain = pc.and_(plain, pc.equal(files[FILE_FORMAT].cast(pa.string()), PARQUET))
    return np.array(plain.combine_chunks() if isinstance(plain, pa.ChunkedArray) else plain)


def _names_of_log(names: FieldNames | None, columns: Sequence[str]) -> Names | None:
    """What all files of a table call columns, as its log has it; None where fields inside of them have other names."""
    if names is None:
        return {}
    stored = {each.name: (str(key), each) for key, each in names.fields.items()}
    wanted = [stored[name] for name in columns]
    is_clear = len({key.casefold() for key, _ in stored.values()}) == len(stored)
    if not is_clear or any(_has_other_names(each) for _, each in wanted):
        return None
    return {each.name: key for key, each in wanted}


def _has_other_names(field: FieldName) -> bool:
    return any(key != inner.name or _has_other_names(inner) for key, inner in field.inner.items())


def _by_footers(
    source: TableSource, files: pa.Table, paths: Sequence[Path], is_plain: npt.NDArray[np.bool_], engine: Engine
) -> ReadableFiles:
    candidates = np.flatnonzero(is_plain)
    asked = AskedColumns(narrow(source.schema, paths), paths, source.field_names, columns_told_apart(files))
    taken = files.select(["path", "size", "modified_ns"]).take(pa.array(candidates))
    if len(candidates) <= MOST_READ_HERE:
        told = stored_names(source.storage, taken, asked)
    elif can_travel(source.storage):
        told = stored_names_in(engine, source.storage, taken, asked, source.name)
    else:
        return ReadableFiles.none(files.num_rows)
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(kind for kind in told if kind is not None))}
    naming = np.full(files.num_rows, NOT_READABLE)
    naming[candidates] = [NOT_READABLE if kind is None else kinds[kind] for kind in told]
    if len(kinds) > MOST_NAMINGS:
        counts = np.bincount(naming[naming >= 0], minlength=len(kinds))
        naming[~np.isin(naming, np.argsort(-counts, kind="stable")[:MOST_NAMINGS])] = NOT_READABLE
    return ReadableFiles(naming, [dict(zip(asked.schema.names, kind, strict=True)) for kind in kinds])

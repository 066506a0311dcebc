"""Physical column names: how each file names the columns of a scan, read from its footer for native scans."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tamis.formats.source import IDENTITY_VALUES, parse_absent_column_name
from tamis.io.storage import Storage
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.footer import load_footer
from tamis.parquet.footer.leaves import FileSchema
from tamis.parquet.footer.statistics import has_short_chunks
from tamis.scan.planning.projection import Path

NamesInFile = tuple[str | None, ...]
"""The physical names of columns in one file, in order; None if the file has no such column, and its values are NULL."""


@dataclass(frozen=True)
class NativeScanColumns:
    """The columns that a native scan reads: the fields of a table at some paths."""

    schema: pa.Schema
    paths: Sequence[Path]
    names: ColumnMapping | None
    columns_with_values: Collection[str]
    """Columns that have a known value in some file that may lack them."""

    def to_json(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return {
            "schema": b64encode(self.schema.serialize()).decode(),
            "paths": [list(path) for path in self.paths],
            "names": None if self.names is None else self.names.to_json(),
            "columns_with_values": sorted(self.columns_with_values),
        }

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> NativeScanColumns:
        """Return the columns that `to_json` serialised."""
        return NativeScanColumns(
            pa.ipc.read_schema(pa.BufferReader(b64decode(given["schema"]))),
            [tuple(path) for path in given["paths"]],
            None if given["names"] is None else ColumnMapping.from_json(given["names"]),
            given["columns_with_values"],
        )

    def read_names(self, storage: Storage, path: str, size: int, modified_ns: int | None) -> NamesInFile | None:
        """Return the physical names of the columns in a file, from its footer; None as for `find_names`."""
        footer = load_footer(storage, path, size, modified_ns)[0]
        # Not all readers support column chunks that are longer than the footer records.
        return None if has_short_chunks(footer.metadata) else self.find_names(footer.schema, storage.format_path(path))

    def find_names(self, own: FileSchema, location: str) -> NamesInFile | None:
        """Return the physical names of the columns in a file; None if another reader would return other values."""
        if self.names is None:
            fits = _has_types(own.arrow, self.schema, may_lack=True) and not self._has_timestamps_to_rebase(own, own)
            return tuple(self.schema.names) if fits else None
        self.names.check(own, location)
        renamed = self.names.with_logical_names(own)
        if self._has_timestamps_to_rebase(own, renamed):
            return None
        found: list[str | None] = []
        spelled = [name.casefold() for name in own.arrow.names]
        for field in self.schema:
            indices = renamed.arrow.get_all_field_indices(field.name)
            if not indices and not self._has_value_if_absent(field.name):
                found.append(None)
                continue
            stored = own.arrow.field(indices[0]) if len(indices) == 1 else None
            if stored is None or spelled.count(stored.name.casefold()) > 1:
                return None
            # Fields inside a struct cannot be renamed, so they must have the table's names.
            if stored.type != renamed.arrow.field(indices[0]).type or not _is_same_type(stored.type, field.type):
                return None
            found.append(stored.name)
        return tuple(found)

    def _has_value_if_absent(self, column: str) -> bool:
        assert self.names is not None
        return column in self.columns_with_values or any(path[0] == column for path in self.names.defaults)

    def _has_timestamps_to_rebase(self, own: FileSchema, renamed: FileSchema) -> bool:
        """Return whether Spark would rebase old timestamps differently: see `tamis.parquet.footer.datetime_rebase`.

        Rebased days are the same in every reader, except for tables that are always Gregorian. Rebased timestamps
        depend on Spark's time zone.
        """
        leaves = {leaf for path in self.paths for leaf in renamed.find_leaves_to_read(path)}
        days = () if self.names is not None and self.names.is_always_gregorian else ("INT32",)
        return any(leaf in own.leaves_to_rebase and own.types[leaf].physical not in days for leaf in leaves)


def find_columns_with_values(files: pa.Table) -> frozenset[str]:
    """Return the columns that have a known value in some file that may lack them."""
    if IDENTITY_VALUES not in files.column_names:
        return frozenset()
    keys = map(parse_absent_column_name, files[IDENTITY_VALUES].type.names)
    return frozenset(key if isinstance(key, str) else key[0] for key in keys)


def _has_types(stored: pa.Schema | pa.StructType, wanted: pa.Schema | pa.StructType, *, may_lack: bool) -> bool:
    """Return whether a file has the wanted fields in their types, each name once regardless of case.

    A field that the file may lack is NULL for Spark.
    """
    names = [field.name.casefold() for field in stored]
    for field in wanted:
        count = names.count(field.name.casefold())
        if count > 1 or (count == 0 and not may_lack):
            return False
        if count == 1:
            own = stored.field(names.index(field.name.casefold()))
            if not _is_same_type(own.type, field.type, may_lack=may_lack):
                return False
    return True


def _is_same_type(stored: pa.DataType, wanted: pa.DataType, *, may_lack: bool = False) -> bool:
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        return _has_types(stored, wanted, may_lack=may_lack)
    plain = [each.value_type if pa.types.is_dictionary(each) else each for each in (stored, wanted)]
    return bool(plain[0] == plain[1])

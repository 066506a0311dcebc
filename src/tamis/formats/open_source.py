"""Open a table at a location or in a catalog: find out its format, and check which arguments fit it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from tamis.errors import InvalidArgument, UnsupportedFeature, check_flags, make_argument_error, suggest_name
from tamis.formats.detect import is_delta, is_iceberg, reject_nested_directory
from tamis.formats.errors import check_installed
from tamis.formats.jobs import Planning
from tamis.formats.source import FileIndex, TableSource
from tamis.io.storage import Storage, open_storage
from tamis.io.storage_options import check_storage_options
from tamis.parquet.footer.leaves import Int96, check_int96
from tamis.skipping.handler import ExpressionHandler, check_handler
from tamis.tuning import Tuning, check_tuning

if TYPE_CHECKING:
    from tamis.formats.iceberg.metadata.open_metadata import OpenedTable
import sys
from collections.abc import Callable, Sequence

# --- Catalogs -------------------------------------------------------------------------------------------------------
#
# Catalogs of tables, as sessions attach them. Iceberg has catalogs; the other formats have none.


class AttachedCatalog(Protocol):
    """A catalog of lake tables."""

    def open(self, name: Sequence[str]) -> TableSource: ...

    def names(self, source: TableSource) -> Sequence[str]:
        """Return every name of a table, without the catalog's name in the session. Policies apply under each one."""
        ...

    def is_same(self, other: AttachedCatalog) -> bool:
        """Return whether another catalog has the same tables."""
        ...

    def table_names(self) -> Sequence[str]: ...


def is_catalog(given: Any) -> bool:
    """Return whether it is a catalog of pyiceberg. The library is not imported for it."""
    module = sys.modules.get("pyiceberg.catalog")
    return module is not None and isinstance(given, module.Catalog)


def attach_catalog(
    name: str,
    catalog: object,
    open_table: Callable[[str, object], TableSource],
    names_of: Callable[[TableSource], Sequence[str]],
) -> AttachedCatalog:
    """Return a catalog under its name in a session: one of pyiceberg's, or the properties or the name of one.

    `open_table` opens a table by `namespace.table` and the loaded catalog; `names_of` returns further names of a table.
    """
    check_installed()
    # Imported lazily: Iceberg's dependencies are optional.
    from tamis.formats.iceberg.catalogs import AttachedIcebergCatalog, open_catalog

    return AttachedIcebergCatalog(name, open_catalog(catalog), open_table, names_of)


FORMATS = ("delta", "iceberg", "hive", "parquet")
"""The names of formats. In a query they precede the back-ticked path of a table, as in Spark."""


class FindIndex(Protocol):
    """Finds the statistics index of a table; None if it has none."""

    def __call__(
        self,
        table: Storage,
        location: object,
        storage_options: Mapping[str, Any] | None = None,
        *,
        table_id: str | None = None,
    ) -> FileIndex | None: ...


def open_source(
    uri: str | os.PathLike[str],
    format: str | None = None,
    version: int | None = None,
    timestamp: object = None,
    snapshot_id: int | None = None,
    ref: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    catalog: object = None,
    *,
    changes: object = None,
    partitioning: Mapping[str, str | pa.DataType] | None = None,
    merge_schema: bool = False,
    allow_outside: bool = False,
    relocate: bool = True,
    index: str | os.PathLike[str] | bool | None = None,
    int96: Int96 = "instant",
    tuning: Tuning | None = None,
    handler: ExpressionHandler | None = None,
    planning: Planning | None = None,
    find_index: FindIndex | None = None,
) -> TableSource:
    """Open the format's implementation of a table.

    `planning` decides where its plans are made, and `find_index` finds a statistics index; without it, no index is
    used.
    """
    if format is not None and format not in FORMATS:
        raise InvalidArgument(
            f"no table format {format!r}.{suggest_name(format, FORMATS)} Formats: {', '.join(FORMATS)}"
        )
    if partitioning is not None:
        from tamis.formats.hive.partition_types import check_partitioning

        check_partitioning(partitioning)
    check_flags(merge_schema=merge_schema, allow_outside=allow_outside, relocate=relocate)
    check_storage_options(storage_options)
    check_int96(int96)
    if not isinstance(uri, str | os.PathLike):
        raise make_argument_error("uri", "the path or the URI of a table", uri)
    chosen_int96 = None if int96 == "instant" else int96
    thresholds = check_tuning(tuning)
    check_handler(handler)

    def refuse_for_iceberg() -> None:
        """Raise an error for an argument that an Iceberg table does not have, or if pyiceberg is missing."""
        own = {
            "changes": changes,
            "merge_schema": merge_schema or None,
            "int96": chosen_int96,
            "partitioning": partitioning,
        }
        _refuse_given("an Iceberg table", **own)
        if index not in (None, False):
            raise InvalidArgument(
                "index= was given, and an Iceberg table has no index: its manifests have the statistics of its files. "
                "Open it without index="
            )
        if version is not None and snapshot_id is not None:
            raise InvalidArgument("version= is the id of a snapshot of an Iceberg table: give it or snapshot_id=")
        check_installed()

    def open_snapshot(opened: OpenedTable) -> TableSource:
        from tamis.formats.iceberg.table import IcebergTable

        number = snapshot_id if version is None else version
        return IcebergTable.open(opened, number, ref, check_timestamp(timestamp), planning=planning)

    if catalog is not None:
        if format not in (None, "iceberg"):
            raise InvalidArgument(f"a catalog has Iceberg tables, not {format}: open it without format= or catalog=")
        refuse_for_iceberg()
        # Imported here, because each format needs modules that the others do not.
        from tamis.formats.iceberg.catalogs import open_in_catalog

        options = {"relocate": relocate, "allow_outside": allow_outside}
        return open_snapshot(
            open_in_catalog(os.fspath(uri), catalog, storage_options, **options, tuning=thresholds, handler=handler)
        )
    storage = open_storage(uri, storage_options).with_outside_links(allow_outside).with_tuning(thresholds)
    storage = storage.with_handler(handler)
    if format == "delta" or (format is None and is_delta(storage)):
        _refuse_given("a Delta table", snapshot_id=snapshot_id, ref=ref, catalog=catalog, partitioning=partitioning)
        if merge_schema or chosen_int96:
            given = "merge_schema" if merge_schema else "int96"
            raise InvalidArgument(
                f"{given}= was given, but the log of a Delta table has its schema: open it without {given}="
            )
        from tamis.formats.delta.table import DeltaTable

        at = check_timestamp(timestamp)
        delta = DeltaTable.open(storage, version, at, allow_outside=allow_outside, planning=planning)
        if changes is not None:
            if version is not None or at is not None:
                raise InvalidArgument("changes= has the versions: open the table without version= and timestamp=")
            from tamis.formats.delta.changes import open_changes

            return open_changes(delta, changes)
        table_id = delta.snapshot.metadata.id
        found = None if find_index is None else find_index(storage, index, storage_options, table_id=table_id)
        return replace(delta, index=found)
    if format == "iceberg" or (format is None and is_iceberg(storage)):
        refuse_for_iceberg()
        from tamis.formats.iceberg.metadata.open_metadata import open_location

        return open_snapshot(open_location(storage, relocate=relocate, allow_outside=allow_outside))
    plain = "a table of plain Parquet files"
    _refuse_given(
        plain,
        version=version,
        timestamp=timestamp,
        snapshot_id=snapshot_id,
        ref=ref,
        catalog=catalog,
        changes=changes,
    )
    if format is None:
        reject_nested_directory(storage)
    from tamis.formats.hive.table import HiveTable

    table = HiveTable.open(
        storage,
        partitioning,
        merge_schema=merge_schema,
        int96=int96,
        planning=planning,
        find_index=lambda: None if find_index is None else find_index(storage, index, storage_options),
    )
    if format is not None and format != table.format:
        raise InvalidArgument(f"'{table.storage.uri}' is a {table.format} table, not {format}: open it without format=")
    return table


def _refuse_given(kind: str, **given: object) -> None:
    asked = [name for name, value in given.items() if value is not None]
    if asked:
        raise UnsupportedFeature(f"{asked[0]}= was given, which {kind} does not have: open it without {asked[0]}=")


def check_timestamp(timestamp: object) -> datetime | str | None:
    if timestamp is None or isinstance(timestamp, datetime | str):
        return timestamp
    raise InvalidArgument(f"timestamp must be a datetime or a text such as '2024-03-01T12:00:00Z', found {timestamp!r}")

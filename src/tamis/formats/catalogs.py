"""Catalogs of tables, as sessions attach them. Iceberg has catalogs; the other formats have none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tamis.formats.iceberg.dependencies import check_installed
from tamis.formats.source import TableSource


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
    """Whether it is a catalog of pyiceberg. The library is not imported for it."""
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
    from tamis.formats.iceberg.catalogs.open_table import AttachedIcebergCatalog

    return AttachedIcebergCatalog.of(name, catalog, open_table, names_of)

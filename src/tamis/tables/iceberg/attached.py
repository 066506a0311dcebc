"""Iceberg catalogs that are attached to a session under a name: `prod.shop.orders`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from pyiceberg.catalog import Catalog

from tamis.errors import InvalidArgument, StorageError
from tamis.tables.iceberg.catalog_loading import PARSE_ERRORS, format_error, list_catalog_errors, open_catalog
from tamis.tables.source import TableSource

MAX_LISTED_TABLES = 1000
"""The largest number of table names that messages and listings contain."""


@dataclass(frozen=True)
class AttachedIcebergCatalog:
    """An attached catalog and its tables."""

    attached_as: str
    catalog: Catalog
    open_table: Callable[[str, Catalog], TableSource]
    """Opens a table by `namespace.table`."""
    names_of: Callable[[TableSource], Sequence[str]]
    """Returns further names by which policies may refer to a table."""

    @staticmethod
    def of(
        name: str,
        catalog: object,
        open_table: Callable[[str, Catalog], TableSource],
        names_of: Callable[[TableSource], Sequence[str]],
    ) -> AttachedIcebergCatalog:
        return AttachedIcebergCatalog(name, open_catalog(catalog), open_table, names_of)

    def open(self, name: Sequence[str]) -> TableSource:
        if len(name) < 2:
            raise InvalidArgument(
                f"the tables of the catalog {self.attached_as!r} are in namespaces: write "
                f"{self.attached_as}.namespace.{'.'.join(name)}"
            )
        return self.open_table(".".join(name), self.catalog)

    def names(self, source: TableSource) -> Sequence[str]:
        return self.names_of(source)

    def is_same(self, other: object) -> bool:
        if not isinstance(other, AttachedIcebergCatalog):
            return False
        one, two = self.catalog, other.catalog
        # Catalogs that share a database differ only by name. Treating too many as the same is the safe error here.
        return one is two or _normalize_location(one) == _normalize_location(two)

    def table_names(self) -> Sequence[str]:
        try:
            return [".".join(name) for name in islice(self._walk_tables(()), MAX_LISTED_TABLES)]
        except (*PARSE_ERRORS, *list_catalog_errors()) as error:
            raise StorageError(
                f"the catalog {self.attached_as!r} cannot list its tables: {format_error(error)}"
            ) from error

    def _walk_tables(self, namespace: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if namespace:
            yield from self.catalog.list_tables(namespace)
        for each in self.catalog.list_namespaces(namespace):
            # Some catalogs also return the namespace itself, or namespaces further down.
            if len(each) == len(namespace) + 1:
                yield from self._walk_tables(tuple(each))


def _normalize_location(catalog: Catalog) -> str:
    """Return the normalized location of a catalog."""
    uri = str(catalog.properties.get("uri") or catalog.properties.get("warehouse") or catalog.name)
    scheme, _, path = uri.partition(":///")
    return os.path.realpath(path) if scheme.startswith("sqlite") else uri.rstrip("/").casefold()

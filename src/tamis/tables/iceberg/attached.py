"""Catalogs of Iceberg tables under a name of a session: `prod.shop.orders`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from pyiceberg.catalog import Catalog

from tamis.errors import InvalidArgument, StorageError
from tamis.tables.iceberg.catalog_loading import PARSING, load, raised_by_catalogs, said
from tamis.tables.source import TableSource

MOST_NAMES = 1000
"""Of tables that are told."""


@dataclass(frozen=True)
class AttachedIceberg:
    """The tables of a catalog."""

    attached_as: str
    catalog: Catalog
    open_table: Callable[[str, Catalog], TableSource]
    """By `namespace.table`."""
    names_of: Callable[[TableSource], Sequence[str]]
    """By which policies know a table, besides the one it has here."""

    @staticmethod
    def of(
        name: str,
        catalog: object,
        open_table: Callable[[str, Catalog], TableSource],
        names_of: Callable[[TableSource], Sequence[str]],
    ) -> AttachedIceberg:
        return AttachedIceberg(name, load(catalog), open_table, names_of)

    def open(self, name: Sequence[str]) -> TableSource:
        if len(name) < 2:
            raise InvalidArgument(
                f"{self.attached_as!r} is a catalog, whose tables are in namespaces: write "
                f"{self.attached_as}.namespace.{'.'.join(name)}"
            )
        return self.open_table(".".join(name), self.catalog)

    def names(self, source: TableSource) -> Sequence[str]:
        return self.names_of(source)

    def is_same(self, other: object) -> bool:
        if not isinstance(other, AttachedIceberg):
            return False
        one, two = self.catalog, other.catalog
        # A name tells apart only the catalogs that share a database. Rather too many are the same than too few.
        return one is two or _place(one) == _place(two)

    def table_names(self) -> Sequence[str]:
        try:
            return [".".join(name) for name in islice(self._tables(()), MOST_NAMES)]
        except (*PARSING, *raised_by_catalogs()) as error:
            raise StorageError(f"the catalog {self.attached_as!r} does not tell its tables: {said(error)}") from error

    def _tables(self, namespace: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if namespace:
            yield from self.catalog.list_tables(namespace)
        for each in self.catalog.list_namespaces(namespace):
            # Some list themselves, or namespaces that are further down.
            if len(each) == len(namespace) + 1:
                yield from self._tables(tuple(each))


def _place(catalog: Catalog) -> str:
    """Where a catalog is, however that is written."""
    uri = str(catalog.properties.get("uri") or catalog.properties.get("warehouse") or catalog.name)
    scheme, _, path = uri.partition(":///")
    return os.path.realpath(path) if scheme.startswith("sqlite") else uri.rstrip("/").casefold()

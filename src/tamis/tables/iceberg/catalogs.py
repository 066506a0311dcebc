"""Iceberg tables opened by a catalog of pyiceberg.

A catalog tells where the metadata of a table is, which is then read as that of any other table. pyiceberg parses it as
well, and knows less: where it fails, and the catalog can be asked for the place alone, that is enough.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg import exceptions as theirs
from pyiceberg.catalog import Catalog, load_catalog

from tamis.errors import (
    InvalidArgument,
    MissingDependency,
    StorageError,
    TableNotFound,
    UnsupportedFeature,
    one_line,
    with_article,
)
from tamis.io.storage import Storage, open_storage
from tamis.io.storage_options import is_of_the_storage
from tamis.tables.iceberg.metadata import parse_metadata
from tamis.tables.iceberg.opening import Opened, read_all
from tamis.tables.iceberg.relocation import Location, Relocation

_PARSING = (ValueError, TypeError, KeyError, AttributeError, theirs.ValidationError)
"""What pyiceberg raises for metadata, and for properties, that it does not know."""

_OF_PYICEBERG = tuple(each for each in vars(theirs).values() if isinstance(each, type) and issubclass(each, Exception))

_OF_OTHERS = (
    ("sqlalchemy.exc", "SQLAlchemyError"),
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("thrift.Thrift", "TException"),
    ("google.api_core.exceptions", "GoogleAPIError"),
    ("google.auth.exceptions", "GoogleAuthError"),
)
"""The roots of what the libraries behind catalogs raise."""


def open_in_catalog(
    identifier: str,
    catalog: object,
    storage_options: Mapping[str, Any] | None = None,
    *,
    allow_outside: bool = False,
) -> Opened:
    """Open `namespace.table` of a catalog: one of pyiceberg's, or the properties or the name of one."""
    opened = _catalog(catalog)
    found = _find(opened, identifier)
    at_file = _storage(found.place, found, storage_options)
    metadata = parse_metadata(read_all(at_file, at_file.root), found.place)
    folder = _storage(metadata.location, found, storage_options)

    def reopen() -> Opened:
        return open_in_catalog(identifier, opened, storage_options, allow_outside=allow_outside)

    name = Catalog.table_name_from(identifier)
    return Opened(metadata, Relocation(folder, metadata.location, allow_outside), reopen, name)


def _catalog(given: object) -> Catalog:
    if isinstance(given, Catalog):
        return given
    try:
        if isinstance(given, str):
            return load_catalog(given)
        if isinstance(given, Mapping):
            properties = {str(name): value for name, value in given.items()}
            return load_catalog(str(properties.pop("name", "tamis")), **properties)
    except theirs.NotInstalledError as error:
        raise MissingDependency(f"the catalog cannot be opened: {one_line(error)}") from error
    except _raised(*_PARSING, ImportError) as error:
        raise InvalidArgument(f"the catalog cannot be opened: {one_line(error)}") from error
    raise InvalidArgument(
        "catalog= is a catalog of pyiceberg, its properties as in {'type': 'sql', 'uri': 'sqlite:///…'}, or the name "
        f"of a configured one, not {with_article(type(given).__name__)}"
    )


def _raised(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """What catalogs raise that cannot do what they should: their own errors, and those of libraries that are loaded."""
    loaded = [getattr(sys.modules[module], name, None) for module, name in _OF_OTHERS if module in sys.modules]
    known = [each for each in loaded if isinstance(each, type) and issubclass(each, Exception)]
    return (OSError, *more, *_OF_PYICEBERG, *known)


@dataclass(frozen=True)
class _Found:
    """A table of a catalog."""

    place: str
    """Of its metadata file."""
    properties: Mapping[str, Any]
    """Of the catalog, and what it says of this table."""


def _find(catalog: Catalog, identifier: str) -> _Found:
    names = identifier.split(".")
    if len(names) < 2 or not all(name.strip() for name in names):
        raise InvalidArgument(f"{identifier!r} is no table of the catalog '{catalog.name}': give namespace.table")
    what = f"'{identifier}' of the catalog '{catalog.name}'"
    try:
        table = catalog.load_table(identifier)
    except (theirs.NoSuchTableError, theirs.NoSuchNamespaceError, theirs.NoSuchIdentifierError) as error:
        raise TableNotFound(f"no table '{identifier}' in the catalog '{catalog.name}': {one_line(error)}") from error
    except theirs.NotInstalledError as error:
        raise MissingDependency(f"{what} cannot be loaded: {one_line(error)}") from error
    except _PARSING as error:
        place = _place_in_database(catalog, identifier)
        if place is None:
            raise UnsupportedFeature(
                f"pyiceberg does not read what is told of {what}: {one_line(error)[:500]}. Open the table by its "
                "folder or its metadata file instead"
            ) from error
        return _Found(place, catalog.properties)
    except _raised() as error:
        raise StorageError(f"{what} cannot be loaded: {one_line(error)}") from error
    return _Found(table.metadata_location, table.io.properties)


def _place_in_database(catalog: Catalog, identifier: str) -> str | None:
    """Where a catalog that is a database says that the metadata of a table is; None for other catalogs."""
    module = sys.modules.get("pyiceberg.catalog.sql")
    if module is None or not isinstance(catalog, module.SqlCatalog):
        return None
    from sqlalchemy import select

    tables = module.IcebergTables
    namespace = Catalog.namespace_to_string(Catalog.namespace_from(identifier))
    query = select(tables.metadata_location).where(
        tables.catalog_name == catalog.name,
        tables.table_namespace == namespace,
        tables.table_name == Catalog.table_name_from(identifier),
    )
    with catalog.engine.connect() as connection:
        found: str | None = connection.execute(query).scalar()
    return found


def _storage(place: str, found: _Found, given: Mapping[str, Any] | None) -> Storage:
    """The storage of a place, with the options that are given, or else with what a catalog says of S3."""
    if given is not None or Location.of(place).scheme != "s3":
        return open_storage(place, given)
    told = {name: value for name, value in found.properties.items() if value is not None and is_of_the_storage(name)}
    return open_storage(place, told or None)

"""Opening Iceberg tables through a pyiceberg catalog.

A catalog returns the location of a table's metadata file, which is then read like that of any other table. pyiceberg
parses the metadata too, but supports less: where it fails, the location alone is enough if the catalog can return it.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg import exceptions as pyiceberg_exceptions
from pyiceberg.catalog import Catalog

from tamis.errors import InvalidArgument, MissingDependency, StorageError, TableNotFound, UnsupportedFeature
from tamis.io.listing import find_file
from tamis.io.other_stores import with_other_stores
from tamis.io.storage import Storage, open_storage
from tamis.io.storage_options import is_of_the_storage
from tamis.tables.iceberg.catalog_loading import (
    ACCESS_ERRORS,
    AUTHORIZATION_HINT,
    PARSE_ERRORS,
    format_error,
    list_catalog_errors,
    open_catalog,
)
from tamis.tables.iceberg.metadata import Metadata, parse_metadata
from tamis.tables.iceberg.opening import OpenedTable, find_table_root, read_bytes
from tamis.tables.iceberg.relocation import Location, Relocation
from tamis.tables.iceberg.rest_answers import is_rest_catalog, record_responses, reject_unsupported_demands

_S3_PREFIX, _CLIENT_PREFIX = "s3.", "client."
_CREDENTIALS = frozenset({"s3.access-key-id", "s3.secret-access-key", "s3.session-token"})

_MAX_SEARCHED_TABLES = 1000
"""The largest number of table names that are searched for a similar one."""


def open_in_catalog(
    identifier: str,
    catalog: object,
    storage_options: Mapping[str, Any] | None = None,
    *,
    relocate: bool = True,
    allow_outside: bool = False,
) -> OpenedTable:
    """Open `namespace.table` of a catalog: one of pyiceberg's, or the properties or the name of one."""
    opened = open_catalog(catalog)
    found = _find_table(opened, identifier)
    metadata = _read_metadata(found, storage_options)
    moved_to = _find_moved_folder(metadata, found, storage_options)
    folder = (moved_to or _open_storage(metadata.location, found, storage_options)).allowing_outside(allow_outside)
    folder = with_other_stores(folder) if allow_outside else folder
    relocation = Relocation(folder, metadata.location, allow_outside)
    if moved_to is not None and not relocate:
        relocation.reject_moved()

    def reopen() -> OpenedTable:
        return open_in_catalog(identifier, opened, storage_options, relocate=relocate, allow_outside=allow_outside)

    names = (identifier, f"{opened.name}.{identifier}")
    return OpenedTable(metadata, relocation, reopen, Catalog.table_name_from(identifier), names)


@dataclass(frozen=True)
class _Found:
    """A table of a catalog."""

    metadata_location: str | None
    """The location of its metadata file; None if the catalog returns only the metadata itself."""
    properties: Mapping[str, Any]
    """The properties of the catalog, overridden by those for this table."""
    content: bytes = b""
    """The metadata, if it has no location."""
    what: str = ""
    """The table, for messages."""


def _find_table(catalog: Catalog, identifier: str) -> _Found:
    names = identifier.split(".")
    if len(names) < 2 or not all(name.strip() for name in names):
        raise InvalidArgument(
            f"invalid table identifier {identifier!r} for the catalog '{catalog.name}': expected namespace.table"
        )
    what = f"'{identifier}' of the catalog '{catalog.name}'"
    try:
        with record_responses(catalog) as responses:
            table = catalog.load_table(identifier)
    except (
        pyiceberg_exceptions.NoSuchTableError,
        pyiceberg_exceptions.NoSuchNamespaceError,
        pyiceberg_exceptions.NoSuchIdentifierError,
    ) as error:
        hint = _suggest_table(catalog, identifier) or f": {format_error(error)}"
        raise TableNotFound(f"no table '{identifier}' in the catalog '{catalog.name}'{hint}") from error
    except pyiceberg_exceptions.NotInstalledError as error:
        raise MissingDependency(f"{what} cannot be loaded: {format_error(error)}") from error
    except ACCESS_ERRORS as error:
        raise StorageError(
            f"the catalog denies access to {what}: {format_error(error)}. {AUTHORIZATION_HINT}"
        ) from error
    except PARSE_ERRORS as error:
        location = _find_location_in_database(catalog, identifier)
        if location is None:
            raise UnsupportedFeature(
                f"pyiceberg cannot read the metadata of {what}: {format_error(error)}. Open the table by its folder or "
                "its metadata file instead"
            ) from error
        return _Found(location, catalog.properties, what=what)
    except list_catalog_errors() as error:
        raise StorageError(f"{what} cannot be loaded: {format_error(error)}") from error
    if is_rest_catalog(catalog):
        reject_unsupported_demands(responses, catalog.properties, what)
    if table.metadata_location is None:
        return _Found(None, table.io.properties, table.metadata.model_dump_json().encode(), what)
    return _Found(table.metadata_location, table.io.properties, what=what)


def _read_metadata(found: _Found, storage_options: Mapping[str, Any] | None) -> Metadata:
    if found.metadata_location is None:
        return parse_metadata(found.content, found.what)
    at_file = _open_storage(found.metadata_location, found, storage_options)
    return parse_metadata(read_bytes(at_file, at_file.root), found.metadata_location)


def _find_moved_folder(metadata: Metadata, found: _Found, storage_options: Mapping[str, Any] | None) -> Storage | None:
    """Return the folder of a table that was moved and registered again; None if it is where its metadata says.

    Metadata may be stored apart from its table for other reasons. So the manifest list of a snapshot must exist in the
    new folder.
    """
    snapshot = metadata.table.current_snapshot() or next(iter(metadata.table.snapshots), None)
    if found.metadata_location is None or snapshot is None:
        return None
    if Location.of(found.metadata_location).relative_to(Location.of(metadata.location)) is not None:
        return None
    folder = find_table_root(_open_storage(found.metadata_location, found, storage_options), metadata)
    listed = metadata.embedded_manifests.get(snapshot.snapshot_id) or (snapshot.manifest_list,)
    path = Relocation(folder, metadata.location).resolve_inside(listed[0])
    return folder if path is not None and find_file(folder, path) is not None else None


def _suggest_table(catalog: Catalog, identifier: str) -> str:
    """Return a hint for a table that does not exist; empty if the catalog cannot list its tables."""
    try:
        names = _list_catalogs_in_database(catalog)
        if names and catalog.name not in names:
            return f", whose database has the catalogs {', '.join(names)}: set 'name' in its properties"
        known = [
            ".".join(each) for each in catalog.list_tables(Catalog.namespace_from(identifier))[:_MAX_SEARCHED_TABLES]
        ]
    except (*PARSE_ERRORS, *list_catalog_errors()):
        return ""
    near = difflib.get_close_matches(identifier, known, n=1, cutoff=0.6)
    return f". Did you mean '{near[0]}'?" if near else ""


def _list_catalogs_in_database(catalog: Catalog) -> list[str]:
    """Return the names of the catalogs in the database of an SQL catalog; empty for other catalogs."""
    module = sys.modules.get("pyiceberg.catalog.sql")
    if module is None or not isinstance(catalog, module.SqlCatalog):
        return []
    from sqlalchemy import select

    query = select(module.IcebergTables.catalog_name).distinct().order_by(module.IcebergTables.catalog_name)
    with catalog.engine.connect() as connection:
        return [str(name) for name in connection.execute(query).scalars()]


def _find_location_in_database(catalog: Catalog, identifier: str) -> str | None:
    """Return the metadata location of a table in an SQL catalog; None for other catalogs."""
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


def _open_storage(location: str, found: _Found, given: Mapping[str, Any] | None) -> Storage:
    """Open a location with the given options, or else with the catalog's properties for S3."""
    if given is not None or Location.of(location).scheme != "s3":
        return open_storage(location, given)
    return open_storage(location, select_storage_properties(found.properties) or None)


def select_storage_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a catalog that are about S3.

    Properties with the prefix `client.` apply to all of AWS; `s3.` properties take precedence, because the catalog
    itself may need other values than the files do.

    >>> select_storage_properties({"client.region": "eu-west-1", "s3.region": "us-east-1", "token": "of the catalog"})
    {'s3.region': 'us-east-1'}
    """
    known = {name.lower(): value for name, value in properties.items() if value is not None and is_of_the_storage(name)}
    s3_properties = {name: value for name, value in known.items() if name.startswith(_S3_PREFIX)}
    client_properties = {
        name.replace(_CLIENT_PREFIX, _S3_PREFIX, 1): value for name, value in known.items() if name not in s3_properties
    }
    if not _CREDENTIALS.isdisjoint(s3_properties):
        # An access key, its secret and its token belong together.
        client_properties = {name: value for name, value in client_properties.items() if name not in _CREDENTIALS}
    return client_properties | s3_properties

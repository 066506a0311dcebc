"""Iceberg tables opened by a catalog of pyiceberg.

A catalog tells where the metadata of a table is, which is then read as that of any other table. pyiceberg parses it as
well, and knows less: where it fails, and the catalog can be asked for the place alone, that is enough.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg import exceptions as theirs
from pyiceberg.catalog import Catalog

from tamis.errors import InvalidArgument, MissingDependency, StorageError, TableNotFound, UnsupportedFeature
from tamis.io.listing import find_file
from tamis.io.other_stores import with_other_stores
from tamis.io.storage import Storage, open_storage
from tamis.io.storage_options import is_of_the_storage
from tamis.tables.iceberg.catalog_loading import PARSING, REFUSED, WAY_IN, load, raised_by_catalogs, said
from tamis.tables.iceberg.metadata import Metadata, parse_metadata
from tamis.tables.iceberg.opening import Opened, read_all, root_of
from tamis.tables.iceberg.relocation import Location, Relocation
from tamis.tables.iceberg.rest_answers import is_rest, record_answers, refuse_demands

_OF_S3, _OF_CLIENT = "s3.", "client."
_KEY = frozenset({"s3.access-key-id", "s3.secret-access-key", "s3.session-token"})

_MOST_NAMES = 1000
"""Of tables that are looked through for one that was meant."""


def open_in_catalog(
    identifier: str,
    catalog: object,
    storage_options: Mapping[str, Any] | None = None,
    *,
    relocate: bool = True,
    allow_outside: bool = False,
) -> Opened:
    """Open `namespace.table` of a catalog: one of pyiceberg's, or the properties or the name of one."""
    opened = load(catalog)
    found = _find(opened, identifier)
    metadata = _metadata(found, storage_options)
    moved_to = _moved_to(metadata, found, storage_options)
    folder = (moved_to or _storage(metadata.location, found, storage_options)).allowing_outside(allow_outside)
    folder = with_other_stores(folder) if allow_outside else folder
    relocation = Relocation(folder, metadata.location, allow_outside)
    if moved_to is not None and not relocate:
        relocation.refuse()

    def reopen() -> Opened:
        return open_in_catalog(identifier, opened, storage_options, relocate=relocate, allow_outside=allow_outside)

    names = (identifier, f"{opened.name}.{identifier}")
    return Opened(metadata, relocation, reopen, Catalog.table_name_from(identifier), names)


@dataclass(frozen=True)
class _Found:
    """A table of a catalog."""

    place: str | None
    """Of its metadata file; None where the catalog keeps the metadata to itself."""
    properties: Mapping[str, Any]
    """Of the catalog, and what it says of this table."""
    told: bytes = b""
    """The metadata, where it has no place."""
    what: str = ""
    """The table, for messages."""


def _find(catalog: Catalog, identifier: str) -> _Found:
    names = identifier.split(".")
    if len(names) < 2 or not all(name.strip() for name in names):
        raise InvalidArgument(f"{identifier!r} is no table of the catalog '{catalog.name}': give namespace.table")
    what = f"'{identifier}' of the catalog '{catalog.name}'"
    try:
        with record_answers(catalog) as answers:
            table = catalog.load_table(identifier)
    except (theirs.NoSuchTableError, theirs.NoSuchNamespaceError, theirs.NoSuchIdentifierError) as error:
        hint = _instead(catalog, identifier) or f": {said(error)}"
        raise TableNotFound(f"no table '{identifier}' in the catalog '{catalog.name}'{hint}") from error
    except theirs.NotInstalledError as error:
        raise MissingDependency(f"{what} cannot be loaded: {said(error)}") from error
    except REFUSED as error:
        raise StorageError(f"the catalog does not let you read {what}: {said(error)}. {WAY_IN}") from error
    except PARSING as error:
        place = _place_in_database(catalog, identifier)
        if place is None:
            raise UnsupportedFeature(
                f"pyiceberg does not read what is told of {what}: {said(error)}. Open the table by its folder or its "
                "metadata file instead"
            ) from error
        return _Found(place, catalog.properties, what=what)
    except raised_by_catalogs() as error:
        raise StorageError(f"{what} cannot be loaded: {said(error)}") from error
    if is_rest(catalog):
        refuse_demands(answers, catalog.properties, what)
    if table.metadata_location is None:
        return _Found(None, table.io.properties, table.metadata.model_dump_json().encode(), what)
    return _Found(table.metadata_location, table.io.properties, what=what)


def _metadata(found: _Found, storage_options: Mapping[str, Any] | None) -> Metadata:
    if found.place is None:
        return parse_metadata(found.told, found.what)
    at_file = _storage(found.place, found, storage_options)
    return parse_metadata(read_all(at_file, at_file.root), found.place)


def _moved_to(metadata: Metadata, found: _Found, storage_options: Mapping[str, Any] | None) -> Storage | None:
    """The folder of a table that was moved and registered anew; None for one that is where its metadata says.

    Metadata may lie apart from its table for other reasons. What a snapshot names is looked for around it, to be sure.
    """
    snapshot = metadata.table.current_snapshot() or next(iter(metadata.table.snapshots), None)
    if found.place is None or snapshot is None:
        return None
    if Location.of(found.place).below(Location.of(metadata.location)) is not None:
        return None
    folder = root_of(_storage(found.place, found, storage_options), metadata)
    listed = metadata.embedded_manifests.get(snapshot.snapshot_id) or (snapshot.manifest_list,)
    path = Relocation(folder, metadata.location).inside(listed[0])
    return folder if path is not None and find_file(folder, path) is not None else None


def _instead(catalog: Catalog, identifier: str) -> str:
    """What may have been meant by a table that is not there; nothing where the catalog does not tell."""
    try:
        names = _names_in_database(catalog)
        if names and catalog.name not in names:
            return f", whose database has the catalogs {', '.join(names)}: give 'name' among its properties"
        known = [".".join(each) for each in catalog.list_tables(Catalog.namespace_from(identifier))[:_MOST_NAMES]]
    except (*PARSING, *raised_by_catalogs()):
        return ""
    near = difflib.get_close_matches(identifier, known, n=1, cutoff=0.6)
    return f". Did you mean '{near[0]}'?" if near else ""


def _names_in_database(catalog: Catalog) -> list[str]:
    """The names of the catalogs that a database has tables of; none for other catalogs."""
    module = sys.modules.get("pyiceberg.catalog.sql")
    if module is None or not isinstance(catalog, module.SqlCatalog):
        return []
    from sqlalchemy import select

    query = select(module.IcebergTables.catalog_name).distinct().order_by(module.IcebergTables.catalog_name)
    with catalog.engine.connect() as connection:
        return [str(name) for name in connection.execute(query).scalars()]


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
    return open_storage(place, storage_properties(found.properties) or None)


def storage_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """What the properties of a catalog say of S3.

    Those that begin with `client.` are for all of AWS, and the catalog itself may need others than the files do.

    >>> storage_properties({"client.region": "eu-west-1", "s3.region": "us-east-1", "token": "of the catalog"})
    {'s3.region': 'us-east-1'}
    """
    told = {name.lower(): value for name, value in properties.items() if value is not None and is_of_the_storage(name)}
    own = {name: value for name, value in told.items() if name.startswith(_OF_S3)}
    of_client = {name.replace(_OF_CLIENT, _OF_S3, 1): value for name, value in told.items() if name not in own}
    if not _KEY.isdisjoint(own):
        # A key belongs to its secret and its token.
        of_client = {name: value for name, value in of_client.items() if name not in _KEY}
    return of_client | own

"""Opening Iceberg tables through a pyiceberg catalog.

A catalog returns the location of a table's metadata file, which is then read like that of any other table. pyiceberg
parses the metadata too, but supports less: if it fails, the location alone is enough, provided that the catalog returns
it.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from threading import get_ident
from typing import Any
from urllib.parse import urlsplit

from pyiceberg import exceptions as pyiceberg_exceptions
from pyiceberg.catalog import Catalog, CatalogType, load_catalog
from pyiceberg.utils.config import Config

from tamis.errors import (
    InvalidArgument,
    MissingDependency,
    StorageError,
    TableNotFound,
    UnsupportedFeature,
    add_article,
    to_one_line,
)
from tamis.formats.iceberg.metadata.open_metadata import OpenedTable, find_table_root, read_bytes
from tamis.formats.iceberg.metadata.relocation import Relocation
from tamis.formats.iceberg.metadata.table_metadata import Metadata, parse_metadata
from tamis.formats.source import TableSource
from tamis.io.listing import find_file
from tamis.io.location import Location
from tamis.io.other_stores import with_other_stores
from tamis.io.storage import Storage, open_storage
from tamis.io.storage_options import is_storage_option
from tamis.skipping.handler import ExpressionHandler
from tamis.tuning import DEFAULT_TUNING, Tuning

# --- Load catalog ---------------------------------------------------------------------------------------------------
#
# Loading pyiceberg catalogs read-only.
#
# By default pyiceberg creates the missing database of an SQL catalog, and the tables in it, so that a mistyped location
# would become an empty catalog.


PARSE_ERRORS = (ValueError, TypeError, KeyError, AttributeError, pyiceberg_exceptions.ValidationError)
"""The errors that pyiceberg raises for metadata and properties that it does not support."""

ACCESS_ERRORS = (
    pyiceberg_exceptions.UnauthorizedError,
    pyiceberg_exceptions.ForbiddenError,
    pyiceberg_exceptions.AuthorizationExpiredError,
    pyiceberg_exceptions.OAuthError,
)

AUTHORIZATION_HINT = "Set 'token' or 'credential' in its properties, or correct them"

_PYICEBERG_ERRORS = tuple(
    each for each in vars(pyiceberg_exceptions).values() if isinstance(each, type) and issubclass(each, Exception)
)

_LIBRARY_ERRORS = (
    ("sqlalchemy.exc", "SQLAlchemyError"),
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("thrift.Thrift", "TException"),
    ("google.api_core.exceptions", "GoogleAPIError"),
    ("google.auth.exceptions", "GoogleAuthError"),
)
"""The base classes of the errors that the libraries behind catalogs raise."""

_DEFAULT_NAME = "tamis"
"""The name of a catalog whose properties state none."""

_WITH_URI = frozenset({"rest", "hive", "sql"})

_READ_ONLY_PROPERTIES = {"init_catalog_tables": "false", "schema_version": "v0"}
"""Properties that prevent pyiceberg from writing to the database of an SQL catalog."""

_MAX_MESSAGE_LENGTH = 400
"""The longest quoted message of another library: some repeat the whole response of a server."""


def open_catalog(given: object) -> Catalog:
    """Open a pyiceberg catalog: itself, or by its properties or its name."""
    if isinstance(given, Catalog):
        return given
    properties: dict[str, Any] = {}
    if isinstance(given, str):
        name = given
    elif isinstance(given, Mapping):
        properties = {str(key): value for key, value in given.items()}
        name = str(properties.pop("name", _DEFAULT_NAME))
    else:
        raise InvalidArgument(
            "catalog= must be a pyiceberg catalog, its properties as in {'type': 'sql', 'uri': 'sqlite:///…'}, or the "
            f"name of a configured catalog, found {add_article(type(given).__name__)}"
        )
    what = f"the catalog '{name}'" if isinstance(given, str) or "name" in given else "the catalog"
    try:
        known = {**(Config().get_catalog_config(name) or {}), **properties}
        _reject_incomplete(what, known)
        if not _is_sql_catalog(known):
            return load_catalog(name, **known)
        _reject_missing_file(what, str(known["uri"]))
        found = load_catalog(name, **{**known, **_READ_ONLY_PROPERTIES})
        _reject_empty_database(what, found)
    except pyiceberg_exceptions.NotInstalledError as error:
        raise MissingDependency(f"{what} cannot be opened: {format_error(error)}") from error
    except ACCESS_ERRORS as error:
        raise StorageError(f"{what} denies access: {format_error(error)}. {AUTHORIZATION_HINT}") from error
    except (*PARSE_ERRORS, pyiceberg_exceptions.NoSuchPropertyException, ImportError) as error:
        raise InvalidArgument(f"{what} cannot be opened: {format_error(error)}") from error
    except list_catalog_errors() as error:
        raise StorageError(f"{what} cannot be opened: {format_error(error)}") from error
    return found


def format_error(error: BaseException) -> str:
    """Return the message of a catalog library's error, unwrapped and shortened."""
    inner = getattr(error, "orig", None) or getattr(error.args[0] if error.args else None, "reason", None)
    text = to_one_line(inner if isinstance(inner, BaseException) else error)
    return text if len(text) <= _MAX_MESSAGE_LENGTH else f"{text[:_MAX_MESSAGE_LENGTH]}…"


def list_catalog_errors() -> tuple[type[Exception], ...]:
    """Return the errors that a failing catalog may raise: pyiceberg's errors, and the errors of the libraries that are
    loaded."""
    loaded = [getattr(sys.modules[module], name, None) for module, name in _LIBRARY_ERRORS if module in sys.modules]
    known = [each for each in loaded if isinstance(each, type) and issubclass(each, Exception)]
    # pyiceberg raises NotImplementedError for an operation that a REST catalog does not offer.
    return (OSError, NotImplementedError, *_PYICEBERG_ERRORS, *known)


def _reject_incomplete(what: str, properties: Mapping[str, Any]) -> None:
    """Raise a clear error if a property is missing that nearly all catalogs need."""
    needs_uri = "py-catalog-impl" not in properties and str(properties.get("type") or "rest").lower() in _WITH_URI
    if not properties:
        raise InvalidArgument(
            f"pyiceberg is not configured for {what}: add it to .pyiceberg.yaml, or pass its properties (name, type, "
            "uri, …) instead"
        )
    kind = properties.get("type")
    known = sorted(each.value for each in CatalogType)
    if kind and "py-catalog-impl" not in properties and str(kind).lower() not in known:
        raise InvalidArgument(f"{what} cannot be opened: unknown type {kind!r}. Types: {', '.join(known)}")
    if needs_uri and not properties.get("uri"):
        raise InvalidArgument(
            f"{what} cannot be opened: the property 'uri' is missing. Add it to the catalog's properties"
        )


# --- Catalogs that are databases -------------------------------------------------------------------------------------


def _is_sql_catalog(properties: Mapping[str, Any]) -> bool:
    """Return whether pyiceberg treats the properties as those of an SQL catalog."""
    if "py-catalog-impl" in properties:
        return False
    if properties.get("type"):
        return str(properties["type"]).lower() == "sql"
    return str(properties.get("uri")).startswith(("sqlite", "postgresql"))


def _reject_missing_file(what: str, uri: str) -> None:
    """Raise if the database is a missing file: SQLite would create it."""
    try:
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError
    except ImportError as error:
        raise pyiceberg_exceptions.NotInstalledError(
            "pip install 'pyiceberg[sql-sqlite]' or 'pyiceberg[sql-postgres]'"
        ) from error
    try:
        url = make_url(uri)
        url.get_dialect()
    except ArgumentError as error:
        raise ValueError(to_one_line(error)) from error
    database = url.database or ":memory:"
    if url.get_backend_name() != "sqlite" or ":memory:" in database or url.query.get("mode") == "memory":
        return
    path = urlsplit(database).path if database.startswith("file:") else database
    if not Path(path).is_file():
        raise InvalidArgument(
            f"{what} cannot be opened: database file not found: '{path}'. An absolute path has four slashes, as in "
            "sqlite:////data/catalog.db"
        )


def _reject_empty_database(what: str, catalog: Catalog) -> None:
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import inspect

    if not inspect(catalog.engine).has_table(IcebergTables.__tablename__):
        raise InvalidArgument(
            f"{what} cannot be opened: its database has no table '{IcebergTables.__tablename__}', so it is not a "
            "catalog"
        )


_S3_PREFIX, _CLIENT_PREFIX = "s3.", "client."
_CREDENTIALS = frozenset({"s3.access-key-id", "s3.secret-access-key", "s3.session-token"})

_MAX_SEARCHED_TABLES = 1000


def open_in_catalog(
    identifier: str,
    catalog: object,
    storage_options: Mapping[str, Any] | None = None,
    *,
    relocate: bool = True,
    allow_outside: bool = False,
    tuning: Tuning = DEFAULT_TUNING,
    handler: ExpressionHandler | None = None,
) -> OpenedTable:
    """Open `namespace.table` of a catalog: one of pyiceberg's, or the properties or the name of one."""
    opened = open_catalog(catalog)
    found = _find_table(opened, identifier)
    metadata = _read_metadata(found, storage_options)
    moved_to = _find_moved_folder(metadata, found, storage_options)
    folder = moved_to or _open_storage(metadata.location, found, storage_options)
    folder = folder.with_outside_links(allow_outside).with_tuning(tuning).with_handler(handler)
    folder = with_other_stores(folder) if allow_outside else folder
    relocation = Relocation(folder, metadata.location, allow_outside)
    if moved_to is not None and not relocate:
        relocation.reject_moved()
    options = {"relocate": relocate, "allow_outside": allow_outside, "tuning": tuning, "handler": handler}
    reopen = partial(open_in_catalog, identifier, opened, storage_options, **options)  # type: ignore[arg-type]
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
    """Return the folder of a table that was moved and registered again; None if the table is at the location in its
    metadata.

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
        # The catalogs in the database of an SQL catalog.
        names = _query_database(
            catalog, lambda select, tables: select(tables.catalog_name).distinct().order_by(tables.catalog_name)
        )
        if names and catalog.name not in names:
            return f", whose database has the catalogs {', '.join(names)}: set 'name' in its properties"
        known = [
            ".".join(each) for each in catalog.list_tables(Catalog.namespace_from(identifier))[:_MAX_SEARCHED_TABLES]
        ]
    except (*PARSE_ERRORS, *list_catalog_errors()):
        return ""
    near = difflib.get_close_matches(identifier, known, n=1, cutoff=0.6)
    return f". Did you mean '{near[0]}'?" if near else ""


def _query_database(catalog: Catalog, make_query: Callable[[Any, Any], Any]) -> list[Any]:
    """Return the values of a query over the tables in the database of an SQL catalog; none for other catalogs."""
    module = sys.modules.get("pyiceberg.catalog.sql")
    if module is None or not isinstance(catalog, module.SqlCatalog):
        return []
    from sqlalchemy import select

    with catalog.engine.connect() as connection:
        return list(connection.execute(make_query(select, module.IcebergTables)).scalars())


def _find_location_in_database(catalog: Catalog, identifier: str) -> str | None:
    """Return the metadata location of a table in an SQL catalog; None for other catalogs."""
    namespace = Catalog.namespace_to_string(Catalog.namespace_from(identifier))
    found = _query_database(
        catalog,
        lambda select, tables: select(tables.metadata_location).where(
            tables.catalog_name == catalog.name,
            tables.table_namespace == namespace,
            tables.table_name == Catalog.table_name_from(identifier),
        ),
    )
    return found[0] if found else None


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
    known = {name.lower(): value for name, value in properties.items() if value is not None and is_storage_option(name)}
    s3_properties = {name: value for name, value in known.items() if name.startswith(_S3_PREFIX)}
    client_properties = {
        name.replace(_CLIENT_PREFIX, _S3_PREFIX, 1): value for name, value in known.items() if name not in s3_properties
    }
    if not _CREDENTIALS.isdisjoint(s3_properties):
        # An access key, its secret and its token belong together.
        client_properties = {name: value for name, value in client_properties.items() if name not in _CREDENTIALS}
    return client_properties | s3_properties


# --- Demands of REST catalogs on the reader of a table, which pyiceberg does not expose -------------------------------
#
# The response to `loadTable` may contain `read-restrictions`: row filters, and columns to omit or to mask, for the
# principal of the request. The specification requires a reader to fail if it cannot apply all of them. A catalog may
# also demand server-side scan planning (`scan-planning-mode: server`), for all tables in its configuration or for one
# table in the response; then only its plan determines which files the principal may read. Tamis supports neither, and
# rejects both with an error that names the demand.

RESTRICTIONS = "read-restrictions"
PLANNING = "scan-planning-mode"
_CLIENT = "client"

Responses = list[dict[str, Any]]


def is_rest_catalog(catalog: Catalog) -> bool:
    module = sys.modules.get("pyiceberg.catalog.rest")
    return module is not None and isinstance(catalog, module.RestCatalog)


@contextmanager
def record_responses(catalog: Catalog) -> Iterator[Responses]:
    """Collect the JSON objects that a REST catalog returns to this thread, oldest first; empty for other catalogs."""
    found: Responses = []
    if not is_rest_catalog(catalog):
        yield found
        return
    hooks = getattr(getattr(catalog, "_session", None), "hooks", None)
    if not isinstance(hooks, dict):
        raise UnsupportedFeature(
            f"this version of pyiceberg does not expose the responses of the catalog '{catalog.name}', so Tamis cannot "
            f"check for {RESTRICTIONS}: open the table by its folder or its metadata file, or install another version "
            "of pyiceberg"
        )
    thread = get_ident()

    def record(response: Any, *args: Any, **kwargs: Any) -> None:
        if get_ident() != thread or not response.ok:
            return
        try:
            content = response.json()
        except ValueError:
            return  # pyiceberg reports the error
        if isinstance(content, dict):
            found.append(content)

    hooks.setdefault("response", []).append(record)
    try:
        yield found
    finally:
        hooks["response"].remove(record)


def reject_unsupported_demands(responses: Responses, properties: Mapping[str, Any], what: str) -> None:
    """Raise if a response or the configuration of a catalog demands what Tamis does not support."""
    mode = str(properties.get(PLANNING) or _CLIENT)
    for content in responses:
        restrictions = content.get(RESTRICTIONS)
        if _has_restriction(restrictions):
            names = f" ({', '.join(map(str, restrictions))})" if isinstance(restrictions, dict) else ""
            raise UnsupportedFeature(
                f"the catalog demands {RESTRICTIONS}{names} for {what}, which Tamis does not support: read the table "
                "with an engine that does, or ask for rights to read all of it"
            )
        config = content.get("config")
        mode = str((config.get(PLANNING) if isinstance(config, dict) else None) or mode)
    if mode.lower() != _CLIENT:
        raise UnsupportedFeature(
            f"the catalog demands server-side scan planning for {what} ({PLANNING}: {mode}), which Tamis does not "
            f"support: read the table with an engine that does, or have the catalog allow {PLANNING}: {_CLIENT}"
        )


def _has_restriction(restrictions: Any) -> bool:
    """Return whether there is any restriction: an unknown one counts, an empty object or list does not."""
    if isinstance(restrictions, dict):
        return any(map(_has_restriction, restrictions.values()))
    return restrictions is not None and restrictions != []


# --- Iceberg catalogs that are attached to a session under a name: `prod.shop.orders` ---------------------------------

MAX_LISTED_TABLES = 1000
"""The largest number of table names that messages and listings contain."""


@dataclass(frozen=True)
class AttachedIcebergCatalog:
    """An attached catalog and its tables."""

    attached_as: str
    catalog: Catalog
    open_table: Callable[[str, Catalog], TableSource]
    """Opens a table by `namespace.table`."""
    names: Callable[[TableSource], Sequence[str]]
    """Returns further names by which policies may refer to a table."""

    def open(self, name: Sequence[str]) -> TableSource:
        if len(name) < 2:
            raise InvalidArgument(
                f"the tables of the catalog {self.attached_as!r} are in namespaces: write "
                f"{self.attached_as}.namespace.{'.'.join(name)}"
            )
        return self.open_table(".".join(name), self.catalog)

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

"""Iceberg tables opened: by a catalog, by a metadata file, or by the table's folder.

A folder tells its newest metadata in `metadata/version-hint.text`: a number, which may be out of date, so that what
follows it without a gap is taken, or the name of a file. Without it the file with the highest number is the newest,
and of several the one that was written last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError
from pyiceberg.table import Table as CatalogTable

from tamis.errors import (
    CorruptFile,
    InvalidArgument,
    MissingFile,
    StorageError,
    TableNotFound,
    one_line,
    with_article,
)
from tamis.io.listing import Listing, list_directory
from tamis.io.ranges import RangedFile
from tamis.io.storage import Storage, open_storage
from tamis.io.storage_options import is_of_the_storage
from tamis.tables.iceberg.metadata import Metadata, parse_metadata
from tamis.tables.iceberg.relocation import Location, Relocation

FOLDER = "metadata"
HINT = "version-hint.text"

_METADATA_FILE = re.compile(r"v?(\d+)(?:[.-].*)?\.metadata\.json(?:\.gz)?")
_HADOOP = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json(?:\.gz)?")
_ENDINGS = (".metadata.json", ".gz.metadata.json", ".metadata.json.gz")


@dataclass(frozen=True)
class Opened:
    """A table as one metadata file tells of it."""

    metadata: Metadata
    relocation: Relocation
    reopen: Callable[[], Opened]
    """Its newest metadata."""
    name: str

    @property
    def storage(self) -> Storage:
        return self.relocation.storage


def is_metadata_file(uri: str) -> bool:
    """Whether a place names a metadata file, rather than a folder.

    >>> is_metadata_file("s3://b/t/metadata/v3.metadata.json"), is_metadata_file("s3://b/t")
    (True, False)
    """
    return uri.endswith((".metadata.json", ".metadata.json.gz"))


def open_place(storage: Storage, *, relocate: bool = True, allow_outside: bool = False) -> Opened:
    """Open a folder, or a metadata file."""
    if is_metadata_file(storage.root):
        opened = _open_file(storage, storage.root, allow_outside)
    else:
        opened = _open_folder(storage, allow_outside)
    if not relocate:
        opened.relocation.refuse()
    return opened


# --- By a folder, by a file ------------------------------------------------------------------------------------------


def _open_folder(storage: Storage, allow_outside: bool) -> Opened:
    path = _newest(storage)
    metadata = parse_metadata(_read(storage, path), storage.place(path))

    def reopen() -> Opened:
        return _open_folder(storage, allow_outside)

    return Opened(metadata, Relocation(storage, metadata.location, allow_outside), reopen, _name(storage.root))


def _newest(storage: Storage) -> str:
    folder = f"{storage.root.rstrip('/')}/{FOLDER}"
    try:
        listing = list_directory(storage, folder)
    except MissingFile as error:
        raise TableNotFound(f"no Iceberg table at '{storage.uri}': it has no folder '{FOLDER}'") from error
    names = {path.rsplit("/", 1)[-1]: path for path in listing.file_paths.to_pylist()}
    hinted = _hinted(storage, names)
    if hinted is not None:
        return hinted
    newest = _by_number(listing)
    if newest is None:
        raise TableNotFound(f"no Iceberg table at '{storage.uri}': '{FOLDER}' has no file *.metadata.json")
    return newest


def _hinted(storage: Storage, names: Mapping[str, str]) -> str | None:
    """The file that the hint leads to; None where it leads nowhere, for it is only a hint."""
    if HINT not in names:
        return None
    hint = _read(storage, names[HINT]).decode(errors="replace").strip()
    if not hint.isdecimal():
        return next((names[name] for name in _spellings(hint) if name in names), None)
    found = None
    number = int(hint)
    while (spelled := next((name for name in _spellings(f"v{number}") if name in names), None)) is not None:
        found = names[spelled]
        number += 1
    return found


def _spellings(start: str) -> list[str]:
    return [start] * is_metadata_file(start) + [f"{start}{ending}" for ending in _ENDINGS]


def _by_number(listing: Listing) -> str | None:
    found = [
        (int(match[1]), modified or 0, path)
        for path, modified in zip(listing.file_paths.to_pylist(), listing.file_modified_ns.to_pylist(), strict=True)
        if (match := _METADATA_FILE.fullmatch(path.rsplit("/", 1)[-1])) is not None
    ]
    return max(found)[2] if found else None


def _open_file(storage: Storage, path: str, allow_outside: bool) -> Opened:
    try:
        content = _read(storage, path)
    except MissingFile as error:
        raise TableNotFound(f"no metadata file at '{storage.uri}'") from error
    metadata = parse_metadata(content, storage.place(path))
    at_root = _root_of(storage, path, metadata)

    def reopen() -> Opened:
        return _open_file(storage, path, allow_outside)

    return Opened(metadata, Relocation(at_root, metadata.location, allow_outside), reopen, _name(at_root.root))


def _root_of(storage: Storage, path: str, metadata: Metadata) -> Storage:
    """The folder of a table of which a metadata file was opened.

    It is what metadata says where the file lies below that, or where the table says that it keeps its metadata there;
    else the table was moved, and its folder is the one around `metadata/`.
    """
    folder, uri = path.rsplit("/", 1)[0], storage.uri.rsplit("/", 1)[0]
    own, here = Location.of(metadata.location), Location.of(uri)
    inside = here.below(own)
    if inside is not None:
        return _at(storage, folder.removesuffix(f"/{inside}"), uri.removesuffix(f"/{inside}"))
    elsewhere = metadata.table.properties.get("write.metadata.path")
    if elsewhere is not None and Location.of(elsewhere) == here and own.scheme == here.scheme:
        options = None if storage.given is None else storage.given[1]
        if storage.given is not None or storage.is_local:
            opened = open_storage(metadata.location, options)
            return replace(storage, root=opened.root, uri=opened.uri, given=opened.given)
    if folder.rsplit("/", 1)[-1] == FOLDER:
        return _at(storage, folder.rsplit("/", 1)[0], uri.rsplit("/", 1)[0])
    return _at(storage, folder, uri)


def _at(storage: Storage, root: str, uri: str) -> Storage:
    given = None if storage.given is None else (uri, storage.given[1])
    return replace(storage, root=root, uri=uri, given=given)


def _read(storage: Storage, path: str) -> bytes:
    with RangedFile(storage, path) as file:
        return bytes(file.read([(0, file.size)])[0])


def _name(root: str) -> str:
    return root.rstrip("/").rsplit("/", 1)[-1] or root


# --- By a catalog ----------------------------------------------------------------------------------------------------


def open_in_catalog(
    identifier: str,
    catalog: object,
    storage_options: Mapping[str, Any] | None = None,
    *,
    allow_outside: bool = False,
) -> Opened:
    """Open `namespace.table` of a catalog: one of pyiceberg's, or the properties or the name of one."""
    opened = _catalog(catalog)
    found = _load(opened, identifier)
    options = storage_options if storage_options is not None else _storage_options(found)
    place = found.metadata_location
    folder = open_storage(found.metadata.location, options)
    at_file = open_storage(place, options)
    content = _read(at_file, at_file.root)
    metadata = parse_metadata(content, place)

    def reopen() -> Opened:
        return open_in_catalog(identifier, opened, storage_options, allow_outside=allow_outside)

    name = found.name()[-1]
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
    except (ValueError, RESTError, OSError, ImportError) as error:
        raise InvalidArgument(f"the catalog cannot be opened: {one_line(error)}") from error
    raise InvalidArgument(
        "catalog= is a catalog of pyiceberg, its properties as in {'type': 'sql', 'uri': 'sqlite:///…'}, or the name "
        f"of a configured one, not {with_article(type(given).__name__)}"
    )


def _load(catalog: Catalog, identifier: str) -> CatalogTable:
    try:
        return catalog.load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise TableNotFound(f"no table '{identifier}' in the catalog '{catalog.name}': {one_line(error)}") from error
    except (RESTError, OSError) as error:
        raise StorageError(f"the catalog '{catalog.name}' cannot load '{identifier}': {one_line(error)}") from error
    except ValueError as error:
        raise CorruptFile(f"'{identifier}' of the catalog '{catalog.name}': {one_line(error)[:500]}") from error


def _storage_options(table: CatalogTable) -> dict[str, Any] | None:
    """What a catalog says about the storage: those of its properties that are about S3, for a table that is there."""
    if Location.of(table.metadata.location).scheme != "s3":
        return None
    given = table.io.properties.items()
    return {name: value for name, value in given if value is not None and is_of_the_storage(name)} or None

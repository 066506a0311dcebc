"""Opening Iceberg tables by a metadata file or by the table's folder; for catalogs see `catalogs`.

The file `metadata/version-hint.text` of a folder contains the current version or the name of a metadata file. The
version may be outdated, so later versions without a gap take precedence. Without a hint, the metadata file with the
highest version is the current one, and among several the one that was written last. If a file name contains no version
(`metadata.json`, `abc.metadata.json`), the content decides: the file that was updated last, if all belong to one table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tamis.errors import CorruptFile, MissingFile, TableNotFound, UnsupportedFeature
from tamis.formats.iceberg.metadata.relocation import Relocation
from tamis.formats.iceberg.metadata.table_metadata import Metadata, parse_metadata
from tamis.io.listing import list_directory
from tamis.io.location import Location
from tamis.io.other_stores import with_other_stores
from tamis.io.ranges import RangedFile
from tamis.io.storage import Storage, open_storage

FOLDER = "metadata"
HINT = "version-hint.text"

_METADATA_FILE = re.compile(r"v?(\d+)(?:[.-].*)?\.metadata\.json(?:\.gz)?")
_MAX_DIGITS = 18
_ENDINGS = (".metadata.json", ".gz.metadata.json", ".metadata.json.gz")
_MAX_COMPARED_FILES = 100
"""The largest number of metadata files without a version in their names that are compared by content."""


@dataclass(frozen=True)
class OpenedTable:
    """An opened table: its metadata, and the locations of its files."""

    metadata: Metadata
    relocation: Relocation
    reopen: Callable[[], OpenedTable]
    """Opens the table again with its newest metadata."""
    name: str
    names_in_catalog: tuple[str, ...] = ()
    """Its names with and without the catalog's name; empty if it was not opened through a catalog."""

    @property
    def storage(self) -> Storage:
        return self.relocation.storage


def is_metadata_file(uri: str) -> bool:
    """Return whether a location is a metadata file and not a folder.

    >>> is_metadata_file("s3://b/t/metadata/v3.metadata.json"), is_metadata_file("metadata.json"), is_metadata_file("t")
    (True, True, False)
    """
    return re.search(r"(^|[/.])metadata\.json(\.gz)?$", uri) is not None


def open_location(storage: Storage, *, relocate: bool = True, allow_outside: bool = False) -> OpenedTable:
    """Open a table by its folder or a metadata file."""
    storage = storage.with_outside_links(allow_outside)
    if is_metadata_file(storage.root):
        opened = _open_file(storage, storage.root, allow_outside)
    else:
        opened = _open_folder(storage, allow_outside)
    if not relocate:
        opened.relocation.reject_moved()
    return opened


# --- By a folder, by a file ------------------------------------------------------------------------------------------


def _open_folder(storage: Storage, allow_outside: bool) -> OpenedTable:
    return _make_opened(storage, _read_newest(storage), allow_outside, partial(_open_folder, storage, allow_outside))


def _make_opened(
    storage: Storage, metadata: Metadata, allow_outside: bool, reopen: Callable[[], OpenedTable]
) -> OpenedTable:
    readable = with_other_stores(storage) if allow_outside else storage
    name = storage.root.rstrip("/").rsplit("/", 1)[-1] or storage.root
    return OpenedTable(metadata, Relocation(readable, metadata.location, allow_outside), reopen, name)


def _read_newest(storage: Storage) -> Metadata:
    folder = f"{storage.root.rstrip('/')}/{FOLDER}"
    try:
        listing = list_directory(storage, folder)
    except MissingFile as error:
        raise TableNotFound(
            f"no Iceberg table at '{storage.uri}': the folder '{FOLDER}' is missing. Give the folder of the table, or "
            "its name and catalog="
        ) from error
    names = {path.rsplit("/", 1)[-1]: path for path in listing.file_paths.to_pylist()}
    hinted_path = _find_hinted(storage, names)
    if hinted_path is not None:
        return _read_metadata(storage, hinted_path)
    modified = zip(listing.file_paths.to_pylist(), listing.file_modified_ns.to_pylist(), strict=True)
    versions = [
        (int(match[1]), modified_ns or 0, path)
        for path, modified_ns in modified
        if (match := _METADATA_FILE.fullmatch(path.rsplit("/", 1)[-1])) is not None
    ]
    numbered = max(versions)[2] if versions else None
    others = [
        path
        for name, path in names.items()
        if is_metadata_file(name) and not _METADATA_FILE.fullmatch(name) and not name.startswith(".")
    ]
    if others:
        return _find_by_content(storage, [*([] if numbered is None else [numbered]), *sorted(others)])
    if numbered is None:
        raise TableNotFound(
            f"no Iceberg table at '{storage.uri}': '{FOLDER}' has no file *.metadata.json. Open the table by its "
            "metadata file, or by its name with catalog="
        )
    return _read_metadata(storage, numbered)


def _read_metadata(storage: Storage, path: str) -> Metadata:
    return parse_metadata(read_bytes(storage, path), storage.format_path(path))


def _find_by_content(storage: Storage, paths: Sequence[str]) -> Metadata:
    """Find the newest metadata file by content; raise if the contents do not decide it."""
    advice = "open one of them by its path"
    if len(paths) > _MAX_COMPARED_FILES:
        raise UnsupportedFeature(
            f"'{storage.uri}' has {len(paths)} metadata files without a version in their names, such as "
            f"'{storage.format_path(paths[-1])}': {advice}"
        )
    found = sorted((_read_metadata(storage, path) for path in paths), key=_get_update_order)
    newest = found[-1]
    name = newest.file_location.rsplit("/", 1)[-1]
    for other in found[:-1]:
        if other.table.table_uuid != newest.table.table_uuid:
            raise CorruptFile(
                f"'{other.file_location}' and '{newest.file_location}' belong to different tables in one folder: "
                f"{advice}"
            )
        if _get_update_order(other) == _get_update_order(newest) and other.table != newest.table:
            raise CorruptFile(
                f"'{other.file_location}' and '{newest.file_location}' were updated at the same time, and neither "
                f"name contains a version: {advice}"
            )
    note = f"the metadata file '{name}' was found by its suffix" + (
        f", and is the most recently updated of {len(found)}" if len(found) > 1 else ""
    )
    return replace(newest, found_by=note)


def _get_update_order(metadata: Metadata) -> tuple[int, int]:
    table = metadata.table
    return int(table.last_updated_ms), int(getattr(table, "last_sequence_number", 0))


def _find_hinted(storage: Storage, names: Mapping[str, str]) -> str | None:
    """Return the file that the version hint refers to; None if that file does not exist, because it is only a hint."""
    if HINT not in names:
        return None
    hint = read_bytes(storage, names[HINT]).decode(errors="replace").strip()
    if not hint.isdecimal() or len(hint) > _MAX_DIGITS:
        return next((names[name] for name in _list_spellings(hint) if name in names), None)
    found = None
    number = int(hint)
    while (spelling := next((name for name in _list_spellings(f"v{number}") if name in names), None)) is not None:
        found = names[spelling]
        number += 1
    return found


def _list_spellings(start: str) -> list[str]:
    return [start, *(f"{start}{ending}" for ending in _ENDINGS)]


def _open_file(storage: Storage, path: str, allow_outside: bool) -> OpenedTable:
    try:
        content = read_bytes(storage, path)
    except MissingFile as error:
        raise TableNotFound(
            f"no metadata file at '{storage.uri}'. Give the folder of the table, whose newest metadata is read"
        ) from error
    metadata = parse_metadata(content, storage.format_path(path))
    reopen = partial(_open_file, storage, path, allow_outside)
    return _make_opened(find_table_root(storage, metadata), metadata, allow_outside, reopen)


def find_table_root(storage: Storage, metadata: Metadata) -> Storage:
    """Return the folder of a table that was opened by a metadata file.

    It is the location in the metadata if the file is below it, or if the table property `write.metadata.path` is the
    file's folder. Otherwise the table was moved, and its folder is the parent of `metadata/`.
    """
    folder, uri = storage.root.rsplit("/", 1)[0], storage.uri.rsplit("/", 1)[0]
    own, here = Location.of(metadata.location), Location.of(uri)
    inside = here.relative_to(own)
    if inside is not None:
        return _replace_root(storage, folder.removesuffix(f"/{inside}"), uri.removesuffix(f"/{inside}"))
    elsewhere = metadata.table.properties.get("write.metadata.path")
    if elsewhere is not None and Location.of(elsewhere) == here and own.scheme == here.scheme:
        options = None if storage.given is None else storage.given[1]
        if storage.given is not None or storage.is_local:
            opened = open_storage(metadata.location, options)
            return replace(storage, root=opened.root, uri=opened.uri, given=opened.given)
    if folder.rsplit("/", 1)[-1] == FOLDER:
        return _replace_root(storage, folder.rsplit("/", 1)[0], uri.rsplit("/", 1)[0])
    return _replace_root(storage, folder, uri)


def _replace_root(storage: Storage, root: str, uri: str) -> Storage:
    given = None if storage.given is None else (uri, storage.given[1])
    return replace(storage, root=root, uri=uri, given=given)


def read_bytes(storage: Storage, path: str) -> bytes:
    """Read the current bytes of a file."""
    with RangedFile(storage, path) as file:
        return bytes(file.read([(0, file.size)])[0])

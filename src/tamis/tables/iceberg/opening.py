"""Iceberg tables opened by a metadata file, or by the table's folder; for catalogs see `catalogs`.

A folder tells its newest metadata in `metadata/version-hint.text`: a number, which may be out of date, so that what
follows it without a gap is taken, or the name of a file. Without it the file with the highest number is the newest,
and of several the one that was written last. A file whose name has no number (`metadata.json`, `abc.metadata.json`)
tells by what is in it: the one that was updated last is the newest, if all are of one table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tamis.errors import CorruptFile, MissingFile, TableNotFound, UnsupportedFeature
from tamis.io.listing import Listing, list_directory
from tamis.io.other_stores import with_other_stores
from tamis.io.ranges import RangedFile
from tamis.io.storage import Storage, open_storage
from tamis.tables.iceberg.metadata import Metadata, parse_metadata
from tamis.tables.iceberg.relocation import Location, Relocation

FOLDER = "metadata"
HINT = "version-hint.text"

_METADATA_FILE = re.compile(r"v?(\d+)(?:[.-].*)?\.metadata\.json(?:\.gz)?")
_HADOOP = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json(?:\.gz)?")
_MOST_DIGITS = 18
_ENDINGS = (".metadata.json", ".gz.metadata.json", ".metadata.json.gz")
_MOST_LOOKED_INTO = 100
"""Of metadata files whose names have no number: where there are more, the one to open has to be named."""


@dataclass(frozen=True)
class Opened:
    """A table as one metadata file tells of it."""

    metadata: Metadata
    relocation: Relocation
    reopen: Callable[[], Opened]
    """Its newest metadata."""
    name: str
    names_in_catalog: tuple[str, ...] = ()
    """With and without the name of the catalog; none where it was not opened by one."""

    @property
    def storage(self) -> Storage:
        return self.relocation.storage


def is_metadata_file(uri: str) -> bool:
    """Whether a place names a metadata file, rather than a folder.

    >>> is_metadata_file("s3://b/t/metadata/v3.metadata.json"), is_metadata_file("metadata.json"), is_metadata_file("t")
    (True, True, False)
    """
    return re.search(r"(^|[/.])metadata\.json(\.gz)?$", uri) is not None


def open_place(storage: Storage, *, relocate: bool = True, allow_outside: bool = False) -> Opened:
    """Open a folder, or a metadata file."""
    storage = storage.allowing_outside(allow_outside)
    if is_metadata_file(storage.root):
        opened = _open_file(storage, storage.root, allow_outside)
    else:
        opened = _open_folder(storage, allow_outside)
    if not relocate:
        opened.relocation.refuse()
    return opened


# --- By a folder, by a file ------------------------------------------------------------------------------------------


def _open_folder(storage: Storage, allow_outside: bool) -> Opened:
    metadata = _newest(storage)

    def reopen() -> Opened:
        return _open_folder(storage, allow_outside)

    return Opened(metadata, _relocation(storage, metadata, allow_outside), reopen, _name(storage.root))


def _relocation(storage: Storage, metadata: Metadata, allow_outside: bool) -> Relocation:
    readable = with_other_stores(storage) if allow_outside else storage
    return Relocation(readable, metadata.location, allow_outside)


def _newest(storage: Storage) -> Metadata:
    """The newest metadata of a folder."""
    folder = f"{storage.root.rstrip('/')}/{FOLDER}"
    try:
        listing = list_directory(storage, folder)
    except MissingFile as error:
        raise TableNotFound(f"no Iceberg table at '{storage.uri}': it has no folder '{FOLDER}'") from error
    names = {path.rsplit("/", 1)[-1]: path for path in listing.file_paths.to_pylist()}
    hinted = _hinted(storage, names)
    if hinted is not None:
        return _parsed(storage, hinted)
    numbered = _by_number(listing)
    others = [
        path
        for name, path in names.items()
        if is_metadata_file(name) and not _METADATA_FILE.fullmatch(name) and not name.startswith(".")
    ]
    if others:
        return _by_content(storage, [*([] if numbered is None else [numbered]), *sorted(others)])
    if numbered is None:
        raise TableNotFound(f"no Iceberg table at '{storage.uri}': '{FOLDER}' has no file *.metadata.json")
    return _parsed(storage, numbered)


def _parsed(storage: Storage, path: str) -> Metadata:
    return parse_metadata(read_all(storage, path), storage.place(path))


def _by_content(storage: Storage, paths: Sequence[str]) -> Metadata:
    """The newest of metadata files whose names do not tell it; an error where their contents do not either."""
    way_out = "open the one that is meant by its own path"
    if len(paths) > _MOST_LOOKED_INTO:
        raise UnsupportedFeature(
            f"'{storage.uri}' has {len(paths)} metadata files whose names have no number, such as "
            f"'{storage.place(paths[-1])}': {way_out}"
        )
    found = sorted((_parsed(storage, path) for path in paths), key=_age)
    newest = found[-1]
    name = newest.place.rsplit("/", 1)[-1]
    for other in found[:-1]:
        if other.table.table_uuid != newest.table.table_uuid:
            raise CorruptFile(
                f"'{other.place}' and '{newest.place}' are metadata of two tables in one folder: {way_out}"
            )
        if _age(other) == _age(newest) and other.table != newest.table:
            raise CorruptFile(
                f"'{other.place}' and '{newest.place}' were updated at the same time, and neither name has a number: "
                f"{way_out}"
            )
    told = f"the metadata file '{name}' was found by its ending" + (
        f", and is the last updated of {len(found)}" if len(found) > 1 else ""
    )
    return replace(newest, found_by=told)


def _age(metadata: Metadata) -> tuple[int, int]:
    table = metadata.table
    return int(table.last_updated_ms), int(getattr(table, "last_sequence_number", 0))


def _hinted(storage: Storage, names: Mapping[str, str]) -> str | None:
    """The file that the hint leads to; None where it leads nowhere, for it is only a hint."""
    if HINT not in names:
        return None
    hint = read_all(storage, names[HINT]).decode(errors="replace").strip()
    if not hint.isdecimal() or len(hint) > _MOST_DIGITS:
        return next((names[name] for name in _spellings(hint) if name in names), None)
    found = None
    number = int(hint)
    while (spelled := next((name for name in _spellings(f"v{number}") if name in names), None)) is not None:
        found = names[spelled]
        number += 1
    return found


def _spellings(start: str) -> list[str]:
    return [start, *(f"{start}{ending}" for ending in _ENDINGS)]


def _by_number(listing: Listing) -> str | None:
    found = [
        (int(match[1]), modified or 0, path)
        for path, modified in zip(listing.file_paths.to_pylist(), listing.file_modified_ns.to_pylist(), strict=True)
        if (match := _METADATA_FILE.fullmatch(path.rsplit("/", 1)[-1])) is not None
    ]
    return max(found)[2] if found else None


def _open_file(storage: Storage, path: str, allow_outside: bool) -> Opened:
    try:
        content = read_all(storage, path)
    except MissingFile as error:
        raise TableNotFound(f"no metadata file at '{storage.uri}'") from error
    metadata = parse_metadata(content, storage.place(path))
    at_root = root_of(storage, metadata)

    def reopen() -> Opened:
        return _open_file(storage, path, allow_outside)

    return Opened(metadata, _relocation(at_root, metadata, allow_outside), reopen, _name(at_root.root))


def root_of(storage: Storage, metadata: Metadata) -> Storage:
    """The folder of a table of which a metadata file was opened.

    It is what metadata says where the file lies below that, or where the table says that it keeps its metadata there;
    else the table was moved, and its folder is the one around `metadata/`.
    """
    folder, uri = storage.root.rsplit("/", 1)[0], storage.uri.rsplit("/", 1)[0]
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


def read_all(storage: Storage, path: str) -> bytes:
    """All bytes of a file, as it is now."""
    with RangedFile(storage, path) as file:
        return bytes(file.read([(0, file.size)])[0])


def _name(root: str) -> str:
    return root.rstrip("/").rsplit("/", 1)[-1] or root

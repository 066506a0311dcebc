"""The resolution of file locations: as recorded in the metadata, or below the location that the table was moved to.

Iceberg metadata contains absolute locations, `s3://bucket/table/data/a.parquet`, so a copied table still refers to the
old location. The metadata also records the table's own location (`location`), and the location where it was opened is
known: files below the former are looked for below the latter. Equivalent spellings compare equal: `s3a` is `s3`,
`file:/a` is `/a`, `./a` is `a`.

Data files may be outside the table's folder (`write.data.path`, added files, migrated tables). A file in the same store
(the same bucket, or the local disk of a local table) is read, and reported. If the table was moved together with its
surroundings, the file is found there: for `/old/wh/db/t`, opened at `/new/wh/db/t`, the file `/old/wh/raw/a` is
`/new/wh/raw/a` if that exists. A relative location, such as `data/raw/a`, is resolved beside the table in the same
manner, or else below the working directory. A file in another store is read only if the caller allows it: otherwise
anyone with write access to a table could make the reader read any file that the reader has rights for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile, MissingFile, UnsupportedFeature, format_count
from tamis.formats.source import to_single_array
from tamis.io.listing import find_file
from tamis.io.location import FILE_SCHEME, Location, has_scheme
from tamis.io.storage import Storage

_PARENT_SEGMENT = r"(^|/)\.\.(/|$)"
_SEARCHED_BYTES = 1024 * 1024


def _may_contain_suspect(locations: pa.StringArray) -> bool:
    """Return whether one of many locations may contain two dots or a NUL character: all are searched together."""
    text = memoryview(locations.buffers()[2] or b"")
    # Searching copies bytes, so it works in chunks; each has one more byte, for two dots across a boundary.
    chunks = (bytes(text[start : start + _SEARCHED_BYTES + 1]) for start in range(0, len(text), _SEARCHED_BYTES))
    return any(b".." in chunk or b"\0" in chunk for chunk in chunks)


@dataclass(frozen=True)
class Relocation:
    """The mapping from locations in the metadata to paths in the file system."""

    storage: Storage
    """The storage of the opened table; its root is the table's folder."""
    recorded_location: str
    """The table's location as recorded in its metadata."""
    allow_outside: bool = False
    _known: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    _folders: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)
    """Whether a folder around the table was moved with it, determined by its first requested file."""

    @cached_property
    def _opened(self) -> Location:
        if self.storage.is_local or not has_scheme(self.storage.uri):
            return Location(FILE_SCHEME, self.storage.root.rstrip("/"))
        # The path of the file system is what follows the scheme in a location.
        return Location.of(self.storage.uri)

    @cached_property
    def _recorded(self) -> Location:
        return Location.of(self.recorded_location)

    @cached_property
    def is_moved(self) -> bool:
        return self._recorded != self._opened

    def reject_moved(self) -> None:
        """Raise if the table was moved."""
        if self.is_moved:
            raise UnsupportedFeature(
                f"the table at '{self.storage.uri}' was moved: its metadata records the location "
                f"'{self.recorded_location}'; open it there, or omit relocate=False to read its files from here"
            )

    @property
    def note(self) -> str | None:
        """A note for reports, or None."""
        if not self.is_moved:
            return None
        return f"moved: the metadata records '{self.recorded_location}', files are read from '{self.storage.uri}'"

    def resolve_inside(self, location: str) -> str | None:
        """Return the path of a file below the table's folder; None if the location is not below it."""
        given = Location.of(location)
        found = (given.relative_to(folder) for folder in (self._recorded, self._opened))
        return next((f"{self.storage.root.rstrip('/')}/{each}" for each in found if each is not None), None)

    def resolve(self, location: str) -> str:
        """Return the path in the file system of a location in the metadata."""
        found = self._known.get(location)
        if found is None:
            found = self._known.setdefault(location, self._resolve_location(location))
        return found

    def _resolve_location(self, location: str) -> str:
        given = Location.of(location)
        if "\0" in location or re.search(_PARENT_SEGMENT, given.path):
            raise CorruptFile(
                f"the metadata of '{self.storage.uri}' has the invalid location {location!r}: a location must not "
                "contain '..' or a NUL character"
            )
        return self.resolve_inside(location) or self._resolve_beside(given) or self._resolve_elsewhere(location, given)

    @cached_property
    def _surroundings(self) -> tuple[str, str] | None:
        """The folders around the recorded and the opened location; None if they were not moved with the table.

        Both end before the common trailing names of the two locations.
        """
        recorded, opened = self._recorded.path.split("/"), self.storage.root.rstrip("/").split("/")
        if not self.is_moved or recorded[-1:] != opened[-1:]:
            return None
        while recorded and opened and recorded[-1] == opened[-1]:
            recorded.pop()
            opened.pop()
        return "/".join(recorded), "/".join(opened)

    def _resolve_beside(self, given: Location) -> str | None:
        """Return the path of a file that was moved together with the table; None if there is none."""
        if self._surroundings is None or given.scheme != self._recorded.scheme:
            return None
        recorded, opened = self._surroundings
        prefix = f"{recorded}/" if recorded else ""
        if not given.path.startswith(prefix) or (not prefix and given.path.startswith("/")):
            return None
        path = f"{opened}/{given.path[len(prefix) :]}"
        folder = path.rpartition("/")[0]
        is_there = self._folders.get(folder)
        if is_there is None:
            is_there = self._folders.setdefault(folder, find_file(self.storage, path) is not None)
        return path if is_there else None

    def _resolve_elsewhere(self, location: str, given: Location) -> str:
        """Return the path of a file that is neither in the table's folder nor was moved with it."""
        if given.scheme == FILE_SCHEME and not given.path.startswith("/"):
            path = Path(given.path).absolute()
            if not self.storage.is_local or not path.is_file():
                raise MissingFile(
                    f"the table at '{self.storage.uri}' refers to {location!r}, which exists neither beside it nor "
                    f"below the working directory: restore it relative to '{self.recorded_location}', or open the "
                    "table from the folder that this path is relative to"
                )
            return path.as_posix()
        is_local = given.scheme == FILE_SCHEME
        is_same_bucket = is_local or given.path.split("/")[0] == self._opened.path.split("/")[0]
        if given.scheme == self._opened.scheme and (is_same_bucket or self.allow_outside):
            root = self.storage.root.rstrip("/")
            # A location starts with its host or bucket, which the paths of some file systems omit.
            host = self._opened.path.removesuffix(root)
            if self._opened.path.endswith(root) and given.path.startswith(host):
                return given.path.removeprefix(host)
        if not self.allow_outside:
            raise UnsupportedFeature(
                f"the table at '{self.storage.uri}' refers to {location!r} in another store: such a file is read only "
                "with allow_outside=True"
            )
        return f"{given.scheme}://{given.path}"

    def describe_outside_files(self, paths: pa.Array) -> str | None:
        """Return a note about files outside the table's folder, or None."""
        is_outside = pc.invert(pc.starts_with(paths, f"{self.storage.root.rstrip('/')}/"))
        count = pc.sum(is_outside).as_py() or 0
        if not count:
            return None
        first = self.storage.format_path(paths[is_outside.index(True).as_py()].as_py())
        return f"{format_count(count, 'file')} outside the table's folder, such as '{first}'"

    def resolve_all(self, locations: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Resolve many locations; paths with the table's own prefix, nearly all paths, are vectorized."""
        if isinstance(locations, pa.ChunkedArray):
            locations = to_single_array(locations)
        locations = locations.cast(pa.string())
        prefix = self._find_prefix(locations)
        root = self.storage.root.rstrip("/")
        is_plain = pc.starts_with(locations, prefix)
        if _may_contain_suspect(locations):
            # Few names contain two dots; resolving the location shows whether they are a path segment.
            suspect = pc.or_(pc.match_substring(locations, ".."), pc.match_substring(locations, "\0"))
            is_plain = pc.and_not(is_plain, suspect)
        # Locations without this prefix are replaced below.
        found = locations
        if prefix != f"{root}/":
            found = pc.binary_replace_slice(locations, 0, len(prefix.encode()), f"{root}/")
        if pc.all(is_plain, min_count=0).as_py():
            return found
        is_other = pc.invert(pc.fill_null(is_plain, False))
        others = [None if each is None else self.resolve(each) for each in locations.filter(is_other).to_pylist()]
        return pc.replace_with_mask(found, is_other, pa.array(others, pa.string()))

    def _find_prefix(self, locations: pa.StringArray) -> str:
        """Return the table's own prefix in the spelling of the locations."""
        own = self.recorded_location.rstrip("/")
        if not len(locations) or not locations[0].is_valid:
            return f"{own}/"
        first: str = locations[0].as_py()
        inside = Location.of(first).relative_to(self._recorded)
        return f"{own}/" if inside is None or not first.endswith(inside) else first[: len(first) - len(inside)]

    def look_up_sizes(self, paths: pa.Array, recorded: pa.Array) -> pa.Array:
        """Return file sizes: as recorded in the metadata, except missing sizes and sizes in a moved local table.

        A table's files may be rewritten when it is moved, and looking up local sizes is cheap.
        """
        if self.is_moved and self.storage.is_local:
            return self._fetch_sizes(paths, recorded)
        is_unknown = pc.less_equal(recorded, 0)
        if not pc.any(is_unknown, min_count=0).as_py():
            return recorded
        found = self._fetch_sizes(paths.filter(is_unknown), recorded.filter(is_unknown))
        return pc.replace_with_mask(recorded, is_unknown, found)

    def _fetch_sizes(self, paths: pa.Array, recorded: pa.Array) -> pa.Array:
        if not len(paths):
            return recorded
        found = self.storage.filesystem.get_file_info(paths.to_pylist())
        return pc.coalesce(pa.array([each.size if each.is_file else None for each in found], pa.int64()), recorded)

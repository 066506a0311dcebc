"""Where the files of a table lie: as its metadata says, or where the table was moved to.

Iceberg names every file by its whole location, `s3://bucket/table/data/a.parquet`, so that a table which is copied to
another place still names the old one. Metadata also says where the table itself was (`location`), and it is known
where it was opened: what lies below the one is looked for below the other. Locations are compared without what only
spells them: `s3a` is `s3`, `file:/a` is `/a`, `./a` is `a`.

Data files may lie outside of the table's folder (`write.data.path`, files that were added as they are, migrated
tables). One in the same store (the same bucket, or the local disk of a local table) is read, and reported. Where the
table was moved together with what is around it, it is found there: of `/old/wh/db/t`, opened at `/new/wh/db/t`, the
file `/old/wh/raw/a` is `/new/wh/raw/a` where that exists. A location without a root, such as `data/raw/a`, is beside
the table in the same way, or else below the working directory. A file in another store is read only where the caller
allows it: whoever can write to a table could otherwise have any file read that the reader has rights for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile, MissingFile, UnsupportedFeature, counted
from tamis.io.listing import find_file
from tamis.io.storage import Storage
from tamis.tables.arrays import one_array

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
_SAME_STORE = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasb": "abfs", "wasbs": "abfs"}
_FILE = "file"
_UPWARDS = r"(^|/)\.\.(/|$)"
_LOOKED_THROUGH = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Location:
    """A location without what only spells it."""

    scheme: str
    path: str

    @staticmethod
    def of(text: str) -> Location:
        """
        >>> Location.of("s3a://bucket/table/"), Location.of("file:/data/t"), Location.of("./t")
        (Location(scheme='s3', path='bucket/table'), Location(scheme='file', path='/data/t'), Location(scheme='file', path='t'))
        """  # noqa: E501 - the output of a doctest is one line
        match = _SCHEME.fullmatch(text)
        scheme, rest = (match[1].lower(), match[2]) if match else (_FILE, text)
        scheme = _SAME_STORE.get(scheme, scheme)
        if rest.startswith("//"):
            rest = rest[2:]
        if scheme == _FILE:
            rest = rest.removeprefix("localhost") if rest.startswith("localhost/") and match else rest
            rest = f"/{rest.lstrip('/')}" if rest.startswith("/") else rest
        while rest.startswith("./"):
            rest = rest[2:]
        return Location(scheme, rest.rstrip("/") or rest[:1])

    def below(self, other: Location) -> str | None:
        """The path below another location; None where it is not below it."""
        start = f"{other.path}/"
        return self.path[len(start) :] if self.scheme == other.scheme and self.path.startswith(start) else None


def _may_be_suspect(locations: pa.StringArray) -> bool:
    """Whether two dots or a zero character may be in one of many locations: looked for in all of them at once."""
    text = memoryview(locations.buffers()[2] or b"")
    # Bytes are copied to be looked through: not all of them at once, and of each piece one more for two dots.
    pieces = (bytes(text[start : start + _LOOKED_THROUGH + 1]) for start in range(0, len(text), _LOOKED_THROUGH))
    return any(b".." in piece or b"\0" in piece for piece in pieces)


@dataclass(frozen=True)
class Relocation:
    """The way from the locations that metadata names to paths in the file system."""

    storage: Storage
    """Where the table was opened: the root is its folder."""
    written: str
    """Where the table is, as its metadata says."""
    allow_outside: bool = False
    _known: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    _folders: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)
    """Whether a folder around the table was moved with it, by its first file that was asked for."""

    @cached_property
    def _opened(self) -> Location:
        match = _SCHEME.fullmatch(self.storage.uri)
        scheme = match[1].lower() if match and not self.storage.is_local else _FILE
        return Location(_SAME_STORE.get(scheme, scheme), self._in_store(self.storage.root))

    def _in_store(self, path: str) -> str:
        match = _SCHEME.fullmatch(self.storage.uri)
        if match is None or self.storage.is_local:
            return path.rstrip("/")
        # A path of the file system, as it follows the scheme in a location.
        return Location.of(self.storage.uri).path

    @cached_property
    def _own(self) -> Location:
        return Location.of(self.written)

    @cached_property
    def is_moved(self) -> bool:
        return self._own != self._opened

    def refuse(self) -> None:
        """An error where the table was moved."""
        if self.is_moved:
            raise UnsupportedFeature(
                f"the table at '{self.storage.uri}' was moved: its metadata says that it is at '{self.written}'; "
                "open it there, or leave relocate=False away to read its files from here"
            )

    @property
    def note(self) -> str | None:
        """What a report tells."""
        if not self.is_moved:
            return None
        return f"moved: metadata names '{self.written}', files are read from '{self.storage.uri}'"

    def inside(self, location: str) -> str | None:
        """The path of a file below the table's folder; None for one that is not below it."""
        given = Location.of(location)
        found = (given.below(folder) for folder in (self._own, self._opened))
        return next((f"{self.storage.root.rstrip('/')}/{each}" for each in found if each is not None), None)

    def resolve(self, location: str) -> str:
        """The path in the file system of a file that metadata names."""
        found = self._known.get(location)
        if found is None:
            found = self._known.setdefault(location, self._resolve(location))
        return found

    def _resolve(self, location: str) -> str:
        given = Location.of(location)
        if "\0" in location or re.search(_UPWARDS, given.path):
            raise CorruptFile(
                f"the metadata of '{self.storage.uri}' names {location!r}: a location goes neither upwards nor "
                "holds a zero character"
            )
        return self.inside(location) or self._beside(given) or self._elsewhere(location, given)

    @cached_property
    def _around(self) -> tuple[str, str] | None:
        """What is around the table, where it was written and where it was opened; None where it was not moved with it.

        Both end before the names that the two places have in common at their ends.
        """
        written, opened = self._own.path.split("/"), self.storage.root.rstrip("/").split("/")
        if not self.is_moved or written[-1:] != opened[-1:]:
            return None
        while written and opened and written[-1] == opened[-1]:
            written.pop()
            opened.pop()
        return "/".join(written), "/".join(opened)

    def _beside(self, given: Location) -> str | None:
        """The path of a file that was moved together with the table; None where there is none."""
        if self._around is None or given.scheme != self._own.scheme:
            return None
        written, opened = self._around
        start = f"{written}/" if written else ""
        if not given.path.startswith(start) or (not start and given.path.startswith("/")):
            return None
        path = f"{opened}/{given.path[len(start) :]}"
        folder = path.rpartition("/")[0]
        is_there = self._folders.get(folder)
        if is_there is None:
            is_there = self._folders.setdefault(folder, find_file(self.storage, path) is not None)
        return path if is_there else None

    def _elsewhere(self, location: str, given: Location) -> str:
        """The path of a file that is neither in the table's folder nor was moved with it."""
        if given.scheme == _FILE and not given.path.startswith("/"):
            path = Path(given.path).absolute()
            if not self.storage.is_local or not path.is_file():
                raise MissingFile(
                    f"the table at '{self.storage.uri}' names {location!r}, which is found neither beside it nor below "
                    f"the working directory: put it where it lay from '{self.written}', or open the table from the "
                    "folder in which that path begins"
                )
            return path.as_posix()
        if self._is_of_the_same_store(given) or (self.allow_outside and given.scheme == self._opened.scheme):
            root = self.storage.root.rstrip("/")
            # A location has its host before the path, where the file system has none.
            host = self._opened.path.removesuffix(root)
            if self._opened.path.endswith(root) and given.path.startswith(host):
                return given.path.removeprefix(host)
        if not self.allow_outside:
            raise UnsupportedFeature(
                f"the table at '{self.storage.uri}' names {location!r}, which lies in another store: such a file is "
                "read only where that is allowed (allow_outside=True)"
            )
        return f"{given.scheme}://{given.path}"

    def _is_of_the_same_store(self, given: Location) -> bool:
        if given.scheme != self._opened.scheme:
            return False
        return given.scheme == _FILE or given.path.split("/")[0] == self._opened.path.split("/")[0]

    def outside_note(self, paths: pa.Array) -> str | None:
        """What a report tells of the files that do not lie in the table's folder."""
        is_outside = pc.invert(pc.starts_with(paths, f"{self.storage.root.rstrip('/')}/"))
        count = pc.sum(is_outside).as_py() or 0
        if not count:
            return None
        first = self.storage.place(paths[is_outside.index(True).as_py()].as_py())
        return f"{counted(count, 'file')} outside of the table's folder, such as '{first}'"

    def resolve_all(self, locations: pa.Array | pa.ChunkedArray) -> pa.Array:
        """The same for many: those that begin as the table's own location, which nearly all do, at once."""
        if isinstance(locations, pa.ChunkedArray):
            locations = one_array(locations)
        locations = locations.cast(pa.string())
        start = self._start(locations)
        root = self.storage.root.rstrip("/")
        is_plain = pc.starts_with(locations, start)
        if _may_be_suspect(locations):
            # Two dots are in few names, and where they are a name by themselves shows when the location is resolved.
            suspect = pc.or_(pc.match_substring(locations, ".."), pc.match_substring(locations, "\0"))
            is_plain = pc.and_not(is_plain, suspect)
        # What does not begin so is replaced below.
        found = locations
        if start != f"{root}/":
            found = pc.binary_replace_slice(locations, 0, len(start.encode()), f"{root}/")
        if pc.all(is_plain, min_count=0).as_py():
            return found
        is_other = pc.invert(pc.fill_null(is_plain, False))
        others = [None if each is None else self.resolve(each) for each in locations.filter(is_other).to_pylist()]
        return pc.replace_with_mask(found, is_other, pa.array(others, pa.string()))

    def _start(self, locations: pa.StringArray) -> str:
        """What the locations begin with, as they spell it."""
        own = self.written.rstrip("/")
        if not len(locations) or not locations[0].is_valid:
            return f"{own}/"
        first: str = locations[0].as_py()
        inside = Location.of(first).below(self._own)
        return f"{own}/" if inside is None or not first.endswith(inside) else first[: len(first) - len(inside)]

    def sizes(self, paths: pa.Array, told: pa.Array) -> pa.Array:
        """How many bytes files have: as metadata tells, except where it tells none, and in a table that was moved to a
        local place.

        Whoever moves a table may write its files anew, and there to look costs next to nothing.
        """
        if self.is_moved and self.storage.is_local:
            return self._looked_up(paths, told)
        is_unknown = pc.less_equal(told, 0)
        if not pc.any(is_unknown, min_count=0).as_py():
            return told
        found = self._looked_up(paths.filter(is_unknown), told.filter(is_unknown))
        return pc.replace_with_mask(told, is_unknown, found)

    def _looked_up(self, paths: pa.Array, told: pa.Array) -> pa.Array:
        if not len(paths):
            return told
        found = self.storage.filesystem.get_file_info(paths.to_pylist())
        return pc.coalesce(pa.array([each.size if each.is_file else None for each in found], pa.int64()), told)

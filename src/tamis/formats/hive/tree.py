"""The directories of a table, listed lazily and each at most once, with the visibility rules of Spark.

Hidden names are ignored: names that start with `.`, names that start with `_` and have no `=`, and files of unfinished
copies (`._COPYING_`). Empty files and Parquet's summary files (`_metadata`, `_common_metadata`) are ignored too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import PartitionLayoutError
from tamis.formats.jobs import SMALL_READ, Arguments, Engine, Item, Job, Planning, run_job, storage_to_arguments
from tamis.io.listing import Listing, list_directories
from tamis.io.storage import Storage, make_outside_link_error

# --- Names of partition directories such as `day=2024-03-01`, escaped by Hive, Spark, pyarrow, Polars or DuckDB -------
#
# | in the name      | is decoded to                                                                                  |
# |------------------|------------------------------------------------------------------------------------------------|
# | `%C3%B1`         | `ñ`: a run of bytes of 0x80 and above that is valid UTF-8, as pyarrow, Polars and DuckDB write |
# | any other `%XX`  | the one character with that code, as in Hive: `%3A` is `:`, `%FF` is `ÿ`                       |
# | any other `%`    | itself                                                                                         |
#
# Spark and Hive never escape a character beyond ASCII, so the first rule does not affect the names that they write.

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The value of a directory whose rows have NULL (or, with Hive and Spark, the empty string) in the column."""

_ESCAPED = re.compile(r"(?:%[89A-Fa-f][0-9A-Fa-f])+|%[0-7][0-9A-Fa-f]")

# A name may hold any character, a line break too, hence (?s).
_DIRECTORY = r"(?s)^(?P<column>[^=]*)=(?P<value>.*)$"


def unescape(text: str) -> str:
    """Unescape a string once, so that `%2541` becomes `%41`.

    >>> unescape("10%3A30"), unescape("100%"), unescape("%zz%20"), unescape("%C3%B1"), unescape("%F1")
    ('10:30', '100%', '%zz ', 'ñ', 'ñ')
    """
    return _ESCAPED.sub(_unescape_run, text) if "%" in text else text


def _unescape_run(match: re.Match[str]) -> str:
    content = bytes.fromhex(match[0].replace("%", ""))
    try:
        return content.decode()
    except UnicodeDecodeError:
        # In Latin-1 each byte is the code of its character.
        return content.decode("latin-1")


def split_directory_name(name: str) -> tuple[str, str | None] | None:
    """Return the column and value of a partition directory, both unescaped; None for any other directory.

    The first `=` separates them, since an escaped column name has none. The value is None for NULL, and may be empty.

    >>> split_directory_name("a=b=c"), split_directory_name(f"a={HIVE_NULL}"), split_directory_name("data")
    (('a', 'b=c'), ('a', None), None)
    """
    column, equals, value = name.partition("=")
    return (unescape(column), None if value == HIVE_NULL else unescape(value)) if equals else None


def split_directory_names(names: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    """Return the columns and values of many partition directories, unescaped; a value is null for NULL.

    Both are null for a name without `=`. DuckDB writes the string `__HIVE_DEFAULT_PARTITION__` itself with an escape,
    as `%5F_HIVE_DEFAULT_PARTITION__`.
    """
    parts = pc.extract_regex(names, _DIRECTORY)
    columns, values = pc.struct_field(parts, "column"), pc.struct_field(parts, "value")
    values = pc.if_else(pc.equal(values, HIVE_NULL), pa.scalar(None, pa.string()), values)
    return unescape_all(columns), unescape_all(values)


def unescape_all(texts: pa.StringArray) -> pa.StringArray:
    """Unescape every string. Few names are escaped: Python handles only those, each distinct one once."""
    escaped = pc.fill_null(pc.match_substring(texts, "%"), False)
    if not pc.any(escaped, min_count=0).as_py():
        return texts
    distinct = texts.filter(escaped).dictionary_encode()
    plain = pa.array([unescape(text) for text in distinct.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(texts, escaped, plain.take(distinct.indices))


# --- The directories of a table, listed lazily and each at most once, with the visibility rules of Spark --------------

_HIDDEN = r"(?s)^\.|^_[^=]*$|\._COPYING_$"
_HIDDEN_FILE = rf"{_HIDDEN}|^_(?:common_)?metadata"
_DIRECTORY_PART = r"(?s)^.*/"

DEEPEST_PLAIN = 8
"""The most levels of plain directories below a leaf; a link that leads back up would nest without end."""

FILES_BESIDE_PARTITIONS = "data files are beside partition directories"


@dataclass(frozen=True, slots=True)
class Children:
    """The entries of several directories, one row each; `parent` is the position of the directory of an entry.

    | table        | columns                                                                                      |
    |--------------|----------------------------------------------------------------------------------------------|
    | `partitions` | `path`, `parent`, `column` and `value` (an unescaped string; null for NULL)                   |
    | `plain`      | `path`, `parent`: directories that are not `column=value`                                     |
    | `files`      | `path`, `parent`, `size`, `modified_ns`                                                       |
    """

    partitions: pa.Table
    plain: pa.Table
    files: pa.Table

    @property
    def is_empty(self) -> bool:
        return not (self.partitions.num_rows or self.plain.num_rows or self.files.num_rows)


class DirectoryTree:
    """Cached listings of one table's directories, so that all plans see the same state."""

    def __init__(self, storage: Storage, planning: Planning | None = None) -> None:
        self.storage = storage
        self._planning = planning
        self._listings: dict[str, Listing] = {}
        self._children: dict[str, Children] = {}

    def with_storage(self, storage: Storage) -> DirectoryTree:
        """Return the same tree, with the same cached listings, that lists further directories through `storage`."""
        found = DirectoryTree(storage, self._planning)
        found._listings, found._children = self._listings, self._children
        return found

    @property
    def num_listed(self) -> int:
        """The number of directories listed so far."""
        return len(self._listings)

    def is_listed(self, path: str) -> bool:
        return path in self._listings

    def list(self, paths: Sequence[str]) -> list[Listing]:
        missing = [path for path in dict.fromkeys(paths) if path not in self._listings]
        engine = None
        # Listing one directory takes less time than starting a job, and discovery descends one by one.
        if self._planning is not None and len(missing) > 1:
            calls = -(-len(missing) // self.storage.tuning.directories_per_call)
            engine = self._planning.choose_engine(self.storage, calls, len(missing) * SMALL_READ)
        listed = (
            list_directories(self.storage, missing)
            if engine is None
            else list_directories_in(engine, self.storage, missing)
        )
        for path, listing in zip(missing, listed, strict=True):
            # If two threads list a directory concurrently, both use the first result.
            self._listings.setdefault(path, listing)
        return [self._listings[path] for path in paths]

    def list_children(self, paths: Sequence[str]) -> Children:
        """Return the entries of directories. The entries of a single directory are cached: every query visits the root,
        and most follow one branch."""
        if len(paths) != 1:
            return self._read_children(paths)
        found = self._children.get(paths[0])
        if found is None:
            found = self._children.setdefault(paths[0], self._read_children(paths))
        return found

    def _read_children(self, paths: Sequence[str]) -> Children:
        listings = self.list(paths)
        directories = pa.table(
            {
                "path": _concatenate([listing.directory_paths for listing in listings], pa.string()),
                "parent": _make_parents([len(listing.directory_paths) for listing in listings]),
            }
        )
        files = pa.table(
            {
                "path": _concatenate([listing.file_paths for listing in listings], pa.string()),
                "parent": _make_parents([len(listing.file_paths) for listing in listings]),
                "size": _concatenate([listing.file_sizes for listing in listings], pa.int64()),
                "modified_ns": _concatenate([listing.file_modified_ns for listing in listings], pa.int64()),
            }
        )
        found = self._classify(directories, files)
        outside = frozenset().union(*(self.storage.find_outside_links(path) for path in paths))
        if outside:
            # Links among hidden names are not followed.
            for entries in (found.partitions, found.plain, found.files):
                for path in entries["path"].to_pylist():
                    if path in outside:
                        raise make_outside_link_error(path)
        return found

    def make_conflict_error(self, problem: str, first: str, second: str) -> PartitionLayoutError:
        locate = self.storage.format_path
        return PartitionLayoutError(
            f"{problem}: '{locate(first)}' and '{locate(second)}'. "
            "Move one of them out of the table, or open its directory as a table of its own"
        )

    def make_depth_error(self, path: str) -> PartitionLayoutError:
        return PartitionLayoutError(
            f"more than {DEEPEST_PLAIN} levels of directories below a partition: '{self.storage.format_path(path)}'. "
            "If it is a link that leads back up, remove it"
        )

    def _classify(self, directories: pa.Table, files: pa.Table) -> Children:
        is_hidden = pc.match_substring_regex(extract_base_names(files["path"].combine_chunks()), _HIDDEN_FILE)
        # A size that the file system does not know may be any.
        has_bytes = pc.not_equal(pc.fill_null(files["size"].combine_chunks(), 1), 0)
        files = files.filter(pc.and_not(has_bytes, is_hidden))

        names = extract_base_names(directories["path"].combine_chunks())
        is_seen = pc.invert(pc.match_substring_regex(names, _HIDDEN))
        directories, names = directories.filter(is_seen), names.filter(is_seen)
        is_partition = pc.match_substring(names, "=")
        columns, values = split_directory_names(names.filter(is_partition))
        partitions = directories.filter(is_partition)
        is_empty = pc.equal(columns, "")
        if pc.any(is_empty, min_count=0).as_py():
            path = partitions["path"].filter(is_empty)[0].as_py()
            raise PartitionLayoutError(
                f"the directory '{self.storage.format_path(path)}' has no column name before '=': rename it to "
                "column=value"
            )
        partitions = partitions.append_column("column", columns).append_column("value", values)
        return Children(partitions, directories.filter(pc.invert(is_partition)), files)


def extract_base_names(paths: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring_regex(paths, _DIRECTORY_PART, "")


def _concatenate(arrays: list[pa.Array], data_type: pa.DataType) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], data_type)


def _make_parents(lengths: list[int]) -> pa.Int64Array:
    return pa.array(np.repeat(np.arange(len(lengths), dtype=np.int64), lengths))


# --- Listing of many directories in an engine's executors -------------------------------------------------------------

FUNCTION = "tamis.formats.hive.tree:list_call"

_SCHEMA = pa.schema(
    [
        ("directory", types.LONG),
        ("path", types.STRING),
        ("is_file", types.BOOLEAN),
        ("size", types.LONG),
        ("modified_ns", types.LONG),
    ]
)
"""The entries of directories; `directory` is the position of the parent directory among the paths of the call."""


def list_directories_in(engine: Engine, storage: Storage, paths: Sequence[str]) -> list[Listing]:
    """Return the same as `list_directories`, listed by an engine."""
    most = storage.tuning.directories_per_call
    calls = [paths[start : start + most] for start in range(0, len(paths), most)]
    what = f"list {len(paths):,} {'directory' if len(paths) == 1 else 'directories'} of {storage.uri}"
    job = Job(FUNCTION, storage_to_arguments(storage), _SCHEMA, what, storage.counters)
    batches = run_job(engine, job, [Item.from_json(call, len(call) * SMALL_READ) for call in calls])
    return [listing for call, own in zip(calls, batches, strict=True) for listing in _decode_listings(own, len(call))]


def list_call(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the entries of some directories: for each its files, then its directories, both ordered by name."""
    for number, listing in enumerate(list_directories(arguments.storage, json.loads(item))):
        files, directories = len(listing.file_paths), len(listing.directory_paths)
        if not files + directories:
            continue
        none = pa.nulls(directories, types.LONG)
        yield pa.record_batch(
            [
                pa.repeat(pa.scalar(number, types.LONG), files + directories),
                pa.concat_arrays([listing.file_paths, listing.directory_paths]),
                pa.array(np.arange(files + directories) < files),
                pa.concat_arrays([listing.file_sizes, none]),
                pa.concat_arrays([listing.file_modified_ns, none]),
            ],
            schema=_SCHEMA,
        )


def _decode_listings(batches: Sequence[pa.RecordBatch], count: int) -> list[Listing]:
    found = pa.Table.from_batches(batches, _SCHEMA).combine_chunks()
    directory = found["directory"].to_numpy()
    is_file = found["is_file"].to_numpy().astype(bool)
    numbers = np.arange(count)
    starts, ends = np.searchsorted(directory, numbers), np.searchsorted(directory, numbers, side="right")
    files = np.concatenate([[0], np.cumsum(is_file)])
    paths, sizes, times = (
        found[name].chunk(0) if found.num_rows else pa.array([], _SCHEMA.field(name).type)
        for name in ("path", "size", "modified_ns")
    )
    listings = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        own = int(files[end] - files[start])
        listings.append(
            Listing(
                paths.slice(start, own),
                sizes.slice(start, own),
                times.slice(start, own),
                paths.slice(start + own, end - start - own),
            )
        )
    return listings

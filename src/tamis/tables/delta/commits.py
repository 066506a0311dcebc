"""Lines of JSON with an action each, as commits, compactions and the top files of V2 checkpoints have them.

A commit may add a hundred thousand files, and a log may have ten thousand commits. So files are read in long runs of
bytes, the lines of which become one Arrow array without a copy. Which action a line has shows in its first bytes; the
few in which it does not, such as `{"txn": null, "add": {…}}`, are written anew first. Only lines that matter here are
parsed one by one, and there are few of those: the newest protocol, the newest metadata. What adds or removes a file is
decoded by `tamis.tables.delta.actions`, all lines at once.

The protocol asks for one action a line. Some tools pretty-print them over several lines, or begin a file with a byte
order mark, and other readers take that as well: such a file is parsed whole and written anew first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from tamis.errors import CorruptFile
from tamis.io.ranges import RangedFile
from tamis.io.storage import Storage
from tamis.io.threads import LOCAL_PATIENCE, run_in_threads
from tamis.tables.delta.log import LogFile

LARGEST_FILE = 16 * 1024**3
"""No writer makes a commit of so many bytes; one that has them is refused before any memory is asked for."""

TOGETHER = 8 * 1024 * 1024
"""So many bytes of small files are read as one run."""

OPTIONAL_NAMES = ("remove", "stats", "deletionVector")

KNOWN_NAMES = frozenset(("add", "remove", "metaData", "protocol", "sidecar"))
"""The actions that say what a table is; whatever else there is, nothing here depends on it."""

_FILE_ACTION = r'^\s*\{\s*"(?:add|remove)"\s*:\s*\{'
_ONE_ACTION = r'^\s*\{\s*"[^"\\]*"\s*:\s*\{'
_ANOTHER_ACTION = r',\s*"(?:add|remove|metaData|protocol|sidecar|[^"]*\\u00[4-7][^"]*)"\s*:'
"""Behind the first, and maybe with letters by their numbers: of those that match most only have such a name inside."""
_FIRST_NAME = r'^\s*\{\s*"(?P<name>[^"\\]*)"\s*:'
_ESCAPED_LETTER = re.compile(rb"\\u00[4-7]")
"""A letter of ASCII that is written by its number, which JSON allows in names as well."""
_WINDOW = 8 * 1024 * 1024
_NEWLINE = 10
_BLANKS = " \t\r\n"
_SPACES = np.frombuffer(_BLANKS.encode(), np.uint8)
_CLOSING = ord("}")


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Some lines, each with its line break where it has one, and for each the position of its file."""

    texts: pa.LargeStringArray
    origins: npt.NDArray[np.int32]

    def chosen(self, is_chosen: npt.NDArray[np.bool_]) -> Lines:
        """Some of the lines, without a copy where they stand together."""
        found = np.flatnonzero(is_chosen)
        if len(found) and found[-1] - found[0] + 1 == len(found):
            start = int(found[0])
            return Lines(self.texts.slice(start, len(found)), self.origins[start : start + len(found)])
        return Lines(self.texts.filter(pa.array(is_chosen)), self.origins[is_chosen])


@dataclass(frozen=True, slots=True, eq=False)
class ActionLines:
    """The lines of some files, from old to new."""

    storage: Storage
    files: tuple[LogFile, ...]
    mentioned: frozenset[str]
    """Which of `OPTIONAL_NAMES` occur in the files: a name that does not need not be looked for."""
    about_files: tuple[Lines, ...]
    """The lines that add or remove a file, in runs of files that were read together."""
    others: Lines
    """All other lines."""
    others_names: pa.LargeStringArray
    """What action each of those has: `protocol`, `metaData`, `commitInfo`, …"""
    digest: bytes
    """Stands for all bytes of the files, in their order."""

    @property
    def count_about_files(self) -> int:
        return sum(len(lines.origins) for lines in self.about_files)

    def newest(self, name: str) -> dict[str, Any] | None:
        """The newest action of a kind of which each file may have one, such as `protocol`."""
        found = self._positions(name)
        if not len(found):
            return None
        origins = self.others.origins[found]
        twice = np.flatnonzero(np.diff(origins) == 0)
        if len(twice):
            place = self.place(int(origins[twice[0]]))
            raise CorruptFile(f"'{place}' has the action {name} twice, so it is not clear which one holds")
        return self._parsed(int(found[-1]), name)

    def all(self, name: str) -> Iterator[dict[str, Any]]:
        """All actions of a kind, from old to new. Only for kinds of which there are few."""
        for position in self._positions(name).tolist():
            yield self._parsed(position, name)

    def _positions(self, name: str) -> npt.NDArray[np.int64]:
        return np.flatnonzero(pc.equal(self.others_names, name).to_numpy(zero_copy_only=False))

    def _parsed(self, position: int, name: str) -> dict[str, Any]:
        return parse_action(self.others.texts[position].as_py(), name, self.place(int(self.others.origins[position])))

    def place(self, origin: int) -> str:
        return self.storage.place(self.files[origin].path)


def load_json(text: str) -> Any:
    """A JSON value. A key twice in one object is a ValueError: it is not clear which of the two holds."""
    return json.loads(text, object_pairs_hook=_without_duplicates)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is twice in one object")
    return found


def load_json_stream(text: str) -> Iterator[Any]:
    """The JSON values of a text, one after another, each on any number of lines."""
    decoder = json.JSONDecoder(object_pairs_hook=_without_duplicates)
    position = 0
    while True:
        while position < len(text) and text[position] in _BLANKS:
            position += 1
        if position == len(text):
            return
        value, position = decoder.raw_decode(text, position)
        yield value


def parse_action(line: str, name: str, place: str) -> dict[str, Any]:
    try:
        action = load_json(line)[name]
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"'{place}' has a damaged line with the action {name}: {error}") from error
    if not isinstance(action, dict):
        raise CorruptFile(f"'{place}' has an action {name} that is no object")
    return action


def read_actions(storage: Storage, files: Sequence[LogFile]) -> ActionLines:
    """The lines of files. One that is not UTF-8, or that ends in the middle of a line, is a CorruptFile."""
    mentioned: set[str] = set()
    digest = xxhash.xxh3_128()
    about_files: list[Lines] = []
    others = [Lines(pa.array([], pa.large_string()), np.empty(0, np.int32))]
    is_file = np.empty(0, bool)
    for first, run in _runs(files):
        content, lines = _read_run(storage, run, first)
        digest.update(content)
        mentioned |= _mentioned(content, [name for name in OPTIONAL_NAMES if name not in mentioned])
        is_file = _is_about_file(lines.texts)
        unusual = _unusual(lines.texts, is_file)
        if len(unusual):
            lines = _with_one_action(storage, files, lines, unusual)
            is_file = _is_about_file(lines.texts)
            mentioned |= {"remove"}
        about_files.append(lines.chosen(is_file))
        others.append(lines.chosen(~is_file))
    texts = pa.concat_arrays([lines.texts for lines in others])
    together = Lines(texts, np.concatenate([lines.origins for lines in others]))
    names = _names(together)
    found = ActionLines(
        storage, tuple(files), frozenset(mentioned), tuple(about_files), together, names, digest.digest()
    )
    if len(is_file) and not is_file[-1]:
        _check_last(found)
    return found


def _runs(files: Sequence[LogFile]) -> Iterator[tuple[int, list[LogFile]]]:
    """Files to read together: small ones many, a large one by itself, which then need not be copied."""
    first, size = 0, 0
    for position, file in enumerate(files):
        if position > first and size + file.size > TOGETHER:
            yield first, list(files[first:position])
            first, size = position, 0
        size += file.size
    if files:
        yield first, list(files[first:])


def _read_run(storage: Storage, files: Sequence[LogFile], first: int) -> tuple[memoryview, Lines]:
    """The bytes of files, and their lines that are not blank."""
    patience = LOCAL_PATIENCE if storage.is_local else 0.0
    buffers = run_in_threads(partial(read_whole, storage), files, storage.threads, patience=patience)
    content, ends_of_files = _join(buffers)
    lines, ends, is_odd = _split(content)
    odd = set(np.searchsorted(ends_of_files, ends[is_odd], side="left").tolist())
    if odd:
        buffers = [
            _with_one_action_a_line(buffer, storage.place(file.path)) if number in odd else buffer
            for number, (file, buffer) in enumerate(zip(files, buffers, strict=True))
        ]
        content, ends_of_files = _join(buffers)
        lines, ends, _ = _split(content)
    del buffers
    try:
        texts = lines.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise CorruptFile(_not_utf8(storage, files, content, ends_of_files)) from error
    origins = np.searchsorted(ends_of_files, ends, side="left") + first
    return content, Lines(texts, origins.astype(np.int32))


def _join(buffers: Sequence[pa.Buffer]) -> tuple[memoryview, npt.NDArray[np.int64]]:
    """The bytes of files one after another, and where each ends: one byte behind its own."""
    # A last line may lack its line break: no line may go on into the next file.
    content = memoryview(buffers[0] if len(buffers) == 1 else b"\n".join(buffers))
    return content, np.cumsum([buffer.size + 1 for buffer in buffers], dtype=np.int64)


def _with_one_action_a_line(content: pa.Buffer, place: str) -> pa.Buffer:
    """The same actions, one a line. What is no sequence of JSON objects is a CorruptFile."""
    try:
        values = list(load_json_stream(str(memoryview(content), "utf-8-sig")))
    except UnicodeDecodeError as error:
        raise CorruptFile(f"'{place}' is damaged: it is not UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise CorruptFile(
            f"'{place}' is cut off or damaged: it is not a sequence of JSON objects, one for each action: {error}"
        ) from error
    for value in values:
        if not isinstance(value, dict):
            raise CorruptFile(f"'{place}' has a line that is no JSON object, but {type(value).__name__}")
    # With escapes: half of a surrogate pair, which JSON can write, is no UTF-8.
    return pa.py_buffer("".join(f"{json.dumps(value)}\n" for value in values).encode())


def _mentioned(content: memoryview, names: Sequence[str]) -> set[str]:
    """Which of some names may occur: all of them where one may be spelled otherwise."""
    found: set[str] = set()
    overlap = max(map(len, names), default=0) + 1
    for start in range(0, len(content) if names else 0, _WINDOW):
        # To look for a text in bytes is twice as fast as in a view of them, copy included.
        window = bytes(content[start : start + _WINDOW + overlap])
        if b"\\u00" in window and _ESCAPED_LETTER.search(window):
            return set(names)
        found |= {name for name in names if name not in found and f'"{name}"'.encode() in window}
    return found


def _is_about_file(lines: pa.LargeStringArray) -> npt.NDArray[np.bool_]:
    usual = pc.or_(pc.starts_with(lines, '{"add":{'), pc.starts_with(lines, '{"remove":{'))
    is_file: npt.NDArray[np.bool_] = usual.to_numpy(zero_copy_only=False)
    unsure = np.flatnonzero(~is_file)
    is_file[unsure] = pc.match_substring_regex(lines.take(unsure), _FILE_ACTION).to_numpy(zero_copy_only=False)
    return is_file


def _unusual(lines: pa.LargeStringArray, is_file: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The lines whose action may be another one than the first name says."""
    others = np.flatnonzero(~is_file)
    texts = lines.take(pa.array(others))
    usual = pc.match_substring_regex(texts, _ONE_ACTION)
    is_odd = np.asarray(pc.or_(pc.invert(usual), pc.match_substring_regex(texts, _ANOTHER_ACTION)))
    found: npt.NDArray[np.int64] = others[is_odd]
    return found


def _with_one_action(storage: Storage, files: Sequence[LogFile], lines: Lines, unusual: npt.NDArray[np.int64]) -> Lines:
    """The same lines, those at some places written anew with nothing but the action that they have."""
    texts: list[str] = lines.texts.to_pylist()
    for position in unusual.tolist():
        place = storage.place(files[int(lines.origins[position])].path)
        try:
            parsed = load_json(texts[position])
        except (ValueError, RecursionError) as error:
            raise CorruptFile(f"'{place}' has a line that is no JSON object: {error}") from error
        if not isinstance(parsed, dict):
            raise CorruptFile(f"'{place}' has a line that is no JSON object, but {type(parsed).__name__}")
        actions = {name: action for name, action in parsed.items() if action is not None}
        known = sorted(KNOWN_NAMES & actions.keys())
        if len(known) > 1:
            raise CorruptFile(f"'{place}' has a line with the actions {' and '.join(known)}: a line has one")
        if known and not isinstance(actions[known[0]], dict):
            raise CorruptFile(f"'{place}' has an action {known[0]} that is no object")
        chosen = known or list(actions)[:1]
        # With escapes: half of a surrogate pair, which JSON can write, is no UTF-8.
        texts[position] = json.dumps({name: actions[name] for name in chosen}) + "\n"
    return Lines(pa.array(texts, pa.large_string()), lines.origins)


def read_whole(storage: Storage, file: LogFile) -> pa.Buffer:
    if file.size > LARGEST_FILE:
        raise CorruptFile(f"'{storage.place(file.path)}' would have {file.size} bytes, more than any commit has")
    with RangedFile(storage, file.path, file.size) as opened:
        return opened.read([(0, file.size)])[0]


def _split(content: memoryview) -> tuple[pa.LargeBinaryArray, npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The lines that are not blank, where each ends, and whether it does not begin and end as a JSON object does.

    Between `}` and `{` no JSON value goes on. So where no line is odd, each is one object, or the file is damaged.
    """
    data = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE) + 1
    if not len(ends) or ends[-1] != len(data):
        ends = np.append(ends, len(data))
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    lines = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends), buffers)
    last = _last_visible(data, offsets, lines)
    is_seen = last >= 0
    is_odd = data[last[is_seen]] != _CLOSING
    if not is_seen.all():
        lines, ends = lines.filter(pa.array(is_seen)), ends[is_seen]
    return lines, ends, is_odd | ~_begins_object(lines)


def _begins_object(lines: pa.LargeBinaryArray) -> npt.NDArray[np.bool_]:
    begins: npt.NDArray[np.bool_] = pc.starts_with(lines, b"{").to_numpy(zero_copy_only=False).copy()
    unsure = np.flatnonzero(~begins)
    # As texts, whether they are UTF-8 or not: blanks are single bytes either way.
    trimmed = pc.ascii_ltrim(lines.take(pa.array(unsure)).view(pa.large_string()), characters=_BLANKS)
    begins[unsure] = pc.starts_with(trimmed.view(pa.large_binary()), b"{").to_numpy(zero_copy_only=False)
    return begins


def _last_visible(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], lines: pa.LargeBinaryArray
) -> npt.NDArray[np.int64]:
    """Where the last character of each line is that is no space; -1 for a blank line."""
    starts, last = offsets[:-1], offsets[1:] - 1
    if len(data):
        last -= data[last] == _NEWLINE
        # Behind most lines there is nothing but the line break.
        odd = np.flatnonzero((last >= starts) & np.isin(data[last], _SPACES))
        # Trimmed as texts, whether they are UTF-8 or not: blanks are single bytes either way.
        trimmed = pc.ascii_rtrim(lines.take(pa.array(odd)).view(pa.large_string()), characters=_BLANKS)
        last[odd] = starts[odd] + pc.binary_length(trimmed).to_numpy() - 1
    return np.where(last >= starts, last, -1)


def _not_utf8(
    storage: Storage, files: Sequence[LogFile], content: memoryview, ends_of_files: npt.NDArray[np.int64]
) -> str:
    start = 0
    for file, end in zip(files, ends_of_files.tolist(), strict=True):
        try:
            str(content[start:end], "utf-8")
        except UnicodeDecodeError as error:
            return f"'{storage.place(file.path)}' is damaged: it is not UTF-8 at byte {error.start}"
        start = end
    return f"a commit of '{storage.uri}' is damaged: it is not UTF-8"


def _names(lines: Lines) -> pa.LargeStringArray:
    """The names of the actions of lines; empty for a line without any."""
    return pc.fill_null(pc.struct_field(pc.extract_regex(lines.texts, _FIRST_NAME), "name"), "")


def _check_last(lines: ActionLines) -> None:
    """Nothing of most lines is looked at. The very last one may be half written, and end with a brace by chance."""
    try:
        json.loads(lines.others.texts[-1].as_py())
    except (ValueError, RecursionError) as error:
        place = lines.place(len(lines.files) - 1)
        raise CorruptFile(f"'{place}' is cut off or damaged in its last line: {error}") from error

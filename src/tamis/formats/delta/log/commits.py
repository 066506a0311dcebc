"""JSON log files: commits, log compactions and the JSON top files of V2 checkpoints, with one action per line.

A commit may add a hundred thousand files, and a log may have ten thousand commits. So many small files are read as one
run of bytes, whose lines become one Arrow array without a copy. The first bytes of a line show its action; the few
lines where they do not, such as `{"txn": null, "add": {…}}`, are rewritten first. Only the newest protocol and the
newest metadata are parsed as single lines. `tamis.formats.delta.log.actions` decodes the file actions, all lines at
once.

The protocol requires one action per line. Some tools pretty-print actions over several lines, or start a file with a
byte order mark, and other readers accept that: such a file is parsed whole and rewritten first.
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
from tamis.formats.delta.log.log_segment import LogFile
from tamis.formats.errors import make_corrupt_log_error
from tamis.io.ranges import RangedFile, split_by_bytes
from tamis.io.storage import Storage
from tamis.io.threads import LOCAL_SOLO_SECONDS, run_in_threads

MAX_COMMIT_BYTES = 16 * 1024**3
"""A larger commit is rejected before memory is allocated: no writer writes one."""

OPTIONAL_NAMES = ("remove", "stats", "deletionVector")

KNOWN_NAMES = frozenset(("add", "remove", "metaData", "protocol", "sidecar"))
"""The actions that define a table's content; all others are ignored."""

_FILE_ACTION = r'^\s*\{\s*"(?:add|remove)"\s*:\s*\{'
_ONE_ACTION = r'^\s*\{\s*"[^"\\]*"\s*:\s*\{'
_ANOTHER_ACTION = r',\s*"(?:add|remove|metaData|protocol|sidecar|[^"]*\\u00[4-7][^"]*)"\s*:'
"""A second action on the line, its name possibly written with Unicode escapes. Most matches are only nested keys."""
_FIRST_NAME = r'^\s*\{\s*"(?P<name>[^"\\]*)"\s*:'
_ESCAPED_LETTER = re.compile(rb"\\u00[4-7]")
"""An ASCII letter written as a Unicode escape, which JSON allows in keys too."""
_NEWLINE = 10
_BLANKS = " \t\r\n"
_SPACES = np.frombuffer(_BLANKS.encode(), np.uint8)
_CLOSING = ord("}")


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Lines with their line breaks, and for each line the position of its file."""

    texts: pa.LargeStringArray
    origins: npt.NDArray[np.int32]

    def select(self, is_chosen: npt.NDArray[np.bool_]) -> Lines:
        """Return the lines that a mask selects, without a copy where they are contiguous."""
        found = np.flatnonzero(is_chosen)
        if len(found) and found[-1] - found[0] + 1 == len(found):
            start = int(found[0])
            return Lines(self.texts.slice(start, len(found)), self.origins[start : start + len(found)])
        return Lines(self.texts.filter(pa.array(is_chosen)), self.origins[is_chosen])


@dataclass(frozen=True, slots=True, eq=False)
class ActionLines:
    """The lines of some log files, from old to new."""

    storage: Storage
    files: tuple[LogFile, ...]
    mentioned: frozenset[str]
    """The names of `OPTIONAL_NAMES` that occur in the files; the others need not be parsed."""
    file_actions: tuple[Lines, ...]
    """The lines with file actions, one `Lines` for each run of files that were read together."""
    other_actions: Lines
    other_names: pa.LargeStringArray
    """The action name of each other line: `protocol`, `metaData`, `commitInfo`, …"""
    digest: bytes
    """A hash of all bytes of the files, in their order."""

    @property
    def num_file_actions(self) -> int:
        return sum(len(lines.origins) for lines in self.file_actions)

    def get_newest(self, name: str) -> dict[str, Any] | None:
        """Return the newest action of a name, such as `protocol`, that occurs at most once per file."""
        found = self._find_positions(name)
        if not len(found):
            return None
        origins = self.other_actions.origins[found]
        twice = np.flatnonzero(np.diff(origins) == 0)
        if len(twice):
            location = self.location(int(origins[twice[0]]))
            raise make_corrupt_log_error(
                f"'{location}' has the action {name} twice, so it is not clear which one holds"
            )
        return self._parse(int(found[-1]), name)

    def all(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield all actions of a name, from old to new, parsed one by one: only for actions that are rare."""
        for position in self._find_positions(name).tolist():
            yield self._parse(position, name)

    def _find_positions(self, name: str) -> npt.NDArray[np.int64]:
        return np.flatnonzero(pc.equal(self.other_names, name).to_numpy(zero_copy_only=False))

    def _parse(self, position: int, name: str) -> dict[str, Any]:
        return parse_action(
            self.other_actions.texts[position].as_py(), name, self.location(int(self.other_actions.origins[position]))
        )

    def location(self, origin: int) -> str:
        return self.storage.format_path(self.files[origin].path)


def load_json(text: str, **options: Any) -> Any:
    """Parse a JSON value. A duplicate key raises ValueError: it is not clear which of the values holds."""
    return json.loads(text, object_pairs_hook=_reject_duplicates, **options)


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} occurs twice in one object")
    return found


def load_json_stream(text: str) -> Iterator[Any]:
    """Yield the concatenated JSON values of a string, each on any number of lines."""
    decoder = json.JSONDecoder(object_pairs_hook=_reject_duplicates)
    position = 0
    while True:
        while position < len(text) and text[position] in _BLANKS:
            position += 1
        if position == len(text):
            return
        value, position = decoder.raw_decode(text, position)
        yield value


def parse_action(line: str, name: str, location: str) -> dict[str, Any]:
    try:
        action = load_json(line)[name]
    except (ValueError, RecursionError) as error:
        raise make_corrupt_log_error(f"'{location}' has a damaged line with the action {name}: {error}") from error
    if not isinstance(action, dict):
        raise make_corrupt_log_error(f"'{location}' has an action {name} that is not a JSON object")
    return action


def read_actions(storage: Storage, files: Sequence[LogFile]) -> ActionLines:
    """Read the lines of log files.

    A file that is not UTF-8, or that ends in the middle of a line, raises CorruptFile.
    """
    mentioned: set[str] = set()
    digest = xxhash.xxh3_128()
    about_files: list[Lines] = []
    others = [Lines(pa.array([], pa.large_string()), np.empty(0, np.int32))]
    is_file = np.empty(0, bool)
    # Many small files are read together; one large one is not copied.
    for run in split_by_bytes([file.size for file in files], storage.tuning.max_log_bytes_together):
        content, lines = _read_run(storage, files[run], run.start)
        digest.update(content)
        mentioned |= find_mentioned_names(content, [name for name in OPTIONAL_NAMES if name not in mentioned])
        is_file = _is_file_action(lines.texts)
        unusual = _find_unusual(lines.texts, is_file)
        if len(unusual):
            lines = _rewrite_unusual(storage, files, lines, unusual)
            is_file = _is_file_action(lines.texts)
            mentioned |= {"remove"}
        about_files.append(lines.select(is_file))
        others.append(lines.select(~is_file))
    texts = pa.concat_arrays([lines.texts for lines in others])
    joined = Lines(texts, np.concatenate([lines.origins for lines in others]))
    names = _extract_action_names(joined)
    found = ActionLines(storage, tuple(files), frozenset(mentioned), tuple(about_files), joined, names, digest.digest())
    if len(is_file) and not is_file[-1]:
        _check_last_line(found)
    return found


def _read_run(storage: Storage, files: Sequence[LogFile], first: int) -> tuple[memoryview, Lines]:
    """Return the bytes of files, and their lines that are not blank."""
    patience = LOCAL_SOLO_SECONDS if storage.is_local else 0.0
    buffers = run_in_threads(partial(read_whole, storage), files, storage.threads, patience=patience)
    content, ends_of_files = _join(buffers)
    lines, ends, is_odd = _split(content)
    odd = set(np.searchsorted(ends_of_files, ends[is_odd], side="left").tolist())
    if odd:
        buffers = [
            _rewrite_one_action_per_line(buffer, storage.format_path(file.path)) if number in odd else buffer
            for number, (file, buffer) in enumerate(zip(files, buffers, strict=True))
        ]
        content, ends_of_files = _join(buffers)
        lines, ends, _ = _split(content)
    del buffers
    try:
        texts = lines.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise make_corrupt_log_error(_describe_invalid_utf8(storage, files, content, ends_of_files)) from error
    origins = np.searchsorted(ends_of_files, ends, side="left") + first
    return content, Lines(texts, origins.astype(np.int32))


def _join(buffers: Sequence[pa.Buffer]) -> tuple[memoryview, npt.NDArray[np.int64]]:
    # The last line of a file may lack its line break, and must not continue in the next file.
    content = memoryview(buffers[0] if len(buffers) == 1 else b"\n".join(buffers))
    return content, np.cumsum([buffer.size + 1 for buffer in buffers], dtype=np.int64)


def _rewrite_one_action_per_line(content: pa.Buffer, location: str) -> pa.Buffer:
    """Return the same actions, one per line. Content that is not a sequence of JSON objects raises CorruptFile."""
    try:
        values = list(load_json_stream(str(memoryview(content), "utf-8-sig")))
    except UnicodeDecodeError as error:
        raise make_corrupt_log_error(f"'{location}' is damaged: invalid UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise make_corrupt_log_error(
            f"'{location}' is truncated or damaged: expected a sequence of JSON objects, one for each action: {error}"
        ) from error
    for value in values:
        _check_object(value, location)
    # Written with escapes: JSON can hold half of a surrogate pair, which UTF-8 cannot encode.
    return pa.py_buffer("".join(f"{json.dumps(value)}\n" for value in values).encode())


def _check_object(value: object, location: str) -> None:
    if not isinstance(value, dict):
        raise make_corrupt_log_error(f"'{location}' has a line that is not a JSON object, but {type(value).__name__}")


def find_mentioned_names(content: memoryview, names: Sequence[str], window_bytes: int = 8 * 1024 * 1024) -> set[str]:
    """Return the names that may occur: all of them where a key may be written with Unicode escapes."""
    found: set[str] = set()
    overlap = max(map(len, names), default=0) + 1
    for start in range(0, len(content) if names else 0, window_bytes):
        # Searching in bytes is twice as fast as in a memoryview, copy included.
        window = bytes(content[start : start + window_bytes + overlap])
        if b"\\u00" in window and _ESCAPED_LETTER.search(window):
            return set(names)
        found |= {name for name in names if name not in found and f'"{name}"'.encode() in window}
    return found


def _is_file_action(lines: pa.LargeStringArray) -> npt.NDArray[np.bool_]:
    usual = pc.or_(pc.starts_with(lines, '{"add":{'), pc.starts_with(lines, '{"remove":{'))
    is_file: npt.NDArray[np.bool_] = usual.to_numpy(zero_copy_only=False)
    unsure = np.flatnonzero(~is_file)
    is_file[unsure] = pc.match_substring_regex(lines.take(unsure), _FILE_ACTION).to_numpy(zero_copy_only=False)
    return is_file


def _find_unusual(lines: pa.LargeStringArray, is_file: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the positions of lines whose action may be another one than their first key."""
    others = np.flatnonzero(~is_file)
    texts = lines.take(pa.array(others))
    usual = pc.match_substring_regex(texts, _ONE_ACTION)
    is_odd = np.asarray(pc.or_(pc.invert(usual), pc.match_substring_regex(texts, _ANOTHER_ACTION)))
    found: npt.NDArray[np.int64] = others[is_odd]
    return found


def _rewrite_unusual(storage: Storage, files: Sequence[LogFile], lines: Lines, unusual: npt.NDArray[np.int64]) -> Lines:
    """Return the same lines, with those at `unusual` positions rewritten to hold only their action."""
    texts: list[str] = lines.texts.to_pylist()
    for position in unusual.tolist():
        location = storage.format_path(files[int(lines.origins[position])].path)
        try:
            parsed = load_json(texts[position])
        except (ValueError, RecursionError) as error:
            raise make_corrupt_log_error(f"'{location}' has a line that is not a JSON object: {error}") from error
        _check_object(parsed, location)
        actions = {name: action for name, action in parsed.items() if action is not None}
        known = sorted(KNOWN_NAMES & actions.keys())
        if len(known) > 1:
            raise make_corrupt_log_error(
                f"'{location}' has a line with the actions {' and '.join(known)}: expected one action per line"
            )
        if known and not isinstance(actions[known[0]], dict):
            raise make_corrupt_log_error(f"'{location}' has an action {known[0]} that is not a JSON object")
        chosen = known or list(actions)[:1]
        # Written with escapes: JSON can hold half of a surrogate pair, which UTF-8 cannot encode.
        texts[position] = json.dumps({name: actions[name] for name in chosen}) + "\n"
    return Lines(pa.array(texts, pa.large_string()), lines.origins)


def read_whole(storage: Storage, file: LogFile) -> pa.Buffer:
    if file.size > MAX_COMMIT_BYTES:
        raise CorruptFile(
            f"'{storage.format_path(file.path)}' has {file.size} bytes, expected at most {MAX_COMMIT_BYTES}. Write a "
            "checkpoint of its version or a later one, so that it is not read"
        )
    with RangedFile(storage, file.path, file.size) as opened:
        return opened.read([(0, file.size)])[0]


def _split(content: memoryview) -> tuple[pa.LargeBinaryArray, npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the lines that are not blank, their ends, and whether a line is odd: it does not start with `{` or does
    not end with `}`.

    No JSON value continues from a `}` at the end of a line to a `{` at the start of the next. So if no line is odd,
    each line is one object, or the file is damaged.
    """
    data = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE) + 1
    if not len(ends) or ends[-1] != len(data):
        ends = np.append(ends, len(data))
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    lines = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends), buffers)
    last = _find_last_visible(data, offsets, lines)
    is_visible = last >= 0
    is_odd = data[last[is_visible]] != _CLOSING
    if not is_visible.all():
        lines, ends = lines.filter(pa.array(is_visible)), ends[is_visible]
    return lines, ends, is_odd | ~_is_object_start(lines)


def _is_object_start(lines: pa.LargeBinaryArray) -> npt.NDArray[np.bool_]:
    begins: npt.NDArray[np.bool_] = pc.starts_with(lines, b"{").to_numpy(zero_copy_only=False).copy()
    unsure = np.flatnonzero(~begins)
    # Viewed as strings, even where they are not valid UTF-8: blanks are single bytes either way.
    trimmed = pc.ascii_ltrim(lines.take(pa.array(unsure)).view(pa.large_string()), characters=_BLANKS)
    begins[unsure] = pc.starts_with(trimmed.view(pa.large_binary()), b"{").to_numpy(zero_copy_only=False)
    return begins


def _find_last_visible(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], lines: pa.LargeBinaryArray
) -> npt.NDArray[np.int64]:
    """Return the position of the last character of each line that is not a space; -1 for a blank line."""
    starts, last = offsets[:-1], offsets[1:] - 1
    if len(data):
        last -= data[last] == _NEWLINE
        # Most lines end in the line break alone.
        odd = np.flatnonzero((last >= starts) & np.isin(data[last], _SPACES))
        # Trimmed as strings, even where they are not valid UTF-8: blanks are single bytes either way.
        trimmed = pc.ascii_rtrim(lines.take(pa.array(odd)).view(pa.large_string()), characters=_BLANKS)
        last[odd] = starts[odd] + pc.binary_length(trimmed).to_numpy() - 1
    return np.where(last >= starts, last, -1)


def _describe_invalid_utf8(
    storage: Storage, files: Sequence[LogFile], content: memoryview, ends_of_files: npt.NDArray[np.int64]
) -> str:
    start = 0
    for file, end in zip(files, ends_of_files.tolist(), strict=True):
        try:
            str(content[start:end], "utf-8")
        except UnicodeDecodeError as error:
            return f"'{storage.format_path(file.path)}' is damaged: invalid UTF-8 at byte {error.start}"
        start = end
    return f"a commit of '{storage.uri}' is damaged: invalid UTF-8"


def _extract_action_names(lines: Lines) -> pa.LargeStringArray:
    """Return the action name of each line; an empty string for a line without an action."""
    return pc.fill_null(pc.struct_field(pc.extract_regex(lines.texts, _FIRST_NAME), "name"), "")


def _check_last_line(lines: ActionLines) -> None:
    """Parse the last line, which may be half written and end with a brace by chance; most other lines are not
    parsed."""
    try:
        json.loads(lines.other_actions.texts[-1].as_py())
    except (ValueError, RecursionError) as error:
        location = lines.location(len(lines.files) - 1)
        raise make_corrupt_log_error(f"'{location}' is truncated or damaged in its last line: {error}") from error

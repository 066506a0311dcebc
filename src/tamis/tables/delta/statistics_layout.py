"""Statistics in JSON texts that are laid out alike, taken from the places where their values stand.

The texts of a table mostly come from one program: the same keys in the same order, without blanks, and only values
differ. So the first text is taken apart, and the others are compared with it, all at once:

    {"numRecords":1000,"minValues":{"id":616000,"name":"a"},"maxValues":{"id":616999,"name":"b"}}
     member 0           member 1                 member 2    member 3                 member 4

A member begins after each `,"`. Those with a brace, and those that are wanted, must have the same bytes as the first
text around their values; of the others only the key is looked at, so that no wanted one is among them.

Why that is enough, in texts that are JSON: without a backslash every quote is the end of a string. A `,"` at which a
string ends is followed by no key, so what looks like the member that it should be is one. Every opening brace follows
such a key, every text has as many braces as the first, and so none of them is in a string, and objects begin and end
at the same members. What does not fit is left to those who read JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types

Bits = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Path = tuple[str, ...]

_MEMBER = re.compile(rb'((?:"[^"\\{}]*":\{)*)"([^"\\{}]*)":("[^"\\{}]*"|[^"\\{}\[\],:\s]+)(\}*)')
_OPENED = re.compile(rb'"([^"]*)":\{')
_QUOTE, _COMMA, _OPEN, _CLOSE, _BACKSLASH = b'",{}\\'

_NUMERIC = np.zeros(256, bool)
_NUMERIC[list(b"+-.0123456789Ee")] = True
_STARTS_NUMBER = np.zeros(256, bool)
_STARTS_NUMBER[list(b"-0123456789")] = True


@dataclass(frozen=True, slots=True)
class _Member:
    """A key and its value, as they stand in the first text."""

    path: Path
    before: bytes
    """What stands before the value: objects that begin with this key, and the key."""
    after: bytes
    """The ends of objects of which it is the last key."""

    @property
    def opens(self) -> bool:
        return _OPEN in self.before


def read_alike(texts: pa.StringArray, schema: pa.Schema) -> tuple[pa.StructArray, Bits] | None:
    """The values of a schema in the texts that are laid out like the first, and which texts those are.

    No text may be null. A leaf is a whole number, a float, a decimal, a boolean or a text. None where nothing can be
    said of any text.
    """
    members = _taken_apart(texts[0].as_buffer().to_pybytes()) if len(texts) else None
    if members is None:
        return None
    laid_out = _LaidOut(texts, members)
    wanted = dict(_leaves(schema, ()))
    places = {member.path: number for number, member in enumerate(members)}
    laid_out.keep_alike(wanted)
    for path, data_type in wanted.items():
        if path in places:
            laid_out.keep_readable(places[path], data_type)
    if not len(laid_out.rows):
        return None
    try:
        count = len(laid_out.rows)
        arrays = {
            path: laid_out.values(places[path], data_type) if path in places else pa.nulls(count, data_type)
            for path, data_type in wanted.items()
        }
    except pa.ArrowInvalid:
        return None
    return _nested(pa.struct(list(schema)), arrays, ()), laid_out.is_alike


def _leaves(fields: Iterator[pa.Field] | pa.Schema | pa.StructType, around: Path) -> Iterator[tuple[Path, pa.DataType]]:
    for field in fields:
        path = (*around, field.name)
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, path)
        else:
            yield path, field.type


def _nested(data_type: pa.DataType, arrays: dict[Path, pa.Array], path: Path) -> pa.Array:
    if not pa.types.is_struct(data_type):
        return arrays[path]
    children = [_nested(field.type, arrays, (*path, field.name)) for field in data_type]
    return pa.StructArray.from_arrays(children, fields=list(data_type))


def _taken_apart(text: bytes) -> tuple[_Member, ...] | None:
    """The members of a text; None where it is no object of numbers, texts and such objects, or has a key twice."""
    if not text.startswith(b'{"'):
        return None
    members: list[_Member] = []
    named: list[Path] = []
    around: list[str] = []
    first, *others = text[1:].split(b',"')
    matches = [_MEMBER.fullmatch(each) for each in (first, *(b'"' + each for each in others))]
    for number, match in enumerate(matches):
        if match is None:
            return None
        opened, key, _, after = match.groups()
        try:
            for name in _OPENED.findall(opened):
                around.append(name.decode())
                named.append(tuple(around))
            path = (*around, key.decode())
        except UnicodeDecodeError:
            return None
        is_last = number == len(others)
        if len(after) != len(around) + 1 if is_last else len(after) > len(around):
            return None
        named.append(path)
        members.append(_Member(path, opened + b'"' + key + b'":', after))
        around = around[: max(0, len(around) - len(after))]
    return tuple(members) if len(set(named)) == len(named) else None


_BLOCK = 120 * 1024
"""So many bytes are compared at once. Memory that is asked for in larger pieces comes fresh from the system each time,
which costs more than the work."""


def _blocks(content: Bytes) -> Iterator[Bytes]:
    return (content[start : start + _BLOCK] for start in range(0, len(content), _BLOCK))


def _separators(content: Bytes) -> npt.NDArray[np.int32]:
    """Where the commas are that a quote follows."""
    found = [np.zeros(0, np.int32)]
    for number, block in enumerate(_blocks(content[:-1])):
        commas = np.flatnonzero(block == _COMMA) + number * _BLOCK
        found.append(commas[content[commas + 1] == _QUOTE].astype(np.int32))
    return np.concatenate(found)


class _LaidOut:
    """Texts, and which of them are laid out like the first."""

    def __init__(self, texts: pa.StringArray, members: Sequence[_Member]) -> None:
        _, offsets, values = texts.buffers()
        ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
        self._buffer: pa.Buffer = values.slice(int(ends[0]), int(ends[-1] - ends[0]))
        self._bytes: Bytes = np.frombuffer(self._buffer, np.uint8)
        self._bounds: Places = ends - ends[0]
        self._members = members
        separators = _separators(self._bytes)
        first = np.searchsorted(separators, self._bounds)
        count = len(members) - 1
        is_alike = np.diff(first) == count
        self.rows: Places = np.flatnonzero(is_alike)
        if not is_alike.all():
            separators = separators[first[:-1][is_alike][:, None] + np.arange(count)]
        self._separators = separators.reshape(len(self.rows), count)
        """Those of each row: the members of a text are between them."""

    @property
    def is_alike(self) -> Bits:
        found = np.zeros(len(self._bounds) - 1, bool)
        found[self.rows] = True
        return found

    def _keep(self, is_kept: Bits) -> None:
        if not is_kept.all():
            self.rows = self.rows[is_kept]
            self._separators = self._separators[is_kept]

    def _start(self, number: int) -> Places:
        """Where a member begins in each of the texts."""
        return (self._separators[:, number - 1].astype(np.int64) if number else self._bounds[self.rows]) + 1

    def _end(self, number: int) -> Places:
        is_last = number == len(self._members) - 1
        return self._bounds[self.rows + 1] if is_last else self._separators[:, number].astype(np.int64)

    def _value(self, number: int) -> tuple[Places, Places]:
        member = self._members[number]
        return self._start(number) + len(member.before), self._end(number) - len(member.after)

    def keep_alike(self, wanted: dict[Path, pa.DataType]) -> None:
        """Leave the texts that have the same objects, and in them the wanted keys at the same places."""
        self._keep(self._match(self._bounds[self.rows], b"{"))
        for number, member in enumerate(self._members):
            is_wanted = member.path in wanted
            if is_wanted or member.opens:
                start = self._start(number)
                is_same = self._match(start, member.before)
                start += len(member.before) + len(member.after)
                self._keep(is_same & (start < self._end(number)))
            if not is_wanted:
                depth = len(member.path) - 1
                for name in {path[depth] for path in wanted if path[:depth] == member.path[:depth]}:
                    self._keep_others(number, f'"{name}":'.encode())
            if member.after:
                self._keep(self._match(self._end(number) - len(member.after), member.after))
        braces = sum((member.before + member.after).count(each) for member in self._members for each in (b"{", b"}"))
        self._keep_counted((_OPEN, _CLOSE), braces + 1)
        self._keep_counted((_BACKSLASH,), 0)

    def _keep_others(self, number: int, key: bytes) -> None:
        """Leave the texts whose member has another key."""
        start = self._start(number)
        suspects = np.flatnonzero(self._bytes[start + 1] == key[1])
        if len(suspects):
            is_other = np.ones(len(start), bool)
            is_other[suspects] = ~self._match(start[suspects], key)
            self._keep(is_other)

    def _keep_counted(self, wanted: tuple[int, ...], count: int) -> None:
        """Leave the texts with so many of some bytes; none has fewer."""
        texts = len(self._bounds) - 1
        is_all = count == 0 or len(self.rows) == texts
        total = sum(int(np.count_nonzero(block == each)) for block in _blocks(self._bytes) for each in wanted)
        if not (is_all and total == count * texts):
            places = np.flatnonzero(np.isin(self._bytes, wanted))
            self._keep(np.diff(np.searchsorted(places, self._bounds))[self.rows] == count)

    def keep_readable(self, number: int, data_type: pa.DataType) -> None:
        """Leave the texts whose value of a member looks like one of a type, or is null."""
        start, end = self._value(number)
        is_null = self._is_null(start, end)
        if pa.types.is_string(data_type):
            is_text = (self._bytes[start] == _QUOTE) & (self._bytes[end - 1] == _QUOTE) & (end - start > 1)
            self._keep(is_null | is_text)
        elif pa.types.is_boolean(data_type):
            self._keep(is_null | self._is_word(start, end, b"true") | self._is_word(start, end, b"false"))
        else:
            self._keep(is_null | _STARTS_NUMBER[self._bytes[start]])

    def values(self, number: int, data_type: pa.DataType) -> pa.Array:
        """The values of a member; an ArrowInvalid where one of them is not of the type."""
        start, end = self._value(number)
        is_null = self._is_null(start, end)
        if pa.types.is_boolean(data_type):
            return pa.array(self._is_word(start, end, b"true"), mask=is_null)
        is_text = pa.types.is_string(data_type)
        if is_text:
            start, end = np.where(is_null, start, start + 1), np.where(is_null, start, end - 1)
        elif is_null.any():
            end = np.where(is_null, start, end)
        taken = self._taken(start, end)
        content = np.frombuffer(taken.buffers()[2] or b"", np.uint8)
        if (content == _QUOTE).any() if is_text else not _NUMERIC[content].all():
            raise pa.ArrowInvalid("something else than a value")
        if is_null.any():
            taken = pc.if_else(pa.array(is_null), pa.scalar(None, types.STRING), taken)
        return taken if is_text else taken.cast(data_type)

    def _taken(self, start: Places, end: Places) -> pa.StringArray:
        """Pieces of the texts: every other one of all that the ends of the pieces make."""
        offsets = np.empty(2 * len(start), np.int32)
        offsets[0::2], offsets[1::2] = start, end
        buffers = [None, pa.py_buffer(offsets), self._buffer]
        both = pa.StringArray.from_buffers(2 * len(start) - 1, *buffers[1:])
        return both.take(pa.array(np.arange(0, 2 * len(start) - 1, 2)))

    def _is_null(self, start: Places, end: Places) -> Bits:
        return self._is_word(start, end, b"null")

    def _is_word(self, start: Places, end: Places, word: bytes) -> Bits:
        is_word: Bits = end - start == len(word)
        if is_word.any():
            is_word &= self._match(start, word)
        return is_word

    def _match(self, start: Places, expected: bytes) -> Bits:
        """Whether certain bytes begin at each of the places; several are compared at once, as numbers."""
        found = np.ones(len(start), bool)
        if not expected or not len(start):
            return found
        if len(self._bytes) < len(expected):
            return ~found
        # A piece that is too short to hold the bytes is never kept, whatever is compared instead.
        start = np.minimum(start, len(self._bytes) - len(expected))
        width = next(width for width in (8, 4, 2, 1) if width <= len(expected))
        windows = np.ndarray((len(self._bytes) - width + 1,), f"<u{width}", self._buffer, strides=(1,))
        for place in {*range(0, len(expected) - width, width), len(expected) - width}:
            found &= windows[start + place] == int.from_bytes(expected[place : place + width], "little")
        return found

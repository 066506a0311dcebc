"""File statistics in JSON: whole columns of strings, parsed to structs like those in checkpoints.

The values buffer of a string column, JSON objects back to back, goes to Arrow's JSON reader without a copy, with a
schema of the wanted columns only; other fields are skipped. Blocks end at string boundaries, so the reader does not
search for line ends (a fifth of the time). Strings that the reader rejects are retried in halves, and the last few are
parsed one by one: an invalid string loses only the statistics of its own file. If there are many strings, those with
the same layout are first read without a parser, in half of the time (`read_same_layout`).

| column                   | read as                       | because                                                   |
|--------------------------|-------------------------------|-----------------------------------------------------------|
| integers                 | `int64`                       | statistics may be older than a widening of the column     |
| floats                   | the column's type             | the shortest decimal text parses to the value itself      |
| decimals                 | 76 digits, the column's scale | Arrow overflows silently where fewer digits are asked for |
| strings, dates and times | `string`                      | Arrow's reader supports too few formats of times          |
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from tamis import types
from tamis.formats.delta.log.commits import load_json
from tamis.io.threads import run_in_threads

NUM_RECORDS, TIGHT_BOUNDS = "numRecords", "tightBounds"
MIN_VALUES, MAX_VALUES, NULL_COUNT = "minValues", "maxValues", "nullCount"

Path = tuple[str, ...]

_BLOCK_BYTES = 4 << 20
_MIN_STRINGS_TO_COMPARE = 256
"""The layouts of strings are compared from this many strings on."""
_MAX_LAYOUTS = 3
"""The number of layouts to try before the remaining strings go to the parser."""
_PATIENCE = 0.25
"""The seconds that one thread reads alone before others help: they usually have parts of the same log to read."""
_ONE_BY_ONE = 16
"""Up to this many strings are parsed one by one rather than halved again."""
_QUOTED_NON_FINITE = ((':"NaN"', ":null"), (':"Infinity"', ":Infinity"), (':"-Infinity"', ":-Infinity"))
"""Jackson quotes the numbers that JSON does not have. A colon cannot precede a quote within a string, where quotes are
escaped, so these are whole values."""
_DECIMAL_DIGITS = 76
_EXACT = Context(prec=3 * _DECIMAL_DIGITS)


@dataclass(frozen=True)
class WantedStatistics:
    """The columns whose statistics are requested, by physical path."""

    bounds: Mapping[Path, pa.DataType]
    """Columns with their types in the table, which are ordered."""
    null_counts: tuple[Path, ...]

    @cached_property
    def schema(self) -> pa.Schema:
        bounds = {path: _choose_json_type(data_type) for path, data_type in self.bounds.items()}
        parts = {
            MIN_VALUES: _nest(bounds),
            MAX_VALUES: _nest(bounds),
            NULL_COUNT: _nest(dict.fromkeys(self.null_counts, types.LONG)),
        }
        present = [(name, data_type) for name, data_type in parts.items() if data_type.num_fields]
        return pa.schema([(NUM_RECORDS, types.LONG), (TIGHT_BOUNDS, types.BOOLEAN), *present])

    @cached_property
    def has_floats(self) -> bool:
        return any(pa.types.is_floating(data_type) for data_type in self.bounds.values())


def _choose_json_type(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(data_type):
        return types.LONG
    if pa.types.is_floating(data_type):
        return data_type
    if pa.types.is_decimal(data_type):
        return pa.decimal256(_DECIMAL_DIGITS, data_type.scale)
    return types.STRING


def _nest(leaves: Mapping[Path, pa.DataType]) -> pa.StructType:
    inner: dict[str, dict[Path, pa.DataType]] = {}
    for path, data_type in leaves.items():
        inner.setdefault(path[0], {})[path[1:]] = data_type
    return pa.struct([(name, below[()] if () in below else _nest(below)) for name, below in inner.items()])


def parse_statistics(texts: pa.Array, wanted: WantedStatistics) -> pa.StructArray:
    """Parse strings to structs with the fields of `wanted`; null where a string is not valid."""
    texts = texts.cast(types.STRING) if not pa.types.is_string(texts.type) else texts
    if not texts.null_count:
        return _read_blocks(texts, wanted)
    present = texts.is_valid()
    found = _read_blocks(texts.filter(present), wanted)
    position = pc.subtract(pc.cumulative_sum(present.cast(pa.int64())), 1)
    return found.take(pc.if_else(present, position, pa.scalar(None, pa.int64())))


def _read_blocks(texts: pa.StringArray, wanted: WantedStatistics) -> pa.StructArray:
    count = max(1, len(texts) * _BLOCK_BYTES // max(1, _get_values_buffer(texts).size))
    blocks = [texts.slice(start, count) for start in range(0, len(texts), count)]
    found = run_in_threads(lambda block: _read_block(block, wanted), blocks, os.cpu_count(), patience=_PATIENCE)
    return pa.concat_arrays(found) if found else _make_nulls(0, wanted)


def _read_block(texts: pa.StringArray, wanted: WantedStatistics) -> pa.StructArray:
    found: list[pa.StructArray] = []
    rows: list[npt.NDArray[np.int64]] = []
    left = np.arange(len(texts))
    rest = texts
    for _ in range(_MAX_LAYOUTS):
        alike = read_same_layout(rest, wanted.schema) if len(rest) >= _MIN_STRINGS_TO_COMPARE else None
        if alike is None:
            break
        values, is_alike = alike
        if len(values) == len(texts):
            return values
        found.append(values)
        rows.append(left[is_alike])
        left = left[~is_alike]
        rest = texts.take(pa.array(left))
    if not found:
        return _read_all(texts, wanted)
    order = np.argsort(np.concatenate([*rows, left]))
    return pa.concat_arrays([*found, _read_all(rest, wanted)]).take(pa.array(order))


def _read_all(texts: pa.StringArray, wanted: WantedStatistics) -> pa.StructArray:
    found = _read_with_arrow(texts, wanted)
    if found is None and wanted.has_floats:
        repaired = texts
        for quoted, plain in _QUOTED_NON_FINITE:
            repaired = pc.replace_substring(repaired, quoted, plain)
        found = _read_with_arrow(repaired, wanted)
    if found is not None:
        return found
    if len(texts) <= _ONE_BY_ONE:
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:  # not UTF-8
            return _make_nulls(len(texts), wanted)
        data_type = pa.struct(list(wanted.schema))
        return pa.array([_read_one(text, data_type) for text in texts.to_pylist()], data_type)
    half = len(texts) // 2
    return pa.concat_arrays([_read_all(texts.slice(0, half), wanted), _read_all(texts.slice(half), wanted)])


def _read_with_arrow(texts: pa.StringArray, wanted: WantedStatistics) -> pa.StructArray | None:
    """Parse strings that are one JSON object each; None if one of them is not."""
    objects = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    if not pc.all(objects, min_count=0).as_py():
        # Several objects in one string and none in another would shift the rows between them.
        return None
    values = _get_values_buffer(texts)
    try:
        table = pa.json.read_json(
            pa.BufferReader(values),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=values.size + 1),
            parse_options=pa.json.ParseOptions(
                explicit_schema=wanted.schema, newlines_in_values=True, unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(texts):
        return None
    found = table.select(wanted.schema.names).to_struct_array()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _get_values_buffer(texts: pa.StringArray) -> pa.Buffer:
    _, offsets, values = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]]
    return values.slice(int(ends[0]), int(ends[1] - ends[0]))


def _make_nulls(count: int, wanted: WantedStatistics) -> pa.StructArray:
    return pa.nulls(count, pa.struct(list(wanted.schema)))


# --- One by one ------------------------------------------------------------------------------------------------------


def _read_one(text: str, data_type: pa.StructType) -> dict[str, Any] | None:
    try:
        root = load_json(text, parse_float=Decimal)
    except (ValueError, RecursionError, InvalidOperation):
        return None
    if not isinstance(root, dict):
        return None
    found = {field.name: _convert(root.get(field.name), field.type, field.name) for field in data_type}
    if root.get(TIGHT_BOUNDS) not in (None, True):
        found[TIGHT_BOUNDS] = False
    return found


def _convert(value: Any, data_type: pa.DataType, statistic: str) -> Any:
    if not pa.types.is_struct(data_type):
        return _CONVERTERS[data_type.id](value, data_type, statistic)
    if not isinstance(value, dict):
        return None
    return {field.name: _convert(value.get(field.name), field.type, statistic) for field in data_type}


def _to_integer(value: Any, data_type: pa.DataType, statistic: str) -> int | None:
    number = _parse_number(value)
    smallest, largest = types.get_integer_range(data_type)
    if number is None or not smallest <= number <= largest or number != int(number):
        return None
    return int(number)


def _to_float(value: Any, data_type: pa.DataType, statistic: str) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    # A number out of range parses as infinity, although no value of the file may be infinite.
    is_infinite = number in (math.inf, -math.inf)
    is_explicit = isinstance(value, float) or (isinstance(value, str) and "inf" in value.lower())
    return None if number != number or (is_infinite and not is_explicit) else number


def _to_decimal(value: Any, data_type: pa.DataType, statistic: str) -> Decimal | None:
    number = _parse_number(value)
    if number is None:
        return None
    step = Decimal((0, (1,), -data_type.scale))
    rounding = ROUND_CEILING if statistic == MAX_VALUES else ROUND_FLOOR
    rounded = number.quantize(step, rounding, _EXACT)
    return rounded if len(rounded.as_tuple().digits) <= _DECIMAL_DIGITS else None


def _parse_number(value: Any) -> Decimal | None:
    """Return a number, given as a number or a string; None if it is out of the range of any column."""
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        return None
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    is_short = number.is_finite() and len(number.as_tuple().digits) + abs(number.adjusted()) <= _DECIMAL_DIGITS
    return number if is_short or number == 0 else None


def _to_string(value: Any, data_type: pa.DataType, statistic: str) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return None
    return value


_CONVERTERS: dict[int, Callable[[Any, pa.DataType, str], Any]] = {
    types.BOOLEAN.id: lambda value, data_type, statistic: value if isinstance(value, bool) else None,
    types.LONG.id: _to_integer,
    pa.float32().id: _to_float,
    types.DOUBLE.id: _to_float,
    pa.decimal256(_DECIMAL_DIGITS, 0).id: _to_decimal,
    types.STRING.id: _to_string,
}

# --- Statistics in JSON strings of the same layout, read from the positions of their values without a parser ----------
#
# The strings of a table mostly come from one writer: they have the same keys in the same order, without blanks, and
# only values differ. So the first string is split into members, and the others are compared with it, all together:
#
#     {"numRecords":1000,"minValues":{"id":616000,"name":"a"},"maxValues":{"id":616999,"name":"b"}}
#      member 0           member 1                 member 2    member 3                 member 4
#
# A member starts after each `,"`. Members with a brace, and wanted members, must have the same bytes around their
# values as in the first string; of the other members only the key is checked, so that no wanted key is among them.
#
# Why that is enough, in strings that are valid JSON: without a backslash, every quote starts or ends a JSON string. If
# the quote of a `,"` ends a JSON string, no key follows it; so bytes that match the expected member are that member.
# Every opening brace follows such a key, and every string has as many braces as the first; so no brace is within a JSON
# string, and objects start and end at the same members. Strings of another layout are left to the JSON parser.

Bits = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_MEMBER = re.compile(rb'((?:"[^"\\{}]*":\{)*)"([^"\\{}]*)":("[^"\\{}]*"|[^"\\{}\[\],:\s]+)(\}*)')
_OPENED = re.compile(rb'"([^"]*)":\{')
_QUOTE, _COMMA, _OPEN, _CLOSE, _BACKSLASH = b'",{}\\'

_NUMERIC = np.zeros(256, bool)
_NUMERIC[list(b"+-.0123456789Ee")] = True
_STARTS_NUMBER = np.zeros(256, bool)
_STARTS_NUMBER[list(b"-0123456789")] = True


@dataclass(frozen=True, slots=True)
class _Member:
    """A key and its value in the first string."""

    path: Path
    before: bytes
    """The bytes before the value: the openings of objects that start with this key, and the key."""
    after: bytes
    """The closing braces of objects that end with this key."""

    @property
    def opens(self) -> bool:
        return _OPEN in self.before


def read_same_layout(texts: pa.StringArray, schema: pa.Schema) -> tuple[pa.StructArray, Bits] | None:
    """Return the values of a schema in the strings with the layout of the first, and a mask of those strings.

    No string may be null. A leaf is an integer, a float, a decimal, a boolean or a string. The result is None if no
    string can be read.
    """
    members = _split_members(texts[0].as_buffer().to_pybytes()) if len(texts) else None
    if members is None:
        return None
    layout = _SameLayout(texts, members)
    wanted = dict(_list_leaves(schema, ()))
    numbers = {member.path: number for number, member in enumerate(members)}
    layout.keep_alike(wanted)
    for path, data_type in wanted.items():
        if path in numbers:
            layout.keep_readable(numbers[path], data_type)
    if not len(layout.rows):
        return None
    try:
        count = len(layout.rows)
        arrays = {
            path: layout.read_values(numbers[path], data_type) if path in numbers else pa.nulls(count, data_type)
            for path, data_type in wanted.items()
        }
    except pa.ArrowInvalid:
        return None
    return _nest_layout(pa.struct(list(schema)), arrays, ()), layout.is_alike


def _list_leaves(
    fields: Iterator[pa.Field] | pa.Schema | pa.StructType, parents: Path
) -> Iterator[tuple[Path, pa.DataType]]:
    for field in fields:
        path = (*parents, field.name)
        if pa.types.is_struct(field.type):
            yield from _list_leaves(field.type, path)
        else:
            yield path, field.type


def _nest_layout(data_type: pa.DataType, arrays: dict[Path, pa.Array], path: Path) -> pa.Array:
    if not pa.types.is_struct(data_type):
        return arrays[path]
    children = [_nest_layout(field.type, arrays, (*path, field.name)) for field in data_type]
    return pa.StructArray.from_arrays(children, fields=list(data_type))


def _split_members(text: bytes) -> tuple[_Member, ...] | None:
    """Split a JSON object into members; None unless it has only numbers, strings and such objects, and unique keys."""
    if not text.startswith(b'{"'):
        return None
    members: list[_Member] = []
    paths: list[Path] = []
    parents: list[str] = []
    first, *others = text[1:].split(b',"')
    matches = [_MEMBER.fullmatch(each) for each in (first, *(b'"' + each for each in others))]
    for number, match in enumerate(matches):
        if match is None:
            return None
        opened, key, _, after = match.groups()
        try:
            for name in _OPENED.findall(opened):
                parents.append(name.decode())
                paths.append(tuple(parents))
            path = (*parents, key.decode())
        except UnicodeDecodeError:
            return None
        is_last = number == len(others)
        if len(after) != len(parents) + 1 if is_last else len(after) > len(parents):
            return None
        paths.append(path)
        members.append(_Member(path, opened + b'"' + key + b'":', after))
        parents = parents[: max(0, len(parents) - len(after))]
    return tuple(members) if len(set(paths)) == len(paths) else None


_BLOCK = 120 * 1024
"""The number of bytes that are compared at a time. Larger allocations come fresh from the system each time, which costs
more than the comparison."""


def _split_blocks(content: Bytes) -> Iterator[Bytes]:
    return (content[start : start + _BLOCK] for start in range(0, len(content), _BLOCK))


def _find_separators(content: Bytes) -> npt.NDArray[np.int32]:
    """Return the positions of the commas that a quote follows."""
    found = [np.zeros(0, np.int32)]
    for number, block in enumerate(_split_blocks(content[:-1])):
        commas = np.flatnonzero(block == _COMMA) + number * _BLOCK
        found.append(commas[content[commas + 1] == _QUOTE].astype(np.int32))
    return np.concatenate(found)


class _SameLayout:
    """Strings, and the ones among them with the layout of the first."""

    def __init__(self, texts: pa.StringArray, members: Sequence[_Member]) -> None:
        _, offsets, values = texts.buffers()
        ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
        self._buffer: pa.Buffer = values.slice(int(ends[0]), int(ends[-1] - ends[0]))
        self._bytes: Bytes = np.frombuffer(self._buffer, np.uint8)
        self._bounds: Positions = ends - ends[0]
        self._members = members
        separators = _find_separators(self._bytes)
        first = np.searchsorted(separators, self._bounds)
        count = len(members) - 1
        is_alike = np.diff(first) == count
        self.rows: Positions = np.flatnonzero(is_alike)
        if not is_alike.all():
            separators = separators[first[:-1][is_alike][:, None] + np.arange(count)]
        self._separators = separators.reshape(len(self.rows), count)
        """The separators of each row: the members of a string are between them."""

    @property
    def is_alike(self) -> Bits:
        found = np.zeros(len(self._bounds) - 1, bool)
        found[self.rows] = True
        return found

    def _keep(self, is_kept: Bits) -> None:
        if not is_kept.all():
            self.rows = self.rows[is_kept]
            self._separators = self._separators[is_kept]

    def _find_start(self, number: int) -> Positions:
        """Return where a member starts in each string."""
        return (self._separators[:, number - 1].astype(np.int64) if number else self._bounds[self.rows]) + 1

    def _find_end(self, number: int) -> Positions:
        is_last = number == len(self._members) - 1
        return self._bounds[self.rows + 1] if is_last else self._separators[:, number].astype(np.int64)

    def _find_value(self, number: int) -> tuple[Positions, Positions]:
        member = self._members[number]
        return self._find_start(number) + len(member.before), self._find_end(number) - len(member.after)

    def keep_alike(self, wanted: dict[Path, pa.DataType]) -> None:
        """Keep the strings with the same objects that have the wanted keys at the same positions."""
        self._keep(self._match(self._bounds[self.rows], b"{"))
        for number, member in enumerate(self._members):
            is_wanted = member.path in wanted
            if is_wanted or member.opens:
                start = self._find_start(number)
                is_same = self._match(start, member.before)
                start += len(member.before) + len(member.after)
                self._keep(is_same & (start < self._find_end(number)))
            if not is_wanted:
                depth = len(member.path) - 1
                for name in {path[depth] for path in wanted if path[:depth] == member.path[:depth]}:
                    self._drop_key(number, f'"{name}":'.encode())
            if member.after:
                self._keep(self._match(self._find_end(number) - len(member.after), member.after))
        braces = sum((member.before + member.after).count(each) for member in self._members for each in (b"{", b"}"))
        self._keep_counted((_OPEN, _CLOSE), braces + 1)
        self._keep_counted((_BACKSLASH,), 0)

    def _drop_key(self, number: int, key: bytes) -> None:
        """Keep the strings whose member has another key."""
        start = self._find_start(number)
        suspects = np.flatnonzero(self._bytes[start + 1] == key[1])
        if len(suspects):
            is_other = np.ones(len(start), bool)
            is_other[suspects] = ~self._match(start[suspects], key)
            self._keep(is_other)

    def _keep_counted(self, wanted: tuple[int, ...], count: int) -> None:
        """Keep the strings with exactly `count` of the wanted bytes; no string has fewer."""
        texts = len(self._bounds) - 1
        is_all = count == 0 or len(self.rows) == texts
        total = sum(int(np.count_nonzero(block == each)) for block in _split_blocks(self._bytes) for each in wanted)
        if not (is_all and total == count * texts):
            positions = np.flatnonzero(np.isin(self._bytes, wanted))
            self._keep(np.diff(np.searchsorted(positions, self._bounds))[self.rows] == count)

    def keep_readable(self, number: int, data_type: pa.DataType) -> None:
        """Keep the strings in which a member's value looks like one of a type, or is null."""
        start, end = self._find_value(number)
        is_null = self._is_word(start, end, b"null")
        if pa.types.is_string(data_type):
            is_text = (self._bytes[start] == _QUOTE) & (self._bytes[end - 1] == _QUOTE) & (end - start > 1)
            self._keep(is_null | is_text)
        elif pa.types.is_boolean(data_type):
            self._keep(is_null | self._is_word(start, end, b"true") | self._is_word(start, end, b"false"))
        else:
            self._keep(is_null | _STARTS_NUMBER[self._bytes[start]])

    def read_values(self, number: int, data_type: pa.DataType) -> pa.Array:
        """Return the values of a member; raise ArrowInvalid where one of them is not of the type."""
        start, end = self._find_value(number)
        is_null = self._is_word(start, end, b"null")
        if pa.types.is_boolean(data_type):
            return pa.array(self._is_word(start, end, b"true"), mask=is_null)
        is_text = pa.types.is_string(data_type)
        if is_text:
            start, end = np.where(is_null, start, start + 1), np.where(is_null, start, end - 1)
        elif is_null.any():
            end = np.where(is_null, start, end)
        values = self._extract(start, end)
        content = np.frombuffer(values.buffers()[2] or b"", np.uint8)
        if (content == _QUOTE).any() if is_text else not _NUMERIC[content].all():
            raise pa.ArrowInvalid("not a value of the type")
        if is_null.any():
            values = pc.if_else(pa.array(is_null), pa.scalar(None, types.STRING), values)
        return values if is_text else values.cast(data_type)

    def _extract(self, start: Positions, end: Positions) -> pa.StringArray:
        """Return the bytes between starts and ends as strings: every other one of those that all offsets delimit."""
        offsets = np.empty(2 * len(start), np.int32)
        offsets[0::2], offsets[1::2] = start, end
        buffers = [None, pa.py_buffer(offsets), self._buffer]
        both = pa.StringArray.from_buffers(2 * len(start) - 1, *buffers[1:])
        return both.take(pa.array(np.arange(0, 2 * len(start) - 1, 2)))

    def _is_word(self, start: Positions, end: Positions, word: bytes) -> Bits:
        is_word: Bits = end - start == len(word)
        if is_word.any():
            is_word &= self._match(start, word)
        return is_word

    def _match(self, start: Positions, expected: bytes) -> Bits:
        """Return whether the expected bytes start at each position; several bytes are compared together, as
        integers."""
        found = np.ones(len(start), bool)
        if not expected or not len(start):
            return found
        if len(self._bytes) < len(expected):
            return ~found
        # Strings that are too short for the expected bytes compare other bytes here; the length check drops them
        # anyway.
        start = np.minimum(start, len(self._bytes) - len(expected))
        width = next(width for width in (8, 4, 2, 1) if width <= len(expected))
        windows = np.ndarray((len(self._bytes) - width + 1,), f"<u{width}", self._buffer, strides=(1,))
        for offset in {*range(0, len(expected) - width, width), len(expected) - width}:
            found &= windows[start + offset] == int.from_bytes(expected[offset : offset + width], "little")
        return found

"""File statistics in JSON: whole columns of strings, parsed to structs like those in checkpoints.

The values buffer of a string column, JSON objects back to back, goes to Arrow's JSON reader without a copy, with a
schema of the wanted columns only; other fields are skipped. It goes in blocks that end where a string ends, so that the
reader need not search for line ends, which would be a fifth of its work. Strings that the reader rejects are retried in
halves, and the last few are parsed one by one: an invalid string loses only the statistics of its own file. Before all
that, where there are many strings, those with the same layout are read without a parser, in half of the time: see
`tamis.tables.delta.statistics_layout`.

| column                   | read as                       | because                                                   |
|--------------------------|-------------------------------|-----------------------------------------------------------|
| integers                 | `int64`                       | statistics may be older than a widening of the column     |
| floats                   | the column's type             | the shortest decimal text parses to the value itself      |
| decimals                 | 76 digits, the column's scale | Arrow overflows silently where fewer digits are asked for |
| strings, dates and times | `string`                      | Arrow's reader supports too few formats of times          |
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
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
from tamis.io.threads import run_in_threads
from tamis.tables.delta.statistics_layout import read_same_layout

NUM_RECORDS, TIGHT_BOUNDS = "numRecords", "tightBounds"
MIN_VALUES, MAX_VALUES, NULL_COUNT = "minValues", "maxValues", "nullCount"

Path = tuple[str, ...]

_BLOCK_BYTES = 4 << 20
"""The number of bytes of JSON that one block holds."""
_MIN_STRINGS_TO_COMPARE = 256
"""The layouts of strings are compared from this many strings on."""
_MOST_LAYOUTS = 3
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
    for _ in range(_MOST_LAYOUTS):
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
        return _read_one_by_one(texts.to_pylist(), wanted) if _is_utf8(texts) else _make_nulls(len(texts), wanted)
    half = len(texts) // 2
    return pa.concat_arrays([_read_all(texts.slice(0, half), wanted), _read_all(texts.slice(half), wanted)])


def _read_with_arrow(texts: pa.StringArray, wanted: WantedStatistics) -> pa.StructArray | None:
    """Parse strings that are one JSON object each; None where one of them is not."""
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


def _is_utf8(texts: pa.StringArray) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _make_nulls(count: int, wanted: WantedStatistics) -> pa.StructArray:
    return pa.nulls(count, pa.struct(list(wanted.schema)))


# --- One by one ------------------------------------------------------------------------------------------------------


def _read_one_by_one(texts: Sequence[str], wanted: WantedStatistics) -> pa.StructArray:
    data_type = pa.struct(list(wanted.schema))
    return pa.array([_read_one(text, data_type) for text in texts], data_type)


def _read_one(text: str, data_type: pa.StructType) -> dict[str, Any] | None:
    try:
        root = json.loads(text, parse_float=Decimal, object_pairs_hook=_reject_duplicates)
    except (ValueError, RecursionError, InvalidOperation):
        return None
    if not isinstance(root, dict):
        return None
    found = {field.name: _convert(root.get(field.name), field.type, field.name) for field in data_type}
    if root.get(TIGHT_BOUNDS) not in (None, True):
        found[TIGHT_BOUNDS] = False
    return found


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _convert(value: Any, data_type: pa.DataType, statistic: str) -> Any:
    """Convert a JSON value to a type; None where it is not valid."""
    if not pa.types.is_struct(data_type):
        return _CONVERTERS[data_type.id](value, data_type, statistic)
    if not isinstance(value, dict):
        return None
    return {field.name: _convert(value.get(field.name), field.type, statistic) for field in data_type}


def _to_boolean(value: Any, data_type: pa.DataType, statistic: str) -> bool | None:
    return value if isinstance(value, bool) else None


def _to_integer(value: Any, data_type: pa.DataType, statistic: str) -> int | None:
    number = _parse_number(value)
    smallest, largest = types.integer_range(data_type)
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
    """Return a number, given as a number or a string; None where it is out of the range of any column."""
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
    types.BOOLEAN.id: _to_boolean,
    types.LONG.id: _to_integer,
    pa.float32().id: _to_float,
    types.DOUBLE.id: _to_float,
    pa.decimal256(_DECIMAL_DIGITS, 0).id: _to_decimal,
    types.STRING.id: _to_string,
}

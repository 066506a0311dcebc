"""Format values as text, a whole column at a time: for tables, tab-separated lines and JSON.

All outputs use the same formats:

    numbers         digits; NaN, Infinity, -Infinity, which are strings in JSON
    decimals        all of their digits
    dates, times    ISO 8601: 2024-03-03, 2024-03-03T12:30:00.250000, with a Z for instants
    binary          hexadecimal, as the SQL literal X'00ff'
    durations       the count and the unit: 1500 ms
    lists, structs  JSON; a map with string keys is an object, another one a list of {"key": …, "value": …}
    NULL            null in JSON; tables and tab-separated lines have their own symbols for it
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types

_NOT_FINITE = (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity"))
_HEX_DIGITS = np.array([list(f"{byte:02x}".encode()) for byte in range(256)], dtype=np.uint8)


def format_cells(array: pa.Array) -> pa.Array:
    """Return the text of each value; NULL stays NULL."""
    array = _decode(array)
    data_type = array.type
    if pa.types.is_null(data_type):
        return pa.nulls(len(array), pa.string())
    if types.is_text(data_type):
        return _to_valid_texts(array)
    if pa.types.is_floating(data_type):
        return _format_floats(array)
    if pa.types.is_timestamp(data_type):
        return _format_timestamps(array)
    if pa.types.is_duration(data_type):
        return _join(pc.cast(pc.cast(array, pa.int64()), pa.string()), f" {data_type.unit}")
    if types.is_bytes(data_type):
        return _format_binary(array)
    if pa.types.is_nested(data_type):
        return pc.if_else(array.is_valid(), format_json(array), pa.scalar(None, pa.string()))
    if pa.types.is_interval(data_type):
        # Arrow has no kernel for intervals, and files rarely contain them.
        return pa.array(
            [None if value is None else _format_interval(value) for value in array.to_pylist()], pa.string()
        )
    return pc.cast(array, pa.string())


def _format_interval(value: pa.MonthDayNano) -> str:
    """Return an interval in ISO 8601.

    >>> _format_interval(pa.MonthDayNano([14, -3, 1_500_000_000])), _format_interval(pa.MonthDayNano([0, 0, 0]))
    ('P14M-3DT1.5S', 'PT0S')
    """
    months, days, nanoseconds = value
    date = (f"{months}M" if months else "") + (f"{days}D" if days else "")
    seconds, remainder = divmod(abs(nanoseconds), 10**9)
    fraction = f".{remainder:09d}".rstrip("0") if remainder else ""
    time = f"T{'-' if nanoseconds < 0 else ''}{seconds}{fraction}S" if nanoseconds or not date else ""
    return f"P{date}{time}"


def format_json(array: pa.Array) -> pa.Array:
    """Return each value as JSON; NULL is `null`."""
    array = _decode(array)
    data_type = array.type
    if pa.types.is_struct(data_type):
        names = [field.name for field in data_type]
        texts = format_json_objects(names, array.flatten(), len(array))
    elif pa.types.is_map(data_type):
        texts = _format_maps(array)
    elif pa.types.is_nested(data_type):
        texts = _join("[", _join_items(array, format_json(array.flatten())), "]")
    elif pa.types.is_floating(data_type):
        texts = _format_floats(array)
        texts = pc.if_else(pc.is_finite(array), texts, _join('"', texts, '"'))
    elif pa.types.is_integer(data_type) or pa.types.is_boolean(data_type) or pa.types.is_decimal(data_type):
        texts = pc.cast(array, pa.string())
    else:
        texts = _quote(format_cells(array))
    # A NULL struct or list has some text from above.
    return pc.if_else(array.is_valid(), texts, "null").fill_null("null")


def format_json_objects(names: list[str], columns: list[pa.Array], count: int) -> pa.Array:
    """Return one JSON object for each row."""
    if not columns:
        return pa.repeat(pa.scalar("{}"), count)
    parts: list[pa.Array | str] = []
    for index, (name, column) in enumerate(zip(names, columns, strict=True)):
        parts += [f"{', ' if index else '{'}{json.dumps(name, ensure_ascii=False)}: ", format_json(column)]
    return _join(*parts, "}")


def join_lines(batch: pa.RecordBatch, texts: pa.Array) -> pa.Buffer | bytes:
    """Return the texts of a batch, one on each line, as the bytes to write."""
    if not batch.num_rows:
        return b""
    ended = _join(texts, "\n")
    # The values of a column are contiguous in memory, so its buffer is the output.
    offsets = np.frombuffer(ended.buffers()[1], dtype=np.int32)[ended.offset : ended.offset + len(ended) + 1]
    return ended.buffers()[2][int(offsets[0]) : int(offsets[-1])]


def escape_control_characters(text: str) -> str:
    """Return a text on one line, without control characters that a terminal would interpret.

    >>> print(escape_control_characters("two\\nlines \\x1b[31m"))
    two\\nlines \\x1b[31m
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _decode(array: pa.Array) -> pa.Array:
    while True:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array


def _join(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _to_valid_texts(array: pa.Array) -> pa.Array:
    """Return strings with invalid UTF-8, which some writers produce, replaced by the replacement character."""
    try:
        return array.cast(pa.large_binary()).cast(pa.string())
    except pa.ArrowInvalid:
        values = array.cast(pa.large_binary()).to_pylist()
        return pa.array([None if value is None else value.decode(errors="replace") for value in values], pa.string())


def _format_floats(array: pa.Array) -> pa.Array:
    texts = pc.cast(array, pa.string())
    # 5 is an integer, 5.0 is not.
    texts = pc.replace_substring_regex(texts, r"^(-?\d+)$", r"\1.0")
    for given, name in _NOT_FINITE:
        texts = pc.if_else(pc.equal(texts, given), name, texts)
    return texts


def _format_timestamps(array: pa.Array) -> pa.Array:
    if array.type.tz is not None:
        array = array.cast(pa.timestamp(array.type.unit, "UTC"))
    texts = pc.replace_substring(pc.cast(array, pa.string()), " ", "T", max_replacements=1)
    return pc.replace_substring_regex(texts, r"\.0+(Z?)$", r"\1")


def _format_binary(array: pa.Array) -> pa.Array:
    values = array.cast(pa.binary())
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    stored = values.buffers()[2]
    digits = _HEX_DIGITS[np.frombuffer(stored or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]]
    ends = pa.py_buffer((offsets - offsets[0]) * np.int32(2))
    texts = pa.StringArray.from_buffers(len(values), ends, pa.py_buffer(digits.tobytes()))
    return pc.if_else(values.is_valid(), _join("X'", texts, "'"), pa.scalar(None, pa.string()))


def _quote(texts: pa.Array) -> pa.Array:
    """Return JSON strings: quotes, backslashes and control characters are escaped."""
    if pc.any(pc.match_substring_regex(texts, r'[\x00-\x1f"\\]')).as_py():
        texts = pc.replace_substring(texts, "\\", "\\\\")
        for character in ('"', *map(chr, range(0x20))):
            texts = pc.replace_substring(texts, character, json.dumps(character)[1:-1])
    return _join('"', texts, '"')


def _join_items(array: pa.Array, items: pa.Array) -> pa.Array:
    """Return the texts of the elements of each list, separated by commas."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int32)
    offsets = pa.array(np.concatenate([np.zeros(1, dtype=np.int32), np.cumsum(lengths, dtype=np.int32)]))
    return pc.binary_join(pa.ListArray.from_arrays(offsets, items), ", ")


def _format_maps(array: pa.Array) -> pa.Array:
    entries = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    flat = entries.flatten()
    keys, values = flat.flatten()
    if types.is_text(keys.type):
        pairs = _join(format_json(keys), ": ", format_json(values))
        return _join("{", _join_items(entries, pairs), "}")
    return _join("[", _join_items(entries, format_json_objects(["key", "value"], [keys, values], len(flat))), "]")

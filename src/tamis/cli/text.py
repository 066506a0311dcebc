"""Values as text, a whole column at a time: for tables, for tab-separated lines and for JSON.

Both forms agree on what a value looks like:

    numbers         digits; NaN, Infinity, -Infinity as words, which JSON has only as strings
    decimals        all of their digits
    dates, times    ISO 8601: 2024-03-03, 2024-03-03T12:30:00.250000, with a Z where they are instants
    bytes           hexadecimal, as the SQL literal X'00ff'
    durations       the count and the unit: 1500 ms
    lists, structs  JSON; a map with texts as keys is an object, another one a list of {"key": …, "value": …}
    NULL            null in JSON; a table and a tab-separated line have their own signs for it
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types

_NOT_FINITE = (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity"))
_HEX_DIGITS = np.array([list(f"{byte:02x}".encode()) for byte in range(256)], dtype=np.uint8)


def cell_texts(array: pa.Array) -> pa.Array:
    """The text of each value; NULL stays NULL."""
    array = _plain(array)
    data_type = array.type
    if pa.types.is_null(data_type):
        return pa.nulls(len(array), pa.string())
    if types.is_text(data_type):
        return _valid_texts(array)
    if pa.types.is_floating(data_type):
        return _float_texts(array)
    if pa.types.is_timestamp(data_type):
        return _timestamp_texts(array)
    if pa.types.is_duration(data_type):
        return _joined(pc.cast(pc.cast(array, pa.int64()), pa.string()), f" {data_type.unit}")
    if types.is_bytes(data_type):
        return _hex_texts(array)
    if pa.types.is_nested(data_type):
        return pc.if_else(array.is_valid(), json_texts(array), pa.scalar(None, pa.string()))
    if pa.types.is_interval(data_type):
        # Arrow has no kernel for these, and files hardly ever do.
        return pa.array([None if value is None else _interval_text(value) for value in array.to_pylist()], pa.string())
    return pc.cast(array, pa.string())


def _interval_text(value: pa.MonthDayNano) -> str:
    """As ISO 8601 writes it.

    >>> _interval_text(pa.MonthDayNano([14, -3, 1_500_000_000])), _interval_text(pa.MonthDayNano([0, 0, 0]))
    ('P14M-3DT1.5S', 'PT0S')
    """
    months, days, nanoseconds = value
    date = (f"{months}M" if months else "") + (f"{days}D" if days else "")
    seconds, rest = divmod(abs(nanoseconds), 10**9)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    time = f"T{'-' if nanoseconds < 0 else ''}{seconds}{fraction}S" if nanoseconds or not date else ""
    return f"P{date}{time}"


def json_texts(array: pa.Array) -> pa.Array:
    """Each value as JSON; NULL is `null`."""
    array = _plain(array)
    data_type = array.type
    if pa.types.is_struct(data_type):
        names = [field.name for field in data_type]
        texts = json_objects(names, array.flatten(), len(array))
    elif pa.types.is_map(data_type):
        texts = _map_texts(array)
    elif pa.types.is_nested(data_type):
        texts = _joined("[", _joined_items(array, json_texts(array.flatten())), "]")
    elif pa.types.is_floating(data_type):
        texts = _float_texts(array)
        texts = pc.if_else(pc.is_finite(array), texts, _joined('"', texts, '"'))
    elif pa.types.is_integer(data_type) or pa.types.is_boolean(data_type) or pa.types.is_decimal(data_type):
        texts = pc.cast(array, pa.string())
    else:
        texts = _quoted(cell_texts(array))
    # A struct or a list that is NULL has made some text above.
    return pc.if_else(array.is_valid(), texts, "null").fill_null("null")


def json_objects(names: list[str], columns: list[pa.Array], count: int) -> pa.Array:
    """One JSON object a row."""
    if not columns:
        return pa.repeat(pa.scalar("{}"), count)
    parts: list[pa.Array | str] = []
    for index, (name, column) in enumerate(zip(names, columns, strict=True)):
        parts += [f"{', ' if index else '{'}{json.dumps(name, ensure_ascii=False)}: ", json_texts(column)]
    return _joined(*parts, "}")


def lines(batch: pa.RecordBatch, texts: pa.Array) -> pa.Buffer | bytes:
    """The texts of a batch, one on each line, as the bytes to write."""
    if not batch.num_rows:
        return b""
    ended = _joined(texts, "\n")
    # The values of a column lie back to back: that is the output already.
    offsets = np.frombuffer(ended.buffers()[1], dtype=np.int32)[ended.offset : ended.offset + len(ended) + 1]
    return ended.buffers()[2][int(offsets[0]) : int(offsets[-1])]


def printable(text: str) -> str:
    """A text on one line that no terminal takes for a command.

    >>> print(printable("two\\nlines \\x1b[31m"))
    two\\nlines \\x1b[31m
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def _plain(array: pa.Array) -> pa.Array:
    while True:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _valid_texts(array: pa.Array) -> pa.Array:
    """Texts as they are; bytes in them that are no UTF-8, which some writers leave, become the sign for that."""
    try:
        return array.cast(pa.large_binary()).cast(pa.string())
    except pa.ArrowInvalid:
        values = array.cast(pa.large_binary()).to_pylist()
        return pa.array([None if value is None else value.decode(errors="replace") for value in values], pa.string())


def _float_texts(array: pa.Array) -> pa.Array:
    texts = pc.cast(array, pa.string())
    # 5 is an integer, 5.0 is not.
    texts = pc.replace_substring_regex(texts, r"^(-?\d+)$", r"\1.0")
    for arrow, word in _NOT_FINITE:
        texts = pc.if_else(pc.equal(texts, arrow), word, texts)
    return texts


def _timestamp_texts(array: pa.Array) -> pa.Array:
    if array.type.tz is not None:
        array = array.cast(pa.timestamp(array.type.unit, "UTC"))
    texts = pc.replace_substring(pc.cast(array, pa.string()), " ", "T", max_replacements=1)
    return pc.replace_substring_regex(texts, r"\.0+(Z?)$", r"\1")


def _hex_texts(array: pa.Array) -> pa.Array:
    values = array.cast(pa.binary())
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    stored = values.buffers()[2]
    digits = _HEX_DIGITS[np.frombuffer(stored or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]]
    ends = pa.py_buffer((offsets - offsets[0]) * np.int32(2))
    texts = pa.StringArray.from_buffers(len(values), ends, pa.py_buffer(digits.tobytes()))
    return pc.if_else(values.is_valid(), _joined("X'", texts, "'"), pa.scalar(None, pa.string()))


def _quoted(texts: pa.Array) -> pa.Array:
    """JSON strings: quotes, backslashes and control characters are escaped."""
    if pc.any(pc.match_substring_regex(texts, r'[\x00-\x1f"\\]')).as_py():
        texts = pc.replace_substring(texts, "\\", "\\\\")
        for sign in ('"', *map(chr, range(0x20))):
            texts = pc.replace_substring(texts, sign, json.dumps(sign)[1:-1])
    return _joined('"', texts, '"')


def _joined_items(array: pa.Array, items: pa.Array) -> pa.Array:
    """The texts of the elements of each list, with commas between them."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int32)
    offsets = pa.array(np.concatenate([np.zeros(1, dtype=np.int32), np.cumsum(lengths, dtype=np.int32)]))
    return pc.binary_join(pa.ListArray.from_arrays(offsets, items), ", ")


def _map_texts(array: pa.Array) -> pa.Array:
    entries = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    flat = entries.flatten()
    keys, values = flat.flatten()
    if types.is_text(keys.type):
        pairs = _joined(json_texts(keys), ": ", json_texts(values))
        return _joined("{", _joined_items(entries, pairs), "}")
    return _joined("[", _joined_items(entries, json_objects(["key", "value"], [keys, values], len(flat))), "]")

"""Parsing of the JSON of a partition filter, which may be untrusted: bounded, strict, and without recursion.

Size and depth are checked before the text is decoded, so that hostile input costs no more than reading it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from tamis.errors import FilterFormatError
from tamis.expr.partition_filter import (
    EQUALITIES,
    JUNCTIONS,
    MAX_BYTES,
    MAX_DEPTH,
    NULL_TESTS,
    OPERATIONS,
    ORDERINGS,
    TYPES,
    PartitionFilter,
    is_unicode,
)

_KEYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(EQUALITIES, ("column", "value")),
    "in": ("column", "values"),
    **dict.fromkeys(ORDERINGS, ("column", "value")),
    **dict.fromkeys(NULL_TESTS, ("column",)),
    **dict.fromkeys(JUNCTIONS, ("filters",)),
    "not": ("filter",),
}
"""The required keys of an operation besides `op`."""

# The closing quote is optional, so that an unclosed text is scanned once and not again from each character.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STRING_OR_BRACKET = re.compile(_STRING.pattern + r"|[\[\]{}]", re.DOTALL)


class _Object(dict[str, Any]):
    """A JSON object that records a repeated key."""

    repeated: str | None = None


class _Number:
    """A JSON number: no key of the format accepts one, so its digits are not parsed."""


def parse_filter(text: str | bytes) -> PartitionFilter:
    document = _decode(_check_text(text))
    frames: list[_Frame] = []
    node: Any = document
    path = "$"
    while True:
        opened = _open_node(node, path)
        if isinstance(opened, _Frame):
            frames.append(opened)
        else:
            if not frames:
                return opened
            frames[-1].done.append(opened)
        while (following := next(frames[-1].remaining, None)) is None:
            frame = frames.pop()
            built = PartitionFilter(frame.op, filters=tuple(frame.done))
            if not frames:
                return built
            frames[-1].done.append(built)
        node, path = following


class _Frame:
    """An `and`, `or` or `not` whose inner filters are being parsed."""

    def __init__(self, op: str, remaining: Iterator[tuple[Any, str]]) -> None:
        self.op = op
        self.remaining = remaining
        self.done: list[PartitionFilter] = []


def _check_text(text: str | bytes) -> str:
    if isinstance(text, bytes | bytearray):
        if len(text) > MAX_BYTES:
            raise _too_long_error()
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise FilterFormatError(f"not UTF-8: byte {error.start + 1} of the filter", path="$") from None
    if not isinstance(text, str):
        raise FilterFormatError(f"expected the JSON text of a partition filter, found {type(text).__name__}", path="$")
    if len(text) > MAX_BYTES:
        raise _too_long_error()
    _check_depth(text)
    return text


def _too_long_error() -> FilterFormatError:
    return FilterFormatError(f"a partition filter is longer than {MAX_BYTES:,} bytes", path="$")


def _check_depth(text: str) -> None:
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return
    symbols = np.frombuffer(_STRING.sub("", text).encode("utf-8", "replace"), dtype=np.uint8)
    opens = (symbols == ord("{")) | (symbols == ord("["))
    closes = (symbols == ord("}")) | (symbols == ord("]"))
    if int(np.cumsum(opens.astype(np.int64) - closes).max(initial=0)) <= MAX_DEPTH:
        return
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        if depth > MAX_DEPTH:
            position = token.start() + 1
            raise FilterFormatError(f"nested deeper than {MAX_DEPTH} brackets at character {position}", path="$")


def _decode(text: str) -> Any:
    try:
        return json.loads(
            text,
            object_pairs_hook=_build_object,
            parse_int=_ignore_number,
            parse_float=_ignore_number,
            parse_constant=_ignore_number,
        )
    except json.JSONDecodeError as error:
        raise FilterFormatError(f"not JSON: {error.msg} at character {error.pos + 1}", path="$") from None
    except RecursionError:
        # The depth is bounded, but the remaining stack of a caller that recurses deeply may be smaller.
        raise FilterFormatError("nested too deeply for the remaining stack", path="$") from None


def _build_object(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        found.repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return found


def _ignore_number(digits: str) -> _Number:
    return _Number()


def _open_node(node: Any, path: str) -> PartitionFilter | _Frame:
    """Return the filter of a leaf, or a frame over the inner filters of an `and`, `or` or `not`."""
    if not isinstance(node, _Object):
        raise _wrong_type_error("a filter object", node, path)
    if node.repeated is not None:
        raise FilterFormatError(f"key {_shorten(node.repeated)} occurs twice", path=_join_path(path, node.repeated))
    op = _read_text(node, "op", path)
    if op not in OPERATIONS:
        raise FilterFormatError(f"unknown op {_shorten(op)}; ops are {', '.join(OPERATIONS)}", path=f"{path}.op")
    allowed = ("op", *_KEYS[op], *(("type",) if op in ORDERINGS else ()))
    for key in node:
        if key not in allowed:
            raise FilterFormatError(
                f"unknown key {_shorten(key)} of {op!r}; keys are {', '.join(allowed)}", path=_join_path(path, key)
            )
    if op == "not":
        return _Frame(op, iter([(_read_required(node, "filter", path), f"{path}.filter")]))
    if op in JUNCTIONS:
        filters = _read_list(node, "filters", path)
        return _Frame(op, ((inner, f"{path}.filters[{index}]") for index, inner in enumerate(filters)))
    column = _read_text(node, "column", path)
    if not column:
        raise FilterFormatError("expected the name of a column, found an empty string", path=f"{path}.column")
    if op in NULL_TESTS:
        return PartitionFilter(op, column)
    if op == "in":
        values = _read_list(node, "values", path)
        return PartitionFilter(
            op, column, tuple(_check_string(value, f"{path}.values", index) for index, value in enumerate(values))
        )
    value = _read_text(node, "value", path)
    return PartitionFilter(op, column, (value,), _read_type(node, path))


def _read_type(node: _Object, path: str) -> str | None:
    if "type" not in node:
        return None
    name = _read_text(node, "type", path)
    if name not in TYPES:
        raise FilterFormatError(f"unknown type {_shorten(name)}; types are {', '.join(TYPES)}", path=f"{path}.type")
    return name


def _read_required(node: _Object, key: str, path: str) -> Any:
    if key not in node:
        op = f" of {node['op']!r}" if key != "op" else ""
        raise FilterFormatError(f"missing key {key!r}{op}", path=f"{path}.{key}")
    return node[key]


def _read_text(node: _Object, key: str, path: str) -> str:
    return _check_string(_read_required(node, key, path), f"{path}.{key}")


def _read_list(node: _Object, key: str, path: str) -> list[Any]:
    found = _read_required(node, key, path)
    if not isinstance(found, list):
        raise _wrong_type_error("an array", found, f"{path}.{key}")
    return found


def _check_string(value: Any, path: str, index: int | None = None) -> str:
    """Return the value if it is a valid Unicode string; raise with its full path otherwise."""
    if isinstance(value, str) and is_unicode(value):
        return value
    full_path = path if index is None else f"{path}[{index}]"
    if isinstance(value, str):
        raise FilterFormatError("a string with a lone surrogate is not valid Unicode", path=full_path)
    raise _wrong_type_error("a string", value, full_path)


def _wrong_type_error(expected: str, found: Any, path: str) -> FilterFormatError:
    match found:
        case None:
            name = "null"
        case bool():
            name = "a boolean"
        case str():
            name = "a string"
        case list():
            name = "an array"
        case dict():
            name = "an object"
        case _:
            name = "a number"
    hint = "; use is_null to test for null" if found is None and expected == "a string" else ""
    return FilterFormatError(f"expected {expected}, found {name}{hint}", path=path)


def _join_path(path: str, key: str) -> str:
    return f"{path}.{key}" if re.fullmatch(r"[A-Za-z_]\w{0,40}", key) else f"{path}[{_shorten(key)}]"


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")

"""Read the JSON of a partition filter, which may come from anywhere: bounded, strict, and never recursive.

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
"""The keys that an operation must have beside `op`."""

# The closing quote is optional, so that a text without it is passed over once and not searched again and again.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STRING_OR_BRACKET = re.compile(_STRING.pattern + r"|[\[\]{}]", re.DOTALL)


class _Object(dict[str, Any]):
    """A JSON object that remembers a key which occurs twice."""

    repeated: str | None = None


class _Number:
    """A JSON number: no key of the format takes one, so that its digits are not worth reading."""


def read_filter(text: str | bytes) -> PartitionFilter:
    document = _decoded(_checked_text(text))
    frames: list[_Frame] = []
    node: Any = document
    path = "$"
    while True:
        opened = _opened(node, path)
        if isinstance(opened, _Frame):
            frames.append(opened)
        else:
            if not frames:
                return opened
            frames[-1].done.append(opened)
        while (following := next(frames[-1].waiting, None)) is None:
            frame = frames.pop()
            built = PartitionFilter(frame.op, filters=tuple(frame.done))
            if not frames:
                return built
            frames[-1].done.append(built)
        node, path = following


class _Frame:
    """An `and`, `or` or `not` whose inner filters are being read."""

    def __init__(self, op: str, waiting: Iterator[tuple[Any, str]]) -> None:
        self.op = op
        self.waiting = waiting
        self.done: list[PartitionFilter] = []


def _checked_text(text: str | bytes) -> str:
    if isinstance(text, bytes | bytearray):
        if len(text) > MAX_BYTES:
            raise _too_long()
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise FilterFormatError(f"not UTF-8: byte {error.start + 1} of the filter", path="$") from None
    if not isinstance(text, str):
        raise FilterFormatError(f"the JSON text of a partition filter is needed, found {type(text).__name__}", path="$")
    if len(text) > MAX_BYTES:
        raise _too_long()
    _check_depth(text)
    return text


def _too_long() -> FilterFormatError:
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
            place = token.start() + 1
            raise FilterFormatError(f"nested deeper than {MAX_DEPTH} brackets at character {place}", path="$")


def _decoded(text: str) -> Any:
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_number
        )
    except json.JSONDecodeError as error:
        raise FilterFormatError(f"not JSON: {error.msg} at character {error.pos + 1}", path="$") from None
    except RecursionError:
        # The depth is bounded, but a caller deep in its own recursion may have left less than that.
        raise FilterFormatError("nested too deep for the stack that is left", path="$") from None


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        found.repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return found


def _number(digits: str) -> _Number:
    return _Number()


def _opened(node: Any, path: str) -> PartitionFilter | _Frame:
    """A leaf as the filter that it is; an `and`, `or` or `not` as a frame over what is inside."""
    if not isinstance(node, _Object):
        raise _wrong_type("a filter object", node, path)
    if node.repeated is not None:
        raise FilterFormatError(f"key {_shown(node.repeated)} occurs twice", path=_inside(path, node.repeated))
    op = _text(node, "op", path)
    if op not in OPERATIONS:
        raise FilterFormatError(f"unknown op {_shown(op)}; ops are {', '.join(OPERATIONS)}", path=f"{path}.op")
    allowed = ("op", *_KEYS[op], *(("type",) if op in ORDERINGS else ()))
    for key in node:
        if key not in allowed:
            raise FilterFormatError(
                f"unknown key {_shown(key)} of {op!r}; keys are {', '.join(allowed)}", path=_inside(path, key)
            )
    if op == "not":
        return _Frame(op, iter([(_required(node, "filter", path), f"{path}.filter")]))
    if op in JUNCTIONS:
        filters = _list(node, "filters", path)
        return _Frame(op, ((inner, f"{path}.filters[{index}]") for index, inner in enumerate(filters)))
    column = _text(node, "column", path)
    if not column:
        raise FilterFormatError("a column needs a name, found an empty text", path=f"{path}.column")
    if op in NULL_TESTS:
        return PartitionFilter(op, column)
    if op == "in":
        values = _list(node, "values", path)
        return PartitionFilter(
            op, column, tuple(_checked(value, f"{path}.values", index) for index, value in enumerate(values))
        )
    value = _text(node, "value", path)
    return PartitionFilter(op, column, (value,), _type(node, path))


def _type(node: _Object, path: str) -> str | None:
    if "type" not in node:
        return None
    name = _text(node, "type", path)
    if name not in TYPES:
        raise FilterFormatError(f"unknown type {_shown(name)}; types are {', '.join(TYPES)}", path=f"{path}.type")
    return name


def _required(node: _Object, key: str, path: str) -> Any:
    if key not in node:
        op = f" of {node['op']!r}" if key != "op" else ""
        raise FilterFormatError(f"missing key {key!r}{op}", path=f"{path}.{key}")
    return node[key]


def _text(node: _Object, key: str, path: str) -> str:
    return _checked(_required(node, key, path), f"{path}.{key}")


def _list(node: _Object, key: str, path: str) -> list[Any]:
    found = _required(node, key, path)
    if not isinstance(found, list):
        raise _wrong_type("an array", found, f"{path}.{key}")
    return found


def _checked(value: Any, path: str, index: int | None = None) -> str:
    """The value if it is a text that can be written; the place is only spelled out for the error."""
    if isinstance(value, str) and is_unicode(value):
        return value
    place = path if index is None else f"{path}[{index}]"
    if isinstance(value, str):
        raise FilterFormatError("a text with half of a surrogate pair is not Unicode", path=place)
    raise _wrong_type("a string", value, place)


def _wrong_type(expected: str, found: Any, path: str) -> FilterFormatError:
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
    hint = "; a null value is tested with is_null" if found is None and expected == "a string" else ""
    return FilterFormatError(f"{expected} was expected, found {name}{hint}", path=path)


def _inside(path: str, key: str) -> str:
    return f"{path}.{key}" if re.fullmatch(r"[A-Za-z_]\w{0,40}", key) else f"{path}[{_shown(key)}]"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")

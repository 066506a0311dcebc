"""PartitionFilter: a portable filter on partition values with a JSON wire format.

The wire format, key by key and in this order:

    {"op":"eq","column":"year","value":"2024"}                  neq alike
    {"op":"in","column":"region","values":["eu","us"]}
    {"op":"gt","column":"year","value":"2022","type":"long"}    gte, lt, lte alike; type (long, double) is optional
    {"op":"is_null","column":"day"}                             is_not_null alike
    {"op":"and","filters":[…]}                                  or alike
    {"op":"not","filter":{…}}

Its semantics differ from SQL on purpose, because a partition value is a text that is present or missing:
`tamis.expr.wire.partition_filter` has the truth table. An empty AND keeps all rows, an empty OR and an empty IN keep
none. Text compares by code points. With a type, a value and a bound that both parse compare as numbers
(`long`: an optional sign and digits that fit 64 bits; `double`: also fractions, exponents, infinities and NaN, which
is larger than every number and equal to itself). If one of them does not parse, this comparison is of texts.
`evaluate` matches column names exactly, case included. For a table `resolve_columns` runs first: a name without an
exact match is resolved without regard to case, and a name that matches no partition column is an error.

The format is strict, since an unknown key might change the meaning: unknown or repeated keys are errors, and so is a
filter nested deeper than `MAX_DEPTH` brackets or longer than `MAX_BYTES`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring as json_string
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import (
    AmbiguousColumn,
    FilterFormatError,
    InvalidArgument,
    TypeMismatch,
    UnknownColumn,
    add_article,
    suggest_method_arguments,
    suggest_name,
)
from tamis.expr.evaluate import Evaluator
from tamis.expr.functions.kernels import look_up_key
from tamis.expr.functions.partition_values import format_partition_value, partition_text, try_parse_partition_values
from tamis.expr.nodes import FALSE, Call, Column, Expr, Literal, and_, not_, or_

T = TypeVar("T")

MAX_DEPTH = 500
"""The maximum nesting depth of objects and lists in the JSON of a filter."""

MAX_BYTES = 64 * 1024 * 1024
"""The maximum length of the JSON of a filter, in bytes of UTF-8."""

TYPES = ("long", "double")
EQUALITIES = ("eq", "neq")
ORDERINGS = ("gt", "gte", "lt", "lte")
NULL_TESTS = ("is_null", "is_not_null")
JUNCTIONS = ("and", "or")
OPERATIONS = (*EQUALITIES, "in", *ORDERINGS, *NULL_TESTS, *JUNCTIONS, "not")

_OPERANDS = {
    **dict.fromkeys((*EQUALITIES, *ORDERINGS, "not"), (1, 1)),
    **dict.fromkeys(NULL_TESTS, (0, 0)),
    **dict.fromkeys(("in", *JUNCTIONS), (0, sys.maxsize)),
}
"""The minimum and maximum number of values, or filters, of an operation."""


@suggest_method_arguments("PartitionFilter")
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PartitionFilter:
    """A filter on partition values, built with the named constructors below or with `from_json`.

    An immutable value: equal if the JSON is equal, hashable, and pickled as its JSON, so that a worker receives only
    data. Only the fields of its operation are set.

    >>> recent = PartitionFilter.gte("year", 2022).with_type("long") & ~PartitionFilter.eq("region", "eu")
    >>> print(recent.filters[0].to_json())
    {"op":"gte","column":"year","value":"2022","type":"long"}
    >>> years = pa.array([[("year", "2024"), ("region", "us")], [("year", "999")]], pa.map_(pa.string(), pa.string()))
    >>> recent.evaluate(years).to_pylist()
    [True, False]
    """

    op: str
    column: str = ""
    values: tuple[str, ...] = ()
    type: str | None = None
    filters: tuple[PartitionFilter, ...] = ()
    _depth: int = field(init=False, default=0)
    _hash: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        _check_fields(self)
        brackets = 2 if self.op in ("in", *JUNCTIONS) else 1
        depth = brackets + max((inner._depth for inner in self.filters), default=0)
        if depth > MAX_DEPTH:
            raise FilterFormatError(
                f"a partition filter nests deeper than {MAX_DEPTH} brackets: give and_() and or_() all filters at once",
                path="$",
            )
        object.__setattr__(self, "_depth", depth)
        identity = (self.op, self.column, self.values, self.type, self.filters)
        object.__setattr__(self, "_hash", hash(identity))

    # --- Named constructors -------------------------------------------------------------------------------------

    @classmethod
    def eq(cls, column: str, value: object) -> PartitionFilter:
        """Return a filter for partitions whose value equals another."""
        return cls("eq", column, (format_partition_value(value),))

    @classmethod
    def neq(cls, column: str, value: object) -> PartitionFilter:
        """Return a filter for partitions whose value differs from another."""
        return cls("neq", column, (format_partition_value(value),))

    @classmethod
    def in_(cls, column: str, *values: object) -> PartitionFilter:
        """Return a filter for one of several values: `in_("region", ["eu", "us"])` or `in_("region", "eu", "us")`."""
        return cls("in", column, tuple(format_partition_value(value) for value in _unpack(values)))

    @classmethod
    def gt(cls, column: str, value: object) -> PartitionFilter:
        """Return a filter for partitions whose value is greater than another."""
        return cls("gt", column, (format_partition_value(value),))

    @classmethod
    def gte(cls, column: str, value: object) -> PartitionFilter:
        """Return a filter for partitions whose value is another one or greater."""
        return cls("gte", column, (format_partition_value(value),))

    @classmethod
    def lt(cls, column: str, value: object) -> PartitionFilter:
        """Return a filter for partitions whose value is less than another."""
        return cls("lt", column, (format_partition_value(value),))

    @classmethod
    def lte(cls, column: str, value: object) -> PartitionFilter:
        """Return a filter for partitions whose value is another one or less."""
        return cls("lte", column, (format_partition_value(value),))

    @classmethod
    def is_null(cls, column: str) -> PartitionFilter:
        """Return a filter for partitions without a value."""
        return cls("is_null", column)

    @classmethod
    def is_not_null(cls, column: str) -> PartitionFilter:
        """Return a filter for partitions with a value."""
        return cls("is_not_null", column)

    @classmethod
    def and_(cls, *filters: PartitionFilter | Iterable[PartitionFilter]) -> PartitionFilter:
        """Return the AND of several filters or of one list; without any, a filter that keeps all rows."""
        return cls("and", filters=tuple(cast("Iterable[PartitionFilter]", _unpack(filters))))

    @classmethod
    def or_(cls, *filters: PartitionFilter | Iterable[PartitionFilter]) -> PartitionFilter:
        """Return the OR of several filters or of one list; without any, a filter that keeps no rows."""
        return cls("or", filters=tuple(cast("Iterable[PartitionFilter]", _unpack(filters))))

    @classmethod
    def not_(cls, inner: PartitionFilter) -> PartitionFilter:
        """Return a filter for the partitions that another filter drops."""
        return cls("not", filters=(inner,))

    def with_type(self, type_name: str) -> PartitionFilter:
        """Return the comparison as numbers, `long` or `double`, instead of texts; only for gt, gte, lt and lte."""
        return PartitionFilter(self.op, self.column, self.values, type_name, self.filters)

    def with_columns(self, names: Mapping[str, str]) -> PartitionFilter:
        """Return the filter with columns renamed by `names`; other columns keep their name."""
        if all(names.get(column, column) == column for column in self.columns):
            return self

        def rename(node: PartitionFilter, inner: list[PartitionFilter]) -> PartitionFilter:
            return PartitionFilter(node.op, names.get(node.column, node.column), node.values, node.type, tuple(inner))

        return _fold(self, rename)

    # With an expression of `tamis.col`, Python asks that expression, and the result is an expression.

    def __and__(self, other: PartitionFilter) -> PartitionFilter:
        return self._combine("and", other)

    def __or__(self, other: PartitionFilter) -> PartitionFilter:
        return self._combine("or", other)

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> PartitionFilter:
        return PartitionFilter.not_(self)

    def _combine(self, op: str, other: object) -> PartitionFilter:
        """Return the AND or OR of two filters. `a & b & c` is one AND of three, so that generated chains stay flat."""
        if isinstance(other, str):
            both = f"[filter, {other!r}]" if op == "and" else f"[[filter], [{other!r}]]"
            raise TypeError(
                f"a PartitionFilter is not combined with SQL text: pass both in a list, scan({both}), or write the "
                "text as an expression, such as tamis.col('id') < 5"
            )
        if not isinstance(other, PartitionFilter):
            return cast("PartitionFilter", NotImplemented)
        parts = (part.filters if part.op == op else (part,) for part in (self, other))
        return PartitionFilter(op, filters=tuple(inner for part in parts for inner in part))

    # --- Content ------------------------------------------------------------------------------------------------

    @property
    def value(self) -> str:
        """The single value of eq, neq, gt, gte, lt and lte."""
        if self.op not in (*EQUALITIES, *ORDERINGS):
            raise InvalidArgument(f"a partition filter {self.op!r} has no single value")
        return self.values[0]

    @property
    def columns(self) -> tuple[str, ...]:
        """The distinct columns, in order of appearance."""
        found: dict[str, None] = {}
        stack = [self]
        while stack:
            node = stack.pop()
            if node.column:
                found[node.column] = None
            stack.extend(reversed(node.filters))
        return tuple(found)

    def column_names(self) -> list[str]:
        """Return the names of the partition columns that the filter compares."""
        return list(self.columns)

    def evaluate(self, values: PartitionValues) -> pa.BooleanArray:
        """Return whether the filter keeps each row; never null.

        `values` is a column of maps (column to text), a struct column, a record batch or a table; typed values are
        compared as the text of their partition directory.
        """
        return evaluate(self, values)

    def to_expr(self) -> Expr:
        """Return the filter as an expression over `partition_text('column')`, which a table binds to its partitions."""
        return compile_filter(self, lambda name: Call("partition_text", (Literal(name, types.STRING),)))

    # --- The wire format ----------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the filter as compact JSON, keys in the order of the format."""
        written: list[str] = []
        stack: list[str | PartitionFilter] = [self]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                written.append(item)
                continue
            head = f'{{"op":"{item.op}"'
            match item.op:
                case "and" | "or":
                    stack.append("]}")
                    for inner in reversed(item.filters):
                        stack += [inner, ","]
                    if item.filters:
                        stack.pop()
                    written.append(f'{head},"filters":[')
                case "not":
                    stack += ["}", item.filters[0]]
                    written.append(f'{head},"filter":')
                case _:
                    written.append(f'{head},"column":{json_string(item.column)}{_operands_to_json(item)}}}')
        text = "".join(written)
        if len(text.encode()) > MAX_BYTES:
            raise FilterFormatError(f"a partition filter is longer than {MAX_BYTES:,} bytes as JSON", path="$")
        return text

    @classmethod
    def from_json(cls, text: str | bytes) -> PartitionFilter:
        """Parse the wire format; raise a `FilterFormatError` with the JSON path if it is invalid."""
        return parse_filter(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return PartitionFilter.from_json, (self.to_json(),)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartitionFilter):
            return NotImplemented
        return self is other or (self._hash == other._hash and self.to_json() == other.to_json())

    def __bool__(self) -> bool:
        raise InvalidArgument("a partition filter is neither true nor false: combine filters with &, | and ~")

    def __repr__(self) -> str:
        text = self.to_json()
        return f"PartitionFilter({text if len(text) <= 200 else text[:200] + '…'})"


def _fold(root: PartitionFilter, combine: Callable[[PartitionFilter, list[T]], T]) -> T:
    """Compute a value for a filter from its leaves up: `combine(filter, values of its inner filters)`."""
    nodes: list[PartitionFilter] = []
    waiting = [root]
    while waiting:
        nodes.append(waiting.pop())
        waiting.extend(nodes[-1].filters)
    done: list[T] = []
    # Reversed, inner filters come before the filter that has them, in their order.
    for node in reversed(nodes):
        first = len(done) - len(node.filters)
        inner = done[first:]
        del done[first:]
        done.append(combine(node, inner))
    return done[0]


def _operands_to_json(leaf: PartitionFilter) -> str:
    if leaf.op in NULL_TESTS:
        return ""
    if leaf.op == "in":
        return f',"values":[{",".join(json_string(value) for value in leaf.values)}]'
    type_json = f',"type":"{leaf.type}"' if leaf.type is not None else ""
    return f',"value":{json_string(leaf.values[0])}{type_json}'


def _check_fields(node: PartitionFilter) -> None:
    """Check the invariant: an operation has exactly its own fields, and every text can be encoded as UTF-8."""
    if node.op not in OPERATIONS:
        raise InvalidArgument(f"no partition filter operation {node.op!r}. Operations: {', '.join(OPERATIONS)}")
    if node.type is not None:
        if node.op not in ORDERINGS:
            raise InvalidArgument(f"only {', '.join(ORDERINGS)} compare as a type, not {node.op!r}")
        if node.type not in TYPES:
            raise InvalidArgument(f"no partition filter type {node.type!r}. Types: {', '.join(TYPES)}")
    fewest, most = _OPERANDS[node.op]
    if not fewest <= len(node.filters if node.op in (*JUNCTIONS, "not") else node.values) <= most:
        raise InvalidArgument(
            f"a partition filter {node.op!r} has the wrong number of values or filters: use {node.op}()"
        )
    if node.op in (*JUNCTIONS, "not"):
        for inner in node.filters:
            if not isinstance(inner, PartitionFilter):
                raise InvalidArgument(
                    f"{node.op!r} combines partition filters, found {type(inner).__name__}: build one with eq(), in_()…"
                )
    elif not isinstance(node.column, str) or not node.column:
        raise InvalidArgument(f"a partition filter {node.op!r} needs the name of a column, found {node.column!r}")
    for text in (node.column, *node.values):
        if not is_unicode(text):
            raise InvalidArgument(f"a partition filter holds {text!r}, which is not valid Unicode")


def is_unicode(text: str) -> bool:
    """Return whether the text can be encoded as UTF-8: a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unpack(items: tuple[Any, ...]) -> Iterable[Any]:
    """Return the items, or the items of the only item if that is a list."""
    if len(items) != 1 or isinstance(items[0], str | bytes | PartitionFilter) or not isinstance(items[0], Iterable):
        return items
    only: Iterable[Any] = items[0]
    # A set has no stable order, and the text of a filter should not change from run to run.
    return sorted(only, key=str) if isinstance(only, set | frozenset) else only


def check_partition_filter(given: object) -> None:
    """Raise if a value other than None is not a PartitionFilter, such as SQL text."""
    if given is not None and not isinstance(given, PartitionFilter):
        kind = add_article(type(given).__name__)
        raise InvalidArgument(
            f"the filter must be a PartitionFilter, such as PartitionFilter.eq('day', '1'), found {kind}"
        )


def resolve_columns(partition_filter: PartitionFilter, known: Collection[str], table: str) -> PartitionFilter:
    """Return the filter with its columns spelled as the partition columns `known` of the table.

    An exact match wins; other names are resolved without regard to case. A name that matches no partition column is an
    UnknownColumn: every value of such a column is missing, so that the filter would silently keep nothing, or all.
    """
    return partition_filter.with_columns(
        {column: resolve_column(column, known, table) for column in partition_filter.columns}
    )


def resolve_column(name: str, known: Collection[str], table: str) -> str:
    """Return the partition column that a name refers to, as the table spells it."""
    if name in known:
        return name
    matches = [each for each in dict.fromkeys(known) if each.casefold() == name.casefold()]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise AmbiguousColumn(
            f"the partition filter's column {name!r} matches several partition columns of {table}: "
            f"{', '.join(map(repr, matches))}. Write one of these"
        )
    error = UnknownColumn(
        f"no partition column {name!r} in {table}, as used in a partition filter.{suggest_name(name, known)} "
        f"Partition columns: {', '.join(dict.fromkeys(known)) or 'none'}."
    )
    error.is_partition_column = True
    raise error


# --- Parsing of the JSON of a partition filter, which may be untrusted: bounded, strict, and without recursion --------
#
# Size and depth are checked before the text is decoded, so that hostile input costs no more than reading it.

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
            raise _make_too_long_error()
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise FilterFormatError(f"not UTF-8: byte {error.start + 1} of the filter", path="$") from None
    if not isinstance(text, str):
        raise FilterFormatError(f"expected the JSON text of a partition filter, found {type(text).__name__}", path="$")
    if len(text) > MAX_BYTES:
        raise _make_too_long_error()
    _check_depth(text)
    return text


def _make_too_long_error() -> FilterFormatError:
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
        raise _make_wrong_type_error("a filter object", node, path)
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
        raise _make_wrong_type_error("an array", found, f"{path}.{key}")
    return found


def _check_string(value: Any, path: str, index: int | None = None) -> str:
    """Return the value if it is a valid Unicode string; raise with its full path otherwise."""
    if isinstance(value, str) and is_unicode(value):
        return value
    full_path = path if index is None else f"{path}[{index}]"
    if isinstance(value, str):
        raise FilterFormatError("a string with a lone surrogate is not valid Unicode", path=full_path)
    raise _make_wrong_type_error("a string", value, full_path)


def _make_wrong_type_error(expected: str, found: Any, path: str) -> FilterFormatError:
    names = {type(None): "null", bool: "a boolean", str: "a string", list: "an array", _Object: "an object"}
    name = names.get(type(found), "a number")
    hint = "; use is_null to test for null" if found is None and expected == "a string" else ""
    return FilterFormatError(f"expected {expected}, found {name}{hint}", path=path)


def _join_path(path: str, key: str) -> str:
    return f"{path}.{key}" if re.fullmatch(r"[A-Za-z_]\w{0,40}", key) else f"{path}[{_shorten(key)}]"


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


# --- Partition filters as expressions ---------------------------------------------------------------------------------
#
# | the value is…    | eq, in      | neq   | gt, gte, lt, lte                     | is_null | is_not_null |
# |------------------|-------------|-------|--------------------------------------|---------|-------------|
# | missing or null  | false       | true  | false                                | true    | false       |
# | present          | text equals | not eq| as text, or as the type if both parse| false   | true        |
#
# Each leaf becomes an ordinary expression over a text that is never NULL, inside of `partition_filter(…, json)`, which
# keeps the filter as its user wrote it for reports. AND, OR and NOT are those of the language.

PartitionValues: TypeAlias = pa.MapArray | pa.StructArray | pa.ChunkedArray | pa.RecordBatch | pa.Table

_TYPE_NAMES = {"long": "bigint", "double": "double"}
_OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def compile_filter(partition_filter: PartitionFilter, get_text: Callable[[str], Expr]) -> Expr:
    """Return the filter as an expression; `get_text` returns the text of a partition value by the name of its column.

    A missing value is a text that is NULL.
    """

    def compile_node(node: PartitionFilter, inner: list[Expr]) -> Expr:
        match node.op:
            case "and":
                return and_(*inner)
            case "or":
                return or_(*inner)
            case "not":
                return not_(inner[0])
            case _:
                leaf = _compile_leaf(node, get_text(node.column))
                return Call("partition_filter", (leaf, Literal(node.to_json(), types.STRING)))

    return _fold(partition_filter, compile_node)


def _compile_leaf(leaf: PartitionFilter, text: Expr) -> Expr:
    values = [Literal(value, types.STRING) for value in leaf.values]
    match leaf.op:
        case "is_null" | "is_not_null":
            return Call(leaf.op, (text,))
        case "eq":
            return Call("<=>", (text, values[0]))
        case "neq":
            return not_(Call("<=>", (text, values[0])))
        case "in":
            # Without values, the column is still checked.
            return _and_present(text, Call("in", (text, *values)) if values else FALSE)
        case _:
            operator = _OPERATORS[leaf.op]
            by_text = _and_present(text, Call(operator, (text, values[0])))
            bound = _parse_bound(leaf)
            if bound is None:
                return by_text
            number = Call("try_partition_value", (text, Literal(types.type_name(bound.type), types.STRING)))
            return or_(_and_present(number, Call(operator, (number, bound))), and_(Call("is_null", (number,)), by_text))


def _and_present(value: Expr, predicate: Expr) -> Expr:
    """Return the predicate with FALSE instead of NULL where the value is NULL."""
    return and_(Call("is_not_null", (value,)), predicate)


def _parse_bound(leaf: PartitionFilter) -> Literal | None:
    """Return the bound as a number; None if texts are compared."""
    if leaf.type is None:
        return None
    target = types.type_from_name(_TYPE_NAMES[leaf.type])
    number = try_parse_partition_values(pa.array([leaf.value], types.STRING), target)[0].as_py()
    return None if number is None else Literal(number, target)


def evaluate(partition_filter: PartitionFilter, values: PartitionValues) -> pa.BooleanArray:
    """Return one boolean for each row, never null, for maps, structs, record batches and tables, chunked or not."""
    names = partition_filter.columns
    columns = {name: Column((str(number),), type=types.STRING) for number, name in enumerate(names)}
    compiled = Evaluator(compile_filter(partition_filter, columns.__getitem__))
    masks = []
    for batch in _to_batches(values):
        rows = pa.nulls(batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch))
        texts = [_read_texts(batch, name, len(rows)) for name in names]
        masks.append(compiled(pa.record_batch([*texts, rows], [*(column.name for column in columns.values()), "rows"])))
    return pa.concat_arrays(masks) if masks else pa.array([], types.BOOLEAN)


def _to_batches(values: PartitionValues) -> list[pa.MapArray | pa.StructArray | pa.RecordBatch]:
    match values:
        case pa.ChunkedArray():
            batches = values.chunks
        case pa.Table():
            # A table without columns has rows but no batches.
            batches = values.to_batches() if values.num_columns else [values.to_struct_array().combine_chunks()]
        case _:
            batches = [values]
    for batch in batches:
        if not isinstance(batch, pa.MapArray | pa.StructArray | pa.RecordBatch):
            found = getattr(batch, "type", type(batch).__name__)
            raise TypeMismatch(
                f"expected partition values in a map, a struct, a record batch or a table, found {found}"
            )
    return list(batches)


def _read_texts(batch: pa.MapArray | pa.StructArray | pa.RecordBatch, column: str, rows: int) -> pa.Array:
    """Return the texts of a column, null where there is no value."""
    values: pa.Array | None
    match batch:
        case pa.MapArray():
            values = look_up_key(batch, column)
        case pa.StructArray():
            indices = batch.type.get_all_field_indices(column)
            # Unlike `field`, `struct_field` returns null for the fields of a null struct.
            values = pc.struct_field(batch, [indices[-1]]) if indices else None
        case _:
            indices = batch.schema.get_all_field_indices(column)
            values = batch.column(indices[-1]) if indices else None
    return pa.nulls(rows, types.STRING) if values is None else partition_text(values, column)

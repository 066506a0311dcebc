"""PartitionFilter: a portable filter on partition values with a JSON wire format.

The wire format, key by key and in this order:

    {"op":"eq","column":"year","value":"2024"}                  neq alike
    {"op":"in","column":"region","values":["eu","us"]}
    {"op":"gt","column":"year","value":"2022","type":"long"}    gte, lt, lte alike; type (long, double) is optional
    {"op":"is_null","column":"day"}                             is_not_null alike
    {"op":"and","filters":[…]}                                  or alike
    {"op":"not","filter":{…}}

Its semantics differ from SQL on purpose, because a partition value is a text that is present or missing:
`tamis.expr.partition_evaluation` has the truth table. An empty AND keeps all rows, an empty OR and an empty IN keep
none. Text compares by code points. With a type, a value and a bound that both parse compare as numbers
(`long`: an optional sign and digits that fit 64 bits; `double`: also fractions, exponents, infinities and NaN, which
is larger than every number and equal to itself). If one of them does not parse, this comparison is of texts.
`evaluate` matches column names exactly, case included. For a table `resolve_columns` runs first: a name without an
exact match is resolved without regard to case, and a name that matches no partition column is an error.

The format is strict, since an unknown key might change the meaning: unknown or repeated keys are errors, and so is a
filter nested deeper than `MAX_DEPTH` brackets or longer than `MAX_BYTES`.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring as json_string
from typing import Any, cast

import pyarrow as pa

from tamis.errors import AmbiguousColumn, FilterFormatError, InvalidArgument, UnknownColumn, add_article
from tamis.expr import partition_evaluation
from tamis.expr.partition_text import format_partition_value

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
        return cls("eq", column, (format_partition_value(value),))

    @classmethod
    def neq(cls, column: str, value: object) -> PartitionFilter:
        return cls("neq", column, (format_partition_value(value),))

    @classmethod
    def in_(cls, column: str, *values: object) -> PartitionFilter:
        """Return a filter for one of several values: `in_("region", ["eu", "us"])` or `in_("region", "eu", "us")`."""
        return cls("in", column, tuple(format_partition_value(value) for value in _unpack(values)))

    @classmethod
    def gt(cls, column: str, value: object) -> PartitionFilter:
        return cls("gt", column, (format_partition_value(value),))

    @classmethod
    def gte(cls, column: str, value: object) -> PartitionFilter:
        return cls("gte", column, (format_partition_value(value),))

    @classmethod
    def lt(cls, column: str, value: object) -> PartitionFilter:
        return cls("lt", column, (format_partition_value(value),))

    @classmethod
    def lte(cls, column: str, value: object) -> PartitionFilter:
        return cls("lte", column, (format_partition_value(value),))

    @classmethod
    def is_null(cls, column: str) -> PartitionFilter:
        return cls("is_null", column)

    @classmethod
    def is_not_null(cls, column: str) -> PartitionFilter:
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
        return cls("not", filters=(inner,))

    def with_type(self, type_name: str) -> PartitionFilter:
        """Return the comparison as numbers, `long` or `double`, instead of texts; only for gt, gte, lt and lte."""
        return PartitionFilter(self.op, self.column, self.values, type_name, self.filters)

    def with_columns(self, names: Mapping[str, str]) -> PartitionFilter:
        """Return the filter with columns renamed by `names`; other columns keep their name."""
        if all(names.get(column, column) == column for column in self.columns):
            return self
        # Recursion is safe: the depth is at most MAX_DEPTH.
        filters = tuple(inner.with_columns(names) for inner in self.filters)
        return PartitionFilter(self.op, names.get(self.column, self.column), self.values, self.type, filters)

    def __and__(self, other: PartitionFilter) -> PartitionFilter:
        return self._combine("and", other)

    def __or__(self, other: PartitionFilter) -> PartitionFilter:
        return self._combine("or", other)

    def __invert__(self) -> PartitionFilter:
        return PartitionFilter.not_(self)

    def _combine(self, op: str, other: object) -> PartitionFilter:
        """Return the AND or OR of two filters. `a & b & c` is one AND of three, so that generated chains stay flat."""
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
        return list(self.columns)

    def evaluate(self, values: partition_evaluation.PartitionValues) -> pa.BooleanArray:
        """Return whether the filter keeps each row; never null.

        `values` is a column of maps (column to text), a struct column, a record batch or a table; typed values are
        compared as the text of their partition directory.
        """
        return partition_evaluation.evaluate(self, values)

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
        from tamis.expr.partition_filter_json import parse_filter

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
            f"the filter must be a PartitionFilter, such as PartitionFilter.eq('day', '1'), not {kind}"
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
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UnknownColumn(
        f"no partition column {name!r} in {table}, as used in a partition filter.{hint} "
        f"Partition columns: {', '.join(dict.fromkeys(known)) or 'none'}."
    )

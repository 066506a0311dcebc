"""Set operations and VALUES with the types that their columns have in Spark.

The embedded engine has a common type of its own for any two: of a number and a text it makes a text, and of a boolean
and a number a number. Only the engine knows the types of all sides, so it is asked for those; then each side has a cast
where Spark would convert it, and sides whose types have nothing in common are refused.

    SELECT 9 AS x UNION ALL SELECT '10'

    SELECT CAST(`c1` AS bigint) AS `x` FROM (SELECT 9 AS x) AS `side`(`c1`) UNION ALL
    SELECT CAST(`c1` AS bigint) AS `x` FROM (SELECT '10') AS `side`(`c1`)

A recursive query has the types of its first rows: the rows that follow are converted to those, or it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp

from tamis.errors import TypeMismatch
from tamis.expr.sql_dialect import SparkCalls, SparkText
from tamis.pushdown.common_types import common_type
from tamis.pushdown.sql_recursion import recursive_parts, references
from tamis.types import a_type, is_text, type_name

_WORDS = re.compile(r"\b(UNION|INTERSECT|EXCEPT|VALUES)\b", re.IGNORECASE)

TOGETHER = 50
"""So many sides are described by one query."""


@dataclass(frozen=True, slots=True)
class Described:
    """The columns of a query: their names, and their types in the engine."""

    names: tuple[str, ...]
    types: tuple[DuckDBPyType, ...]


Describe = Callable[[str], Described | None]
"""The columns of a query in Spark's dialect; None where the engine does not take it."""


def with_common_types(text: str, describe: Describe) -> str:
    """A query in Spark's dialect whose set operations have Spark's types; `TypeMismatch` where there are none."""
    if not _WORDS.search(text):
        return text
    tree = sqlglot.parse_one(text, read=SparkCalls)
    operations = [each for each in _inner_first(tree) if isinstance(each, exp.SetOperation) or _has_rows(each)]
    return _Typing(text, describe).typed(tree, operations) if operations else text


def _has_rows(node: exp.Expr) -> bool:
    return isinstance(node, exp.Values) and len(node.expressions) > 1


@dataclass(frozen=True, slots=True)
class _Columns:
    names: tuple[str, ...]
    types: tuple[pa.DataType | None, ...]
    """None for a type that Spark does not have."""


class _Typing:
    def __init__(self, text: str, describe: Describe) -> None:
        self._text = text
        self._describe = describe
        self._known: dict[int, _Columns | None] = {}
        self._has_changed = False

    def typed(self, tree: exp.Expr, operations: Sequence[exp.Expr]) -> str:
        for operation in operations:
            match operation:
                case exp.Values():
                    self._type_values(operation)
                case exp.SetOperation() if not _is_side(operation):
                    # All within its sides was typed before.
                    self._type_sides(operation)
        return tree.sql(SparkText, normalize_functions=False) if self._has_changed else self._text

    def _type_sides(self, outermost: exp.SetOperation) -> None:
        """Type set operations whose sides are set operations."""
        inner_last, leaves = [outermost], list[exp.Expr]()
        for operation in inner_last:
            for side in (operation.this, operation.expression):
                found = _unwrapped(side)
                if isinstance(found, exp.SetOperation):
                    inner_last.append(found)
                else:
                    leaves.append(side)
        for first in range(0, len(leaves), TOGETHER):
            self._look_up(leaves[first : first + TOGETHER])
        for operation in reversed(inner_last):
            self._type_set(operation)

    # --- Types of sides -----------------------------------------------------------------------------------------------

    def _look_up(self, sides: Sequence[exp.Expr]) -> None:
        """Describe sides, all of them at once where each tells how many columns it has and sees the same names."""
        widths = [_width(side) for side in sides]
        scopes = {tuple(map(id, _visible(side))) for side in sides}
        total = sum(width for width in widths if width is not None)
        if len(sides) > 1 and None not in widths and len(scopes) == 1:
            together = exp.Select(expressions=[exp.Star()], from_=exp.From(this=_subquery(sides[0], "side 1")))
            joins = [
                exp.Join(this=_subquery(side, f"side {place}"), kind="CROSS") for place, side in enumerate(sides[1:], 2)
            ]
            together.set("joins", joins)
            found = self._columns(together, _visible(sides[0]))
            if found is not None and len(found.names) == total:
                first = 0
                for side, width in zip(sides, widths, strict=True):
                    assert width is not None
                    last = first + width
                    self._known[id(side)] = _Columns(found.names[first:last], found.types[first:last])
                    first = last
                return
        for side in sides:
            found = self._columns(side, _visible(side))
            # Conditions may refer to the query around it, and say nothing of types.
            self._known[id(side)] = found or self._columns(_without_conditions(side), _visible(side))

    def _columns(self, query: exp.Expr, commons: Sequence[exp.CTE]) -> _Columns | None:
        text = query.sql(SparkText, normalize_functions=False)
        if commons:
            named = ", ".join(each.sql(SparkText, normalize_functions=False) for each in commons)
            text = f"WITH RECURSIVE {named} SELECT * FROM ({text}) AS `described`"
        found = self._describe(text)
        return None if found is None else _Columns(found.names, tuple(map(_arrow_type, found.types)))

    # --- Casts --------------------------------------------------------------------------------------------------------

    def _type_set(self, operation: exp.SetOperation) -> None:
        common = _recursive_query(operation)
        word = operation.key.upper() if common is None else "UNION in WITH RECURSIVE"
        left, right = self._side(operation.this), self._side(operation.expression)
        if left is None or right is None:
            if self._describe(self._text) is not None:
                raise TypeMismatch(
                    f"the types of the sides of {word} are not known, because it refers to the query around it: write "
                    "a join in its place, or one subquery for each side"
                )
            # The engine does not take the query at all, and says why.
            self._known[id(operation)] = None
            return
        if len(left.types) != len(right.types):
            self._known[id(operation)] = None
            return
        types = tuple(
            _merged(place, one, other, word, is_recursive=common is not None)
            for place, (one, other) in enumerate(zip(left.types, right.types, strict=True), 1)
        )
        for key, side in (("this", left), ("expression", right)):
            self._cast_side(operation, key, side, types, left.names)
        self._known[id(operation)] = _Columns(left.names, types)

    def _side(self, side: exp.Expr) -> _Columns | None:
        while isinstance(side, exp.Subquery) and id(side) not in self._known:
            side = side.this
        return self._known.get(id(side))

    def _cast_side(
        self,
        operation: exp.SetOperation,
        key: str,
        columns: _Columns,
        types: Sequence[pa.DataType | None],
        names: Sequence[str],
    ) -> None:
        pairs = list(zip(columns.types, types, strict=True))
        if not any(_needs_cast(own, wanted) for own, wanted in pairs):
            return
        self._has_changed = True
        inner = [f"c{place}" for place in range(1, len(pairs) + 1)]
        outputs = []
        for symbol, name, (own, wanted) in zip(inner, names, pairs, strict=True):
            value: exp.Expr = exp.column(exp.to_identifier(symbol, quoted=True))
            if _needs_cast(own, wanted):
                assert wanted is not None
                value = exp.Cast(this=value, to=exp.DataType.build(type_name(wanted), dialect=SparkText))
            outputs.append(exp.alias_(value, name, quoted=True))
        side = operation.args[key]
        source = _subquery(side, "side", inner)
        operation.set(key, exp.Select(expressions=outputs, from_=exp.From(this=source)))

    def _type_values(self, values: exp.Values) -> None:
        rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in values.expressions]
        if any(len(row) != len(rows[0]) for row in rows):
            return
        for place, cells in enumerate(zip(*rows, strict=True)):
            plain = {type(cell) for cell in cells}
            if len(plain) == 1 and len({getattr(cell, "is_string", None) for cell in cells}) == 1 and plain <= _TEXTS:
                continue
            query = exp.Select(expressions=[exp.alias_(cell.copy(), f"c{number}") for number, cell in enumerate(cells)])
            found = self._columns(query, ())
            if found is None or len(found.types) != len(cells):
                continue
            merged: pa.DataType | None = pa.null()
            for own in found.types:
                before = merged
                merged = None if own is None or before is None else common_type(before, own, converts_text=False)
                if merged is None and own is not None and before is not None:
                    raise TypeMismatch(
                        f"column {place + 1} of VALUES has {a_type(before)} and {a_type(own)}, which have no common "
                        "type: cast its values to one type"
                    )
            for cell, own in zip(cells, found.types, strict=True):
                if merged is not None and _needs_cast(own, merged):
                    self._has_changed = True
                    target = exp.DataType.build(type_name(merged), dialect=SparkText)
                    cell.replace(exp.Cast(this=cell.copy(), to=target))


_TEXTS = {exp.Literal, exp.Null, exp.Boolean}


def _merged(
    place: int, left: pa.DataType | None, right: pa.DataType | None, word: str, *, is_recursive: bool
) -> pa.DataType | None:
    """The type of a column of both sides."""
    if left is None or right is None:
        return None
    found = common_type(left, right)
    if is_recursive and found != left and not _is_whole(left, right):
        found = None
    if found is not None and found not in (left, right) and _converts_nested_text(left, right):
        found = None
    if found is None:
        raise TypeMismatch(
            f"the sides of {word} have {a_type(left)} and {a_type(right)} in column {place}, "
            f"{'where the first side says the type' if is_recursive else 'which have no common type'}: "
            f"cast one of them to the type of the other"
        )
    return found


def _is_whole(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether the engine may have a wider type for whole numbers than Spark has: of many functions it is BIGINT."""
    return bool(left == pa.int32() and right == pa.int64())


def _converts_nested_text(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether texts inside of an array, a map or a struct would have to be read as something else."""
    if not pa.types.is_nested(left) or not pa.types.is_nested(right):
        return False
    pairs = zip(_leaves_of(left), _leaves_of(right), strict=False)
    return any(is_text(one) != is_text(other) for one, other in pairs)


def _leaves_of(data_type: pa.DataType) -> Iterator[pa.DataType]:
    if pa.types.is_nested(data_type):
        for place in range(data_type.num_fields):
            yield from _leaves_of(data_type.field(place).type)
    else:
        yield data_type


def _needs_cast(own: pa.DataType | None, wanted: pa.DataType | None) -> bool:
    """Whether a value is converted to a type. The engine widens whole numbers by itself, and NULL has every type."""
    if own is None or wanted is None or own == wanted or pa.types.is_null(own):
        return False
    return not (pa.types.is_integer(own) and pa.types.is_integer(wanted))


# --- Trees ------------------------------------------------------------------------------------------------------------


def _inner_first(tree: exp.Expr) -> list[exp.Expr]:
    """All nodes, each after what is inside of it, and after the common table expressions that it may name."""
    found: list[exp.Expr] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        found.append(node)
        clause = node.args.get("with_")
        others = [each for each in node.iter_expressions() if each is not clause]
        waiting += [*([] if clause is None else [clause]), *others]
    found.reverse()
    return found


def _unwrapped(side: exp.Expr) -> exp.Expr:
    while isinstance(side, exp.Subquery):
        side = side.this
    return side


def _without_conditions(side: exp.Expr) -> exp.Expr:
    found = side.copy()
    for select in found.find_all(exp.Select):
        select.set("where", None)
    return found


def _is_side(operation: exp.SetOperation) -> bool:
    """Whether a set operation is a side of another one."""
    node = operation.parent
    while isinstance(node, exp.Subquery) and not node.alias:
        node = node.parent
    return isinstance(node, exp.SetOperation) and operation.find_ancestor(exp.With, exp.SetOperation) is node


def _width(side: exp.Expr) -> int | None:
    """How many columns a side tells to have."""
    side = _unwrapped(side)
    if not isinstance(side, exp.Select):
        return None
    stars = (exp.Star, exp.Aliases)
    has_star = any(isinstance(each, stars) or isinstance(each.this, exp.Star) for each in side.expressions)
    return None if has_star or side.args.get("with_") else len(side.expressions)


def _subquery(side: exp.Expr, alias: str, columns: Sequence[str] = ()) -> exp.Subquery:
    names = [exp.to_identifier(each, quoted=True) for each in columns]
    table = exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=names)
    return exp.Subquery(this=side.copy() if not columns else side, alias=table)


def _recursive_query(operation: exp.SetOperation) -> exp.CTE | None:
    """The recursive query that is this set operation: its first rows, and those that follow."""
    common = operation.find_ancestor(exp.CTE)
    is_body = common is not None and _is_recursive(common) and recursive_parts(common)[1] is operation.expression
    return common if is_body else None


def _is_recursive(common: exp.CTE) -> bool:
    clause = common.parent
    return isinstance(clause, exp.With) and bool(clause.recursive and references(common.this, common.alias.casefold()))


def _visible(side: exp.Expr) -> list[exp.CTE]:
    """The common table expressions that a side may name, those of the outermost query first.

    A recursive one has the columns of its first rows.
    """
    found: list[exp.CTE] = []
    below, node = side, side.parent
    while node is not None:
        clause = node.args.get("with_")
        if clause is not None and below is not clause:
            found = [*clause.expressions, *found]
        if isinstance(node, exp.With):
            place = next(place for place, each in enumerate(node.expressions) if each is below)
            own = node.expressions[place]
            if _is_recursive(own):
                found = [exp.CTE(this=recursive_parts(own)[0].copy(), alias=own.args["alias"].copy()), *found]
            found = [*node.expressions[:place], *found]
        below, node = node, node.parent
    return found


_NAMES = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "integer": pa.int32(), "bigint": pa.int64(),
    # The engine has wider types for sums of whole numbers; they are BIGINT in Spark.
    "hugeint": pa.int64(), "utinyint": pa.int16(), "usmallint": pa.int32(), "uinteger": pa.int64(),
    "ubigint": pa.decimal128(20, 0), "float": pa.float32(), "double": pa.float64(), "varchar": pa.string(),
    "blob": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"), "time": pa.time64("us"),
    "interval": pa.month_day_nano_interval(), "null": pa.null(),
}  # fmt: skip


def _arrow_type(data_type: DuckDBPyType) -> pa.DataType | None:
    """A type of the engine as the type that Spark has for it; None where it has none."""
    if data_type.id not in ("decimal", "list", "struct", "map"):
        return _NAMES.get(data_type.id)
    children: dict[str, Any] = dict(data_type.children)
    if data_type.id == "decimal":
        return pa.decimal128(children["precision"], children["scale"])
    inner = {name: _arrow_type(each) for name, each in children.items()}
    if None in inner.values():
        return None
    if data_type.id == "list":
        return pa.list_(inner["child"])
    if data_type.id == "map":
        return pa.map_(inner["key"], inner["value"])
    return pa.struct(list(inner.items()))


def describe_relation(relation: duckdb.DuckDBPyRelation) -> Described:
    return Described(tuple(relation.columns), tuple(relation.types))

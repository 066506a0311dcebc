"""Set operations and VALUES with the column types that they have in Spark.

DuckDB has its own common type for any two types: a string for a number and a string, a number for a boolean and a
number. Only the engine knows the types of all sides, so it describes them. Each side then gets a cast where Spark would
convert it, and sides without a common type are refused.

    SELECT 9 AS x UNION ALL SELECT '10'

    SELECT CAST(`c1` AS bigint) AS `x` FROM (SELECT 9 AS x) AS `side`(`c1`) UNION ALL
    SELECT CAST(`c1` AS bigint) AS `x` FROM (SELECT '10') AS `side`(`c1`)

A recursive query has the types of its first part: the rows of the second part are cast to these types, or the query is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp

from tamis import types
from tamis.errors import TypeMismatch
from tamis.expr.sql.to_tree import build_type
from tamis.query.sql.common_tables import find_references_to, split_recursive_query
from tamis.types import count_decimal_digits, is_text, type_name, type_name_with_article

SIDES_PER_QUERY = 50
"""The number of sides that one query describes."""


@dataclass(frozen=True, slots=True)
class DescribedQuery:
    """The column names of a query, and their types in the engine."""

    names: tuple[str, ...]
    types: tuple[DuckDBPyType, ...]


Describe = Callable[[exp.Expr], DescribedQuery | None]
"""Returns the columns of a query in Spark's dialect; None if the engine rejects it."""


def cast_to_common_types(tree: exp.Expr, describe: Describe) -> None:
    """Give the set operations of a query Spark's types, in place; raise `TypeMismatch` if sides have none."""
    operations = [
        each
        for each in _walk_inner_first(tree)
        if isinstance(each, exp.SetOperation) or (isinstance(each, exp.Values) and len(each.expressions) > 1)
    ]
    if operations:
        _TypeCaster(tree, describe).cast_all(operations)


@dataclass(frozen=True, slots=True)
class _Columns:
    names: tuple[str, ...]
    types: tuple[pa.DataType | None, ...]
    """An entry is None for a type that Spark does not have."""


class _TypeCaster:
    def __init__(self, tree: exp.Expr, describe: Describe) -> None:
        self._tree = tree
        self._describe = describe
        self._known: dict[int, _Columns | None] = {}

    def cast_all(self, operations: Sequence[exp.Expr]) -> None:
        for operation in operations:
            match operation:
                case exp.Values():
                    self._cast_values(operation)
                case exp.SetOperation() if not _is_side(operation):
                    # Everything inside of its sides is cast already.
                    self._cast_sides(operation)

    def _cast_sides(self, outermost: exp.SetOperation) -> None:
        """Cast the sides of a set operation and of the set operations that are its sides."""
        inner_last, leaves = [outermost], list[exp.Expr]()
        for operation in inner_last:
            for side in (operation.this, operation.expression):
                found = _unwrap(side)
                if isinstance(found, exp.SetOperation):
                    inner_last.append(found)
                else:
                    leaves.append(side)
        for first in range(0, len(leaves), SIDES_PER_QUERY):
            self._describe_sides(leaves[first : first + SIDES_PER_QUERY])
        for operation in reversed(inner_last):
            self._cast_operation(operation)

    # --- Types of sides -----------------------------------------------------------------------------------------------

    def _describe_sides(self, sides: Sequence[exp.Expr]) -> None:
        """Describe sides: in one query if the width of each is known and all see the same common table expressions."""
        widths = [_count_columns(side) for side in sides]
        scopes = {tuple(map(id, _find_visible_commons(side))) for side in sides}
        total = sum(width for width in widths if width is not None)
        if len(sides) > 1 and None not in widths and len(scopes) == 1:
            together = exp.Select(expressions=[exp.Star()], from_=exp.From(this=_make_subquery(sides[0], "side 1")))
            joins = [
                exp.Join(this=_make_subquery(side, f"side {number}"), kind="CROSS")
                for number, side in enumerate(sides[1:], 2)
            ]
            together.set("joins", joins)
            found = self._describe_query(together, _find_visible_commons(sides[0]))
            if found is not None and len(found.names) == total:
                first = 0
                for side, width in zip(sides, widths, strict=True):
                    assert width is not None
                    last = first + width
                    self._known[id(side)] = _Columns(found.names[first:last], found.types[first:last])
                    first = last
                return
        for side in sides:
            found = self._describe_query(side, _find_visible_commons(side))
            # Conditions may refer to the outer query, and do not affect types.
            self._known[id(side)] = found or self._describe_query(_drop_conditions(side), _find_visible_commons(side))

    def _describe_query(self, query: exp.Expr, commons: Sequence[exp.CTE]) -> _Columns | None:
        query = query.copy()
        if commons:
            clause = exp.With(expressions=[each.copy() for each in commons], recursive=True)
            source = _make_subquery(query, "described")
            query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=source), with_=clause)
        found = self._describe(query)
        return None if found is None else _Columns(found.names, tuple(map(_to_arrow_type, found.types)))

    # --- Casts --------------------------------------------------------------------------------------------------------

    def _cast_operation(self, operation: exp.SetOperation) -> None:
        common = _find_recursive_query(operation)
        word = operation.key.upper() if common is None else "UNION in WITH RECURSIVE"
        left, right = self._find_columns(operation.this), self._find_columns(operation.expression)
        if left is None or right is None:
            if self._describe(self._tree.copy()) is not None:
                raise TypeMismatch(
                    f"cannot find the types of the sides of {word}, because it refers to the outer query: write "
                    "a join instead, or one subquery for each side"
                )
            # The engine rejects the whole query, and reports why.
            self._known[id(operation)] = None
            return
        if len(left.types) != len(right.types):
            self._known[id(operation)] = None
            return
        types = tuple(
            _merge_types(position, one, other, word, is_recursive=common is not None)
            for position, (one, other) in enumerate(zip(left.types, right.types, strict=True), 1)
        )
        for key, side in (("this", left), ("expression", right)):
            self._cast_side(operation, key, side, types, left.names)
        self._known[id(operation)] = _Columns(left.names, types)

    def _find_columns(self, side: exp.Expr) -> _Columns | None:
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
        inner = [f"c{number}" for number in range(1, len(pairs) + 1)]
        outputs = []
        for column, name, (own, wanted) in zip(inner, names, pairs, strict=True):
            value: exp.Expr = exp.column(exp.to_identifier(column, quoted=True))
            if _needs_cast(own, wanted):
                assert wanted is not None
                value = exp.Cast(this=value, to=build_type(type_name(wanted)))
            outputs.append(exp.alias_(value, name, quoted=True))
        side = operation.args[key]
        source = _make_subquery(side, "side", inner)
        operation.set(key, exp.Select(expressions=outputs, from_=exp.From(this=source)))

    def _cast_values(self, values: exp.Values) -> None:
        rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in values.expressions]
        if any(len(row) != len(rows[0]) for row in rows):
            return
        for index, cells in enumerate(zip(*rows, strict=True)):
            plain = {type(cell) for cell in cells}
            if (
                len(plain) == 1
                and len({getattr(cell, "is_string", None) for cell in cells}) == 1
                and plain <= _LITERALS
            ):
                continue
            query = exp.Select(expressions=[exp.alias_(cell.copy(), f"c{number}") for number, cell in enumerate(cells)])
            found = self._describe_query(query, ())
            if found is None or len(found.types) != len(cells):
                continue
            merged: pa.DataType | None = pa.null()
            for own in found.types:
                before = merged
                merged = None if own is None or before is None else find_common_type(before, own, converts_text=False)
                if merged is None and own is not None and before is not None:
                    raise TypeMismatch(
                        f"column {index + 1} of VALUES has {type_name_with_article(before)} and "
                        f"{type_name_with_article(own)}, which have no common "
                        "type: cast its values to one type"
                    )
            for cell, own in zip(cells, found.types, strict=True):
                if merged is not None and _needs_cast(own, merged):
                    target = build_type(type_name(merged))
                    cell.replace(exp.Cast(this=cell.copy(), to=target))


_LITERALS = {exp.Literal, exp.Null, exp.Boolean}


def _merge_types(
    position: int, left: pa.DataType | None, right: pa.DataType | None, word: str, *, is_recursive: bool
) -> pa.DataType | None:
    """Return the common type of a column of both sides; raise `TypeMismatch` if there is none."""
    if left is None or right is None:
        return None
    found = find_common_type(left, right)
    # Many functions return BIGINT in DuckDB, but INT in Spark.
    is_widened = left == pa.int32() and right == pa.int64()
    if is_recursive and found != left and not is_widened:
        found = None
    if found is not None and found not in (left, right) and _needs_nested_string_cast(left, right):
        found = None
    if found is None:
        raise TypeMismatch(
            f"the sides of {word} have {type_name_with_article(left)} and {type_name_with_article(right)} in column "
            f"{position}, "
            f"{'and the first side determines the type' if is_recursive else 'which have no common type'}: "
            f"cast one of them to the type of the other"
        )
    return found


def _needs_nested_string_cast(left: pa.DataType, right: pa.DataType) -> bool:
    """Return whether strings inside of an array, a map or a struct would have to be cast."""
    if not pa.types.is_nested(left) or not pa.types.is_nested(right):
        return False
    pairs = zip(_iter_leaf_types(left), _iter_leaf_types(right), strict=False)
    return any(is_text(one) != is_text(other) for one, other in pairs)


def _iter_leaf_types(data_type: pa.DataType) -> Iterator[pa.DataType]:
    if pa.types.is_nested(data_type):
        for index in range(data_type.num_fields):
            yield from _iter_leaf_types(data_type.field(index).type)
    else:
        yield data_type


def _needs_cast(own: pa.DataType | None, wanted: pa.DataType | None) -> bool:
    """Return whether a value needs a cast to a type. DuckDB widens integers itself, and NULL has every type."""
    if own is None or wanted is None or own == wanted or pa.types.is_null(own):
        return False
    return not (pa.types.is_integer(own) and pa.types.is_integer(wanted))


# --- Trees ------------------------------------------------------------------------------------------------------------


def _walk_inner_first(tree: exp.Expr) -> list[exp.Expr]:
    """Return all nodes, each after its children and after the common table expressions that it may refer to."""
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


def _unwrap(side: exp.Expr) -> exp.Expr:
    while isinstance(side, exp.Subquery):
        side = side.this
    return side


def _drop_conditions(side: exp.Expr) -> exp.Expr:
    found = side.copy()
    for select in found.find_all(exp.Select):
        select.set("where", None)
    return found


def _is_side(operation: exp.SetOperation) -> bool:
    """Return whether a set operation is a side of another one."""
    node = operation.parent
    while isinstance(node, exp.Subquery) and not node.alias:
        node = node.parent
    return isinstance(node, exp.SetOperation) and operation.find_ancestor(exp.With, exp.SetOperation) is node


def _count_columns(side: exp.Expr) -> int | None:
    """Return the number of columns of a side, if its syntax shows it."""
    side = _unwrap(side)
    if not isinstance(side, exp.Select):
        return None
    stars = (exp.Star, exp.Aliases)
    has_star = any(isinstance(each, stars) or isinstance(each.this, exp.Star) for each in side.expressions)
    return None if has_star or side.args.get("with_") else len(side.expressions)


def _make_subquery(side: exp.Expr, alias: str, columns: Sequence[str] = ()) -> exp.Subquery:
    names = [exp.to_identifier(each, quoted=True) for each in columns]
    table = exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=names)
    return exp.Subquery(this=side.copy() if not columns else side, alias=table)


def _find_recursive_query(operation: exp.SetOperation) -> exp.CTE | None:
    """Return the recursive common table expression whose body is this set operation, if any."""
    common = operation.find_ancestor(exp.CTE)
    is_body = common is not None and _is_recursive(common) and split_recursive_query(common)[1] is operation.expression
    return common if is_body else None


def _is_recursive(common: exp.CTE) -> bool:
    clause = common.parent
    return isinstance(clause, exp.With) and bool(
        clause.recursive and find_references_to(common.this, common.alias.casefold())
    )


def _find_visible_commons(side: exp.Expr) -> list[exp.CTE]:
    """Return the common table expressions that a side may refer to, those of the outermost query first.

    A recursive one is reduced to its first part, which has the same columns.
    """
    found: list[exp.CTE] = []
    below, node = side, side.parent
    while node is not None:
        clause = node.args.get("with_")
        if clause is not None and below is not clause:
            found = [*clause.expressions, *found]
        if isinstance(node, exp.With):
            index = next(index for index, each in enumerate(node.expressions) if each is below)
            own = node.expressions[index]
            if _is_recursive(own):
                found = [exp.CTE(this=split_recursive_query(own)[0].copy(), alias=own.args["alias"].copy()), *found]
            found = [*node.expressions[:index], *found]
        below, node = node, node.parent
    return found


_ARROW_TYPES = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "integer": pa.int32(), "bigint": pa.int64(),
    # DuckDB has wider types for sums of integers; they are BIGINT in Spark.
    "hugeint": pa.int64(), "utinyint": pa.int16(), "usmallint": pa.int32(), "uinteger": pa.int64(),
    "ubigint": pa.decimal128(20, 0), "float": pa.float32(), "double": pa.float64(), "varchar": pa.string(),
    "blob": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"), "time": pa.time64("us"),
    "interval": pa.month_day_nano_interval(), "null": pa.null(),
}  # fmt: skip


def _to_arrow_type(data_type: DuckDBPyType) -> pa.DataType | None:
    """Return Spark's type for a DuckDB type; None if it has none."""
    if data_type.id not in ("decimal", "list", "struct", "map"):
        return _ARROW_TYPES.get(data_type.id)
    children: dict[str, Any] = dict(data_type.children)
    if data_type.id == "decimal":
        return pa.decimal128(children["precision"], children["scale"])
    inner = {name: _to_arrow_type(each) for name, each in children.items()}
    if None in inner.values():
        return None
    if data_type.id == "list":
        return pa.list_(inner["child"])
    if data_type.id == "map":
        return pa.map_(inner["key"], inner["value"])
    return pa.struct(list(inner.items()))


def describe_relation(relation: duckdb.DuckDBPyRelation) -> DescribedQuery:
    return DescribedQuery(tuple(relation.columns), tuple(relation.types))


# --- The common type of two types in Spark SQL with ANSI mode on ------------------------------------------------------
#
# | sides                          | UNION, INTERSECT, EXCEPT                  | VALUES                  |
# |--------------------------------|-------------------------------------------|-------------------------|
# | whole numbers                  | the wider one                             | the same                |
# | whole number and DECIMAL(p, s) | a decimal that holds both                 | the same                |
# | FLOAT and another number       | DOUBLE                                    | FLOAT, DOUBLE if one is |
# | text and a whole number        | BIGINT                                    | none                    |
# | text and another number        | DOUBLE                                    | none                    |
# | text and BOOLEAN, DATE, …      | the other type                            | none                    |
# | DATE, TIMESTAMP_NTZ, TIMESTAMP | the last of both in this order            | the same                |
# | arrays, maps, structs          | the common type of each item              | the same                |

MAX_PRECISION = 38

_INTEGER_TYPES = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_TEMPORAL_TYPES = (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"))


def find_common_type(left: pa.DataType, right: pa.DataType, *, converts_text: bool = True) -> pa.DataType | None:
    """Return the type of a column that holds values of both types; None if they are incompatible.

    Without `converts_text`, as in VALUES, a string has no common type with another type.
    """
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if pa.types.is_nested(left) or pa.types.is_nested(right):
        return _find_common_nested(left, right, converts_text)
    if is_text(left) or is_text(right):
        other = right if is_text(left) else left
        return _cast_string_beside(other) if converts_text else None
    if types.is_number(left) and types.is_number(right):
        return _find_common_number(left, right, converts_text)
    if left in _TEMPORAL_TYPES and right in _TEMPORAL_TYPES:
        return max(left, right, key=_TEMPORAL_TYPES.index)
    return None


def _cast_string_beside(other: pa.DataType) -> pa.DataType | None:
    """Return the type that a string is cast to when the other side has this type."""
    if pa.types.is_integer(other):
        return types.LONG
    if pa.types.is_interval(other):
        return None
    return types.DOUBLE if types.is_number(other) else other


def _find_common_number(left: pa.DataType, right: pa.DataType, converts_text: bool) -> pa.DataType:
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        is_double = types.DOUBLE in (left, right) or converts_text
        return types.DOUBLE if is_double else pa.float32()
    if left in _INTEGER_TYPES and right in _INTEGER_TYPES:
        return max(left, right, key=_INTEGER_TYPES.index)
    (one, its_scale), (other, other_scale) = _get_precision_and_scale(left), _get_precision_and_scale(right)
    scale = max(its_scale, other_scale)
    whole = max(one - its_scale, other - other_scale)
    # If the precision exceeds the maximum, the scale is cut, never the integer digits.
    excess = max(0, whole + scale - MAX_PRECISION)
    return pa.decimal128(min(whole + scale, MAX_PRECISION), max(0, scale - excess))


def _get_precision_and_scale(data_type: pa.DataType) -> tuple[int, int]:
    """Return the precision and scale of a number as a decimal. Spark uses 20 digits for a BIGINT, which needs 19."""
    return (20, 0) if data_type == types.LONG else count_decimal_digits(data_type)


def _find_common_nested(left: pa.DataType, right: pa.DataType, converts_text: bool) -> pa.DataType | None:
    def common(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
        return find_common_type(one, other, converts_text=converts_text)

    if pa.types.is_list(left) and pa.types.is_list(right):
        item = common(left.value_type, right.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_map(left) and pa.types.is_map(right):
        key, value = common(left.key_type, right.key_type), common(left.item_type, right.item_type)
        return None if key is None or value is None else pa.map_(key, value)
    if pa.types.is_struct(left) and pa.types.is_struct(right) and left.num_fields == right.num_fields:
        fields = []
        for one, other in zip(left, right, strict=True):
            found = common(one.type, other.type)
            if found is None or one.name.casefold() != other.name.casefold():
                return None
            fields.append(pa.field(one.name, found))
        return pa.struct(fields)
    return None

"""Type checks for conditions: DuckDB casts numbers, strings and NULL to booleans where Spark refuses them.

| where                           | Spark refuses                      |
|---------------------------------|------------------------------------|
| WHERE, ON, CASE WHEN            | all but booleans                   |
| if(x, …), AND, OR, NOT          | all but booleans and NULL; AND, OR and NOT cast a string to a boolean |
| bool_and, count_if, …           | numbers and times                  |
| sum, avg, …                     | booleans, times, lists, maps, structs |

Only literals, arithmetic and columns of known types are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal as OneOf
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from tamis.expr.functions.aggregates import find_aggregate
from tamis.expr.sql.refusals import make_unsupported_syntax_error
from tamis.query.sql.scopes import Scope, UnsupportedSql, get_name_parts
from tamis.types import find_field_type, is_number, is_text

Kind: TypeAlias = OneOf["boolean", "number", "text", "null", "time", "nested"]

_KIND_NAMES: dict[Kind, str] = {
    "number": "a number", "text": "a text", "null": "NULL", "time": "a date or time", "boolean": "a boolean",
    "nested": "a list, map or struct",
}  # fmt: skip
_ADVICE_FOR_AGGREGATES: dict[Kind, str] = {
    "boolean": "Write count_if(x), or a cast",
    "time": "Write min(x) or max(x), or aggregate a difference, as in datediff(b, a)",
    "nested": "Aggregate a number in it, as in x[0] or x.field, or explode it first",
}
_ARITHMETIC = (exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv)


def check_conditions(select: exp.Expr, scope: Scope | None = None) -> None:
    """Raise if a SELECT has another value where it needs a condition. The scope has the types of columns."""

    def kind(node: exp.Expr) -> Kind | None:
        return _find_kind(node, scope)

    for node in _iter_own_nodes(select):
        match node:
            case exp.Where():
                _refuse_kinds(node.this, kind, "WHERE", ("number", "text", "null", "time"))
            case exp.Join(args={"on": exp.Expr() as condition}):
                _refuse_kinds(condition, kind, "ON", ("number", "text", "null", "time"))
            case exp.Case() if node.this is None:
                for each in node.args["ifs"]:
                    _refuse_kinds(each.this, kind, "CASE WHEN", ("number", "text", "null", "time"))
            case exp.If() if not isinstance(node.parent, exp.Case):
                _refuse_kinds(node.this, kind, "if", ("number", "text", "time"))
            case exp.And() | exp.Or():
                for operand in (node.this, node.expression):
                    _refuse_kinds(operand, kind, node.key.upper(), ("number", "time"))
            case exp.Not():
                _refuse_kinds(node.this, kind, "NOT", ("number", "time"))
            case exp.Anonymous():
                _check_call(node, kind)
            case _:
                pass


def _check_call(call: exp.Anonymous, kind: Callable[[exp.Expr], Kind | None]) -> None:
    row = find_aggregate(call.name)
    if row is None or len(call.expressions) != 1:
        return
    if row.takes == "boolean":
        _refuse_kinds(call.expressions[0], kind, call.name, ("number", "time"))
    elif row.takes == "number":
        value = call.expressions[0]
        value = value.expressions[0] if isinstance(value, exp.Distinct) else value
        found = kind(value)
        if found is not None and found in _ADVICE_FOR_AGGREGATES:
            raise make_unsupported_syntax_error(
                value, f"{call.name} takes numbers, not {_KIND_NAMES[found]}", _ADVICE_FOR_AGGREGATES[found]
            )


def _refuse_kinds(
    node: exp.Expr, kind: Callable[[exp.Expr], Kind | None], word: str, refused: tuple[Kind, ...]
) -> None:
    found = kind(node)
    if found in refused:
        assert found is not None
        raise make_unsupported_syntax_error(
            node, f"{word} takes a condition, not {_KIND_NAMES[found]}", "Compare it, as in id <> 0"
        )


def _find_kind(node: exp.Expr, scope: Scope | None) -> Kind | None:
    """Return the kind of value of a tree; None if it is unknown."""
    while isinstance(node, exp.Paren):
        node = node.this
    match node:
        case exp.Literal():
            return "text" if node.is_string else "number"
        case exp.Null():
            return "null"
        case exp.Boolean():
            return "boolean"
        case exp.Column() if scope is not None and isinstance(node.this, exp.Identifier):
            return _classify_type(_find_type(node, scope))
        case exp.Neg() if isinstance(node.this, exp.Literal):
            return "number"
        case _ if isinstance(node, _ARITHMETIC) and _has_number(node, scope):
            return "number"
        case _:
            return None


def _has_number(node: exp.Expr, scope: Scope | None) -> bool:
    """Return whether both sides of an arithmetic operation are numbers, not dates or intervals."""
    sides = [side for side in (node.args.get("this"), node.args.get("expression")) if side is not None]
    return all(_find_kind(side, scope) == "number" for side in sides)


def _find_type(column: exp.Column, scope: Scope) -> pa.DataType | None:
    if isinstance(column.parent, exp.Dot):
        return None
    try:
        found = scope.find(get_name_parts(column))
    except UnsupportedSql:
        return None
    return None if found is None else find_field_type(found[0].type, found[1])


def _classify_type(data_type: pa.DataType | None) -> Kind | None:
    if data_type is None:
        return None
    if pa.types.is_boolean(data_type):
        return "boolean"
    if is_number(data_type):
        return "number"
    if is_text(data_type):
        return "text"
    if pa.types.is_date(data_type) or pa.types.is_timestamp(data_type):
        return "time"
    return "nested" if pa.types.is_nested(data_type) else None


def _iter_own_nodes(select: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of a SELECT outside of its subqueries."""
    waiting = list(select.iter_expressions())
    while waiting:
        node = waiting.pop()
        if not isinstance(node, exp.Query):
            yield node
            waiting += node.iter_expressions()


# --- Names ------------------------------------------------------------------------------------------------------------


def check_names(select: exp.Select) -> None:
    """Raise if a name is unknown or ambiguous in Spark, but DuckDB accepts it."""
    _check_distinct_order(select)
    for source in (select.args.get("from_"), *(select.args.get("joins") or ())):
        if source is not None:
            _check_duplicate_names(select, source.this)


def _collect_output_names(select: exp.Expr) -> dict[str, list[exp.Expr]]:
    """Return the output names of a query, each with all of its expressions."""
    while isinstance(select, exp.SetOperation | exp.Subquery):
        select = select.this
    found: dict[str, list[exp.Expr]] = {}
    for each in select.expressions if isinstance(select, exp.Select) else ():
        if isinstance(each, exp.Alias | exp.Column) and not isinstance(each.this, exp.Star):
            found.setdefault(each.alias_or_name.casefold(), []).append(each)
    return found


def _check_distinct_order(select: exp.Select) -> None:
    """Raise if SELECT DISTINCT is sorted by a column that is not selected."""
    order = select.args.get("order")
    has_groups = select.args.get("group") is not None or select.args.get("having") is not None
    if order is None or select.args.get("distinct") is None or has_groups:
        return
    if any(each.is_star or isinstance(each, exp.Aliases) for each in select.expressions):
        return
    names = _collect_output_names(select)
    for column in order.find_all(exp.Column):
        if column.find_ancestor(exp.Select) is not select or column.find_ancestor(exp.AggFunc, exp.Window):
            continue
        if not any(part.name.casefold() in names for part in column.parts):
            raise make_unsupported_syntax_error(
                column,
                f"{column.name} is not in the list of SELECT DISTINCT, so it cannot be in ORDER BY",
                "Select it too, or sort by a selected column",
            )


def _check_duplicate_names(select: exp.Select, source: exp.Expr) -> None:
    """Raise if a SELECT uses a name that a subquery gives to two columns."""
    query: exp.Expr | None = source if isinstance(source, exp.Subquery) else _find_common(source)
    alias = source.args.get("alias")
    if query is None or (alias is not None and alias.columns):
        return
    twins = {
        # A name may be that of the same source column each time. An alias makes a new column.
        name
        for name, named in _collect_output_names(query).items()
        if not all(isinstance(each, exp.Column) and each == named[0] for each in named) and len(named) > 1
    }
    if not twins:
        return
    own = {each.alias.casefold() for each in select.expressions if isinstance(each, exp.Alias)}
    for column in _iter_own_nodes(select):
        if not isinstance(column, exp.Column) or column.name.casefold() not in twins:
            continue
        is_of_source = not column.table or column.table.casefold() == source.alias_or_name.casefold()
        is_above = column.find_ancestor(exp.Order, exp.Having) is not None and column.name.casefold() in own
        if is_of_source and not is_above:
            raise make_unsupported_syntax_error(
                column, f"{column.name} is ambiguous: the subquery has two columns of that name", "Rename one of them"
            )


def _find_common(source: exp.Expr) -> exp.Expr | None:
    """Return the common table expression that a table refers to, if it has no column aliases."""
    if not isinstance(source, exp.Table) or source.args.get("db") is not None:
        return None
    node = source.parent
    while node is not None:
        clause = node.args.get("with_")
        for each in [] if clause is None else clause.expressions:
            if each.alias.casefold() == source.name.casefold():
                return None if each.args["alias"].columns else each.this
        node = node.parent
    return None

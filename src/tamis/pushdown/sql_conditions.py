"""What must be a condition is one: DuckDB makes a boolean of numbers, texts and NULL, where Spark refuses them.

| where                           | Spark refuses                      |
|---------------------------------|------------------------------------|
| WHERE, ON, CASE WHEN            | all but booleans                   |
| if(x, …), AND, OR, NOT          | all but booleans and NULL; after AND, OR and NOT a text is read as a boolean |
| bool_and, count_if, …           | numbers and times                  |
| sum, avg, …                     | booleans and times                 |

Types are looked for only where a tree tells them: of constants, of arithmetic and of columns whose types are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal as OneOf
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from tamis.expr.sql_foreign import no_syntax
from tamis.pushdown.scopes import NotModelled, Scope, parts_of
from tamis.types import is_number, is_text

Kind: TypeAlias = OneOf["boolean", "number", "text", "null", "time"]

_TESTS = frozenset(("any", "some", "every", "bool_and", "bool_or", "count_if"))
_SUMS = frozenset((
    "sum", "avg", "mean", "std", "stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp", "skewness",
    "kurtosis", "try_sum", "try_avg",
))  # fmt: skip
_NAMES = {"number": "a number", "text": "a text", "null": "NULL", "time": "a time", "boolean": "a boolean"}
_ARITHMETIC = (exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv)


def check_conditions(select: exp.Expr, scope: Scope | None = None) -> None:
    """Raise where a SELECT has something else in the place of a condition. A scope tells the types of columns."""

    def kind(node: exp.Expr) -> Kind | None:
        return _kind(node, scope)

    for node in _own_nodes(select):
        match node:
            case exp.Where():
                _refuse(node.this, kind, "WHERE", ("number", "text", "null", "time"))
            case exp.Join(args={"on": exp.Expr() as condition}):
                _refuse(condition, kind, "ON", ("number", "text", "null", "time"))
            case exp.Case() if node.this is None:
                for each in node.args["ifs"]:
                    _refuse(each.this, kind, "CASE WHEN", ("number", "text", "null", "time"))
            case exp.If() if not isinstance(node.parent, exp.Case):
                _refuse(node.this, kind, "if", ("number", "text", "time"))
            case exp.And() | exp.Or():
                for operand in (node.this, node.expression):
                    _refuse(operand, kind, node.key.upper(), ("number", "time"))
            case exp.Not():
                _refuse(node.this, kind, "NOT", ("number", "time"))
            case exp.Anonymous():
                _check_call(node, kind)
            case _:
                pass


def _check_call(call: exp.Anonymous, kind: Callable[[exp.Expr], Kind | None]) -> None:
    name = call.name.lower()
    if name in _TESTS and len(call.expressions) == 1:
        _refuse(call.expressions[0], kind, call.name, ("number", "time"))
    elif name in _SUMS and len(call.expressions) == 1:
        value = call.expressions[0]
        value = value.expressions[0] if isinstance(value, exp.Distinct) else value
        if (found := kind(value)) in ("boolean", "time"):
            assert found is not None
            raise no_syntax(value, f"{call.name} takes a number, not {_NAMES[found]}", "Write count_if(x), or a cast")


def _refuse(node: exp.Expr, kind: Callable[[exp.Expr], Kind | None], word: str, refused: tuple[Kind, ...]) -> None:
    found = kind(node)
    if found in refused:
        assert found is not None
        raise no_syntax(node, f"{word} takes a condition, not {_NAMES[found]}", "Compare it, as in id <> 0")


def _kind(node: exp.Expr, scope: Scope | None) -> Kind | None:
    """What values of a tree are; None where that is not known."""
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
            return _kind_of_type(_type_of(node, scope))
        case exp.Neg() if isinstance(node.this, exp.Literal):
            return "number"
        case _ if isinstance(node, _ARITHMETIC) and _has_number(node, scope):
            return "number"
        case _:
            return None


def _has_number(node: exp.Expr, scope: Scope | None) -> bool:
    """Whether both sides of an arithmetic operation are numbers, and not dates and intervals."""
    sides = [side for side in (node.args.get("this"), node.args.get("expression")) if side is not None]
    return all(_kind(side, scope) == "number" for side in sides)


def _type_of(column: exp.Column, scope: Scope) -> pa.DataType | None:
    if isinstance(column.parent, exp.Dot):
        return None
    try:
        found = scope.find(parts_of(column))
    except NotModelled:
        return None
    if found is None:
        return None
    data_type = found[0].type
    for name in found[1]:
        index = data_type.get_field_index(name) if data_type is not None and pa.types.is_struct(data_type) else -1
        data_type = data_type.field(index).type if data_type is not None and index >= 0 else None
    return data_type


def _kind_of_type(data_type: pa.DataType | None) -> Kind | None:
    if data_type is None:
        return None
    if pa.types.is_boolean(data_type):
        return "boolean"
    if is_number(data_type):
        return "number"
    if is_text(data_type):
        return "text"
    return "time" if pa.types.is_date(data_type) or pa.types.is_timestamp(data_type) else None


def _own_nodes(select: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of a SELECT outside of its subqueries."""
    waiting = list(select.iter_expressions())
    while waiting:
        node = waiting.pop()
        if not isinstance(node, exp.Query):
            yield node
            waiting += node.iter_expressions()


# --- Names ------------------------------------------------------------------------------------------------------------


def check_names(select: exp.Select) -> None:
    """Raise where a name means nothing, or two things, in Spark, and DuckDB takes one of them."""
    _check_order_of_distinct(select)
    for source in (select.args.get("from_"), *(select.args.get("joins") or ())):
        if source is not None:
            _check_twins(select, source.this)


def _output_names(select: exp.Expr) -> dict[str, list[exp.Expr]]:
    """The names of the columns of a query, each with all that it names."""
    while isinstance(select, exp.SetOperation | exp.Subquery):
        select = select.this
    found: dict[str, list[exp.Expr]] = {}
    for each in select.expressions if isinstance(select, exp.Select) else ():
        if isinstance(each, exp.Alias | exp.Column) and not isinstance(each.this, exp.Star):
            found.setdefault(each.alias_or_name.casefold(), []).append(each)
    return found


def _check_order_of_distinct(select: exp.Select) -> None:
    """After DISTINCT there are only the columns of the SELECT to sort by."""
    order = select.args.get("order")
    has_groups = select.args.get("group") is not None or select.args.get("having") is not None
    if order is None or select.args.get("distinct") is None or has_groups:
        return
    if any(each.is_star or isinstance(each, exp.Aliases) for each in select.expressions):
        return
    names = _output_names(select)
    for column in order.find_all(exp.Column):
        if column.find_ancestor(exp.Select) is not select or column.find_ancestor(exp.AggFunc, exp.Window):
            continue
        if not any(part.name.casefold() in names for part in column.parts):
            raise no_syntax(
                column,
                f"{column.name} is no column of SELECT DISTINCT, so that rows cannot be sorted by it",
                "Select it too, or sort by what is selected",
            )


def _check_twins(select: exp.Select, source: exp.Expr) -> None:
    """A name that a subquery gives to two values stands for neither."""
    query: exp.Expr | None = source if isinstance(source, exp.Subquery) else _common(source)
    alias = source.args.get("alias")
    if query is None or (alias is not None and alias.columns):
        return
    twins = {name for name, named in _output_names(query).items() if len(named) > 1 and not _is_one_column(named)}
    if not twins:
        return
    own = {each.alias.casefold() for each in select.expressions if isinstance(each, exp.Alias)}
    for column in _own_nodes(select):
        if not isinstance(column, exp.Column) or column.name.casefold() not in twins:
            continue
        is_of_source = not column.table or column.table.casefold() == source.alias_or_name.casefold()
        is_above = column.find_ancestor(exp.Order, exp.Having) is not None and column.name.casefold() in own
        if is_of_source and not is_above:
            raise no_syntax(
                column, f"{column.name} is ambiguous: the subquery has two such columns", "Give them other names"
            )


def _is_one_column(named: list[exp.Expr]) -> bool:
    """Whether a name stands for one column of a source several times; an alias makes a new one each time."""
    return all(isinstance(each, exp.Column) and each == named[0] for each in named)


def _common(source: exp.Expr) -> exp.Expr | None:
    """The common table expression that a table names, where it tells its columns by itself."""
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

"""A SELECT whose FROM and WHERE are planned while its other clauses are unsupported SQL: windows, lateral views,
grouping sets, unknown functions. Those stay text, over one plan, with all names replaced by column ids.

    SELECT o.id, rank() OVER (ORDER BY c.name) AS r FROM orders o JOIN customers c ON … WHERE o.day = …

    SELECT `orders.id`, rank() OVER (ORDER BY `customers.name`) AS r FROM `input_1`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from tamis.expr.nodes import Column, Expr, and_
from tamis.pushdown.nodes import Filter, Named, Node, Project
from tamis.pushdown.scopes import Field, Scope, UnsupportedSql, find_references, make_column_tree, name_fields
from tamis.pushdown.sql_sources import CommonTableExpression, QueryPlanner, plan_from
from tamis.pushdown.sql_trees import has_free_star, may_have_several_columns, split_conjuncts, to_sql_text
from tamis.scan.embedded import SIGNED_TYPES, is_binary, is_formatted_differently


@dataclass(frozen=True, slots=True)
class PartialSelect:
    """A SELECT as text over one plan, and the names of its columns."""

    tree: exp.Select
    node: Node
    names: tuple[str, ...]


_TEXT_CLAUSES = {"expressions", "hint", "distinct", "group", "having", "qualify", "windows", "order", "limit", "offset",
                 "laterals", "sort", "cluster", "distribute"}  # fmt: skip
_PLANNED_CLAUSES = {"from_", "joins", "where", "with_"}


def make_partial_select(
    queries: QueryPlanner, tree: exp.Expr, commons: Mapping[str, CommonTableExpression], table: exp.Table
) -> PartialSelect:
    """Return a SELECT as text over `table`, which is the plan of its FROM and WHERE."""
    if not isinstance(tree, exp.Select) or tree.args.get("from_") is None:
        raise UnsupportedSql("no SELECT over tables")
    if any(value and key not in _TEXT_CLAUSES | _PLANNED_CLAUSES for key, value in tree.args.items()):
        raise UnsupportedSql("a SELECT with an unsupported clause")
    node, scope = plan_from(queries, tree, commons)
    node, remaining = _add_filter(queries, node, scope, tree)
    select = tree.copy()
    for key in ("joins", "with_", "where"):
        select.set(key, None)
    select.set("from_", exp.From(this=table))
    if remaining:
        select.set("where", exp.Where(this=exp.and_(*(each.copy() for each in remaining), copy=False)))
    names = _expand_stars(select, scope)
    if next(select.args["from_"].this.find_all(exp.Query), None) or _has_subquery(select):
        raise UnsupportedSql("a subquery in unsupported SQL")
    name_fields(select)
    used = _replace_names(select, scope)
    outputs = [Named(column_id, value) for column_id, value in used.items()]
    return PartialSelect(select, Project(node, tuple(outputs)), tuple(names))


def _add_filter(queries: QueryPlanner, node: Node, scope: Scope, tree: exp.Select) -> tuple[Node, list[exp.Expr]]:
    """Add the conditions on tables to the plan; return also the other conditions, which use lateral view columns."""
    where = tree.args.get("where")
    known: list[Expr] = []
    others: list[exp.Expr] = []
    for each in [] if where is None else split_conjuncts(where.this):
        try:
            known.append(scope.resolve_expression(each, queries.now))
        except UnsupportedSql:
            if next(each.find_all(exp.Query), None) is not None:
                raise
            others.append(each)
    return (Filter(node, and_(*known)) if known else node), others


def _expand_stars(select: exp.Select, scope: Scope) -> list[str]:
    """Expand the stars of a SELECT, and return the names of all its columns."""
    found: list[exp.Expr] = []
    names: list[str] = []
    for each in select.expressions:
        fields: Sequence[Field] = ()
        match each:
            case exp.Star() if not any(each.args.values()) and not select.args.get("laterals"):
                fields = scope.expand_star()
            case exp.Column(this=exp.Star() as star) if not any(star.args.values()):
                parts = [each.args[key].name for key in ("catalog", "db", "table") if each.args.get(key) is not None]
                inner = scope.expand_struct_star(parts)
                names += [name for name, _ in inner]
                found += [tree for _, tree in inner]
                fields = () if inner else scope.expand_relation_star(parts)
            case exp.Aliases():
                raise UnsupportedSql("several names for one expression")
            case _ if has_free_star(each) or may_have_several_columns(each):
                raise UnsupportedSql("names that the engine gives")
            case exp.Alias() | exp.Column():
                names.append(each.alias or each.name)
                found.append(each)
            case exp.Dot(expression=exp.Identifier() as last):
                names.append(last.name)
                found.append(each)
            case _:
                names.append(to_sql_text(each))
                found.append(each)
        for field in fields:
            match field.value:
                case Column((column_id,)):
                    # The qualifier marks a name that is a column id already.
                    found.append(exp.Column(this=exp.to_identifier(column_id, quoted=True), table=_MARK.copy()))
                    names.append(field.name)
                case _:
                    raise UnsupportedSql("a star over computed columns")
    select.set("expressions", found)
    return names


_MARK = exp.to_identifier("\x00symbol", quoted=True)


def _has_subquery(select: exp.Select) -> bool:
    return any(node is not select for node in select.find_all(exp.Query))


def _replace_names(select: exp.Select, scope: Scope) -> dict[str, Expr]:
    """Replace names by column ids in place; return the column ids in use, with their values."""
    aliases = {each.alias.casefold() for each in select.expressions if isinstance(each, exp.Alias)}
    beside = {
        column.name.casefold() for view in select.args.get("laterals") or () for column in view.find_all(exp.TableAlias)
        for column in (column, *column.columns)
    }  # fmt: skip
    in_order = {id(column) for key in ("order", "sort", "cluster", "distribute") if select.args.get(key) is not None
                for column in select.args[key].find_all(exp.Column)}  # fmt: skip
    after = {id(column) for key in ("having", "qualify") if select.args.get(key) is not None
             for column in select.args[key].find_all(exp.Column)}  # fmt: skip
    used: dict[str, Expr] = {}
    found_chains = list(find_references(select))
    operand_types = {id(top): _find_operand_type(top, parts, scope) for top, parts in found_chains}
    for top, parts in found_chains:
        column = top.find(exp.Column)
        assert column is not None
        if column.args.get("table") == _MARK:
            column_id = column.name
            used[column_id] = Column((column_id,))
            column.set("table", None)
            continue
        is_alias = len(parts) == 1 and parts[0].casefold() in aliases
        if parts[0].casefold() in beside or (is_alias and id(column) in in_order):
            continue
        found = scope.find(parts)
        if found is None:
            if not is_alias:
                raise UnsupportedSql(f"no column {'.'.join(parts)}")
            continue
        if is_alias and id(column) in after:
            raise UnsupportedSql(f"{parts[0]} has two meanings")
        field, inner = found
        match field.value:
            case Column((column_id,)):
                used[column_id] = field.value
                named = make_column_tree(column_id, inner)
                around = None if inner else _find_function_around(top)
                if (target := operand_types[id(top)]) is not None:
                    named = exp.cast(named, target)
                elif around in _CONCATENATING and is_formatted_differently(field.type):
                    named = exp.cast(named, "string")
                elif around in _MEASURING and is_binary(field.type):
                    named = exp.Anonymous(this="duckdb_octet_length", expressions=[named])
                    assert top.parent is not None
                    top = top.parent
                top.replace(named)
            case _:
                raise UnsupportedSql("a computed column")
    return used


_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv)
_MIXING = (*_ARITHMETIC, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In,
           exp.Between, exp.Case, exp.If)  # fmt: skip
_MIXING_CALLS = frozenset((
    "coalesce", "ifnull", "nvl", "nvl2", "greatest", "least", "array", "if", "decode", "nullif", "try_add",
    "try_subtract", "try_multiply", "try_divide", "try_mod", "mod", "pmod",
))  # fmt: skip
"""Functions, besides the operators above, for whose arguments an engine finds a common type."""


def _find_operand_type(tree: exp.Expr, parts: Sequence[str], scope: Scope) -> str | None:
    """Return the type to cast a column to if DuckDB's common type of the operands would differ from Spark's."""
    found = scope.find(parts)
    data_type = None if found is None or found[1] else found[0].type
    parent = tree.parent
    if isinstance(parent, exp.If) and isinstance(parent.parent, exp.Case):
        is_condition = tree is parent.this and parent.parent.this is None
        parent = None if is_condition else parent.parent
    if data_type is None or parent is None:
        return None
    is_mixing = isinstance(parent, _MIXING) or (
        isinstance(parent, exp.Anonymous) and parent.name.lower() in _MIXING_CALLS
    )
    if is_mixing and pa.types.is_float32(data_type) and not _has_only_floats(parent, scope):
        return "double"
    if isinstance(parent, (*_ARITHMETIC, exp.Neg)) and pa.types.is_unsigned_integer(data_type):
        return SIGNED_TYPES[str(data_type)]
    if isinstance(parent, exp.Mul) and pa.types.is_decimal(data_type) and data_type.precision <= 18:
        # DuckDB computes a product of two such decimals with 18 digits.
        return f"decimal(19,{data_type.scale})"
    return None


def _has_only_floats(parent: exp.Expr, scope: Scope) -> bool:
    """Return whether all operands are columns of 32-bit floats: then the result is a 32-bit float, too."""
    return not isinstance(parent, exp.Div) and all(_is_float(each, scope) for each in _find_operands(parent))


def _find_operands(parent: exp.Expr) -> list[exp.Expr]:
    match parent:
        case exp.Case(this=None):
            branches = [each.args["true"] for each in parent.args["ifs"]]
            return [*branches, *filter(None, (parent.args.get("default"),))]
        case exp.Case():
            # The compared and the returned values may have two types; floats stay floats only if both are floats.
            return [*parent.find_all(exp.Literal), *parent.find_all(exp.Column)]
        case exp.Anonymous(expressions=arguments) if parent.name.lower() in ("if", "nvl2"):
            return list(arguments[1:])
        case _:
            return list(parent.iter_expressions())


def _is_float(value: exp.Expr, scope: Scope) -> bool:
    if isinstance(value, exp.Null):
        return True
    found = scope.find([value.name]) if isinstance(value, exp.Column) and not value.table else None
    data_type = None if found is None else found[0].type
    return data_type is not None and bool(pa.types.is_float32(data_type))


_CONCATENATING = frozenset(("concat", "concat_ws", "||"))
_MEASURING = frozenset(("length", "len", "char_length", "character_length"))


def _find_function_around(tree: exp.Expr) -> str | None:
    """Return the function whose argument a value is. DuckDB's function may differ from Spark's for some types."""
    match tree.parent:
        case exp.DPipe():
            return "||"
        case exp.Anonymous() as call:
            return call.name.lower()
        case _:
            return None

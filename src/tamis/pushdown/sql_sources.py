"""The FROM of a query as a plan: tables, subqueries, common table expressions, and the joins between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from tamis.errors import ExpressionError, counted
from tamis.expr.functions import NOT_DETERMINISTIC
from tamis.expr.nodes import Call, Column, Expr, and_, columns_of, conjuncts_of
from tamis.pushdown.nodes import Join, JoinKind, Node, outputs_of
from tamis.pushdown.scopes import Field, NotModelled, Now, Relation, Scope
from tamis.pushdown.symbols import Symbols


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and its columns as the query names them."""

    node: Node
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Common:
    """A common table expression: planned anew wherever it is used, so that each use is pushed down by itself."""

    tree: exp.Expr
    columns: tuple[str, ...]
    others: Mapping[str, Common]
    is_one: bool
    """Whether it must not be planned anew for each use: it is recursive, or its rows are others each time."""


class Tables(Protocol):
    """Where the tables of a query are found."""

    @property
    def has_policies(self) -> bool: ...

    def check(self, text: str, tree: exp.Expr) -> None:
        """Raise AccessDenied where a query names what nobody may look at."""
        ...

    def scan(self, name: tuple[str, ...], symbols: Symbols) -> Planned | None:
        """All rows and columns of a table that somebody may see; None where there is no such table."""
        ...


MOST_COMMONS = 100
"""So many uses of common table expressions are planned each by itself: inside of each other they double each time."""


class Queries(Protocol):
    """What sources need of the planner of whole queries."""

    commons_planned: int
    tables: Tables
    symbols: Symbols
    now: Now

    def query(self, tree: exp.Expr, commons: Mapping[str, Common]) -> Planned: ...

    def values(self, tree: exp.Values) -> Planned: ...


def with_commons(tree: exp.Expr, commons: Mapping[str, Common]) -> Mapping[str, Common]:
    """The common table expressions that are known inside of a query."""
    clause = tree.args.get("with_")
    if clause is None:
        return commons
    known = dict(commons)
    for each in clause.expressions:
        if not isinstance(each, exp.CTE) or each.args.get("scalar"):
            raise NotModelled("a WITH that names no table")
        name = each.alias.casefold()
        columns = tuple(column.name for column in each.args["alias"].columns)
        tables = each.this.find_all(exp.Table)
        is_recursive = clause.recursive and any(table.name.casefold() == name for table in tables)
        known[name] = Common(each.this, columns, dict(known), is_recursive or _varies(tree, each))
    return known


def _varies(tree: exp.Expr, common: exp.CTE) -> bool:
    """Whether a common table expression is used several times, and would have other rows each time."""
    name = common.alias.casefold()
    if sum(table.name.casefold() == name for table in tree.find_all(exp.Table)) < 2:
        return False
    calls = common.this.find_all(exp.Anonymous)
    is_cut = next(common.this.find_all(exp.Limit, exp.Fetch, exp.Offset, exp.TableSample), None) is not None
    return is_cut or any(call.name.lower() in NOT_DETERMINISTIC for call in calls)


def is_common(table: exp.Table, commons: Mapping[str, Common]) -> bool:
    is_plain = isinstance(table.this, exp.Identifier) and table.args.get("db") is None
    return is_plain and table.name.casefold() in commons


def plan_from(queries: Queries, tree: exp.Expr, commons: Mapping[str, Common]) -> tuple[Node, Scope]:
    """The sources of a SELECT joined, and their columns."""
    return _joined(queries, tree.args["from_"].this, tree.args.get("joins") or (), commons)


def _joined(
    queries: Queries, first: exp.Expr, joins: Sequence[exp.Expr], commons: Mapping[str, Common]
) -> tuple[Node, Scope]:
    node, scope = _source(queries, first, commons)
    has_comma = False
    for join in joins:
        side = join.args.get("side", "")
        if has_comma and side in ("RIGHT", "FULL"):
            # A comma binds less than JOIN: what comes before it has no part in that join.
            raise NotModelled("an outer join after a comma")
        has_comma |= not (join.args.get("kind") or side or join.args.get("on") or join.args.get("using"))
        node, scope = _join(queries, node, scope, join, commons)
    return node, scope


_PLAIN = {"this", "alias", "db", "catalog", "joins"}


def _source(queries: Queries, tree: exp.Expr, commons: Mapping[str, Common]) -> tuple[Node, Scope]:
    _only(tree, _PLAIN if not isinstance(tree, exp.Values) else {"expressions", "alias"})
    match tree:
        case exp.Table() if has_plain_name(tree):
            planned = _table(queries, tree, commons)
            name = (tree.alias,) if tree.alias else parts_of_table(tree)
        case exp.Subquery(this=exp.Query() as query):
            planned, name = queries.query(query, commons), (tree.alias,)
        case exp.Subquery(this=exp.Table() as table) if not tree.alias:
            return _joined(queries, table, tree.args.get("joins") or (), commons)
        case exp.Values():
            planned, name = queries.values(tree), (tree.alias,)
        case _:
            raise NotModelled(f"{tree.key} in FROM")
    fields = planned.fields
    alias = tree.args.get("alias")
    if alias is not None and alias.columns:
        fields = renamed(fields, [column.name for column in alias.columns])
    scope = Scope((Relation(name if name != ("",) else (), fields),))
    if not tree.args.get("joins"):
        return planned.node, scope
    node = planned.node
    for join in tree.args["joins"]:
        node, scope = _join(queries, node, scope, join, commons)
    return node, scope


def has_plain_name(table: exp.Table) -> bool:
    """Whether a table is called by names alone, and not by a function that tells one."""
    return all(isinstance(part, exp.Identifier) for part in table.parts)


def parts_of_table(table: exp.Table) -> tuple[str, ...]:
    if not has_plain_name(table):
        raise NotModelled("a table without a plain name")
    return tuple(part.name for part in table.parts)


def _table(queries: Queries, table: exp.Table, commons: Mapping[str, Common]) -> Planned:
    if is_common(table, commons):
        return plan_common(queries, commons[table.name.casefold()])
    found = queries.tables.scan(parts_of_table(table), queries.symbols)
    if found is None:
        raise NotModelled(f"no table {'.'.join(parts_of_table(table))}")
    return found


def plan_common(queries: Queries, common: Common) -> Planned:
    queries.commons_planned += 1
    if common.is_one or queries.commons_planned > MOST_COMMONS:
        raise NotModelled("a common table expression that is to be run once")
    planned = queries.query(common.tree, common.others)
    return Planned(planned.node, renamed(planned.fields, common.columns)) if common.columns else planned


def renamed(fields: Sequence[Field], names: Sequence[str]) -> tuple[Field, ...]:
    if len(names) != len(fields):
        raise ExpressionError(
            f"{counted(len(names), 'name')} given for {counted(len(fields), 'column')}: {', '.join(names)}. Name all"
        )
    return tuple(Field(name, field.value, field.type) for name, field in zip(names, fields, strict=True))


def _only(tree: exp.Expr, keys: set[str]) -> None:
    """Refuse a tree that says more than is modelled."""
    for key, value in tree.args.items():
        if key not in keys and value:
            raise NotModelled(f"{key} of {tree.key}")


# --- Joins ------------------------------------------------------------------------------------------------------------

_KINDS: dict[tuple[str, str], JoinKind] = {
    ("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "cross",
    ("LEFT", ""): "left", ("LEFT", "OUTER"): "left", ("RIGHT", ""): "right", ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full", ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "semi", ("", "SEMI"): "semi", ("LEFT", "ANTI"): "anti", ("", "ANTI"): "anti",
}  # fmt: skip


def _join(
    queries: Queries, left: Node, left_scope: Scope, join: exp.Expr, commons: Mapping[str, Common]
) -> tuple[Node, Scope]:
    _only(join, {"this", "on", "using", "side", "kind", "method", "hint"})
    kind = _KINDS.get((join.args.get("side") or "", join.args.get("kind") or ""))
    method = join.args.get("method")
    if kind is None or method not in (None, "", "NATURAL"):
        raise NotModelled(f"the join {join.args.get('side')} {join.args.get('kind')} {method}")
    right, right_scope = _source(queries, join.this, commons)
    both = left_scope.beside(right_scope)
    using = [each.name for each in join.args.get("using") or ()]
    if method == "NATURAL":
        known = {field.name.casefold() for field in right_scope.visible()}
        using = [field.name for field in left_scope.visible() if field.name.casefold() in known]
    on = join.args.get("on")
    pairs: list[tuple[Expr, Expr]] = []
    rest: list[Expr] = []
    if using:
        pairs, both = _using(using, left_scope, right_scope, both, kind)
    elif on is not None:
        pairs, rest = split_condition(both.expression(on, queries.now), left, right)
    elif kind not in ("inner", "cross"):
        raise NotModelled("an outer join without a condition")
    else:
        kind = "cross"
    joined = Join(left, right, kind, tuple(pairs), and_(*rest) if rest else None)
    return joined, left_scope if kind in ("semi", "anti") else both


def split_condition(condition: Expr, left: Node, right: Node) -> tuple[list[tuple[Expr, Expr]], list[Expr]]:
    """The pairs that must be equal, each with its left side first, and the other conjuncts."""
    of_left = {output.name for output in outputs_of(left)}
    of_right = {output.name for output in outputs_of(right)}
    pairs: list[tuple[Expr, Expr]] = []
    rest: list[Expr] = []
    for conjunct in conjuncts_of(condition):
        match conjunct:
            case Call("=", (one, other)) if _is_over(one, of_left) and _is_over(other, of_right):
                pairs.append((one, other))
            case Call("=", (one, other)) if _is_over(one, of_right) and _is_over(other, of_left):
                pairs.append((other, one))
            case _:
                rest.append(conjunct)
    return pairs, rest


def _is_over(expr: Expr, names: set[str]) -> bool:
    columns = columns_of(expr)
    return bool(columns) and all(column.path[0] in names for column in columns)


def _using(
    names: Sequence[str], left: Scope, right: Scope, both: Scope, kind: JoinKind
) -> tuple[list[tuple[Expr, Expr]], Scope]:
    pairs: list[tuple[Expr, Expr]] = []
    merged: list[Field] = []
    hidden: set[Expr] = set()
    for name in names:
        found = [scope.find((name,)) for scope in (left, right)]
        if None in found or any(each is not None and each[1] for each in found):
            raise NotModelled(f"no column {name} in both sides")
        one, other = (each[0] for each in found if each is not None)
        if one.type is None or one.type != other.type:
            raise NotModelled(f"{name} has two types")
        pairs.append((one.value, other.value))
        hidden |= {one.value, other.value}
        value: Expr
        match kind:
            case "right":
                value = other.value
            case "full":
                value = Call("coalesce", (one.value, other.value))
            case _:
                value = one.value
        merged.append(Field(one.name, value, one.type))
    earlier = tuple(field for field in both.merged if field.value not in hidden)
    # Only columns are hidden by what they are: a value that was merged before is replaced by name.
    columns = frozenset(value for value in hidden if isinstance(value, Column))
    return pairs, Scope(both.relations, (*merged, *earlier), both.hidden | columns)


# --- Stars ------------------------------------------------------------------------------------------------------------


def name_columns_of_stars(select: exp.Expr, scope: Scope) -> None:
    """Put columns in the place of stars among arguments, as in `struct(*)`; `count(*)` alone counts rows.

    The tree is changed, unless a name would not tell which column is meant.
    """
    for call in list(select.find_all(exp.Anonymous)):
        if call.find_ancestor(exp.Select) is not select:
            continue
        places = [call, *(each for each in call.expressions if isinstance(each, exp.Distinct))]
        for place in places:
            if place is call and call.name.lower() == "count":
                continue
            stars = [
                each for each in place.expressions if isinstance(each, exp.Star) or isinstance(each.this, exp.Star)
            ]
            if stars and not scope.merged:
                _name_columns(place, scope)


def _name_columns(place: exp.Expr, scope: Scope) -> None:
    found: list[exp.Expr] = []
    for each in place.expressions:
        is_qualified = isinstance(each, exp.Column) and isinstance(each.this, exp.Star)
        if not is_qualified and not isinstance(each, exp.Star):
            found.append(each)
            continue
        star = each.this if is_qualified else each
        relations = [one for one in scope.relations if not is_qualified or one.is_called((each.table,))]
        if any(star.args.values()) or not relations:
            return
        for relation in relations:
            names = [field.name.casefold() for field in relation.fields]
            is_named = len(set(names)) == len(names) and (relation.name or len(scope.relations) == 1)
            if not is_named:
                return
            table = relation.name[-1] if relation.name else None
            found += [exp.column(field.name, table=table, quoted=True) for field in relation.fields]
    place.set("expressions", found)

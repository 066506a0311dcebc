"""Planning of FROM: tables, subqueries, common table expressions, and the joins between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from tamis.errors import ExpressionError, format_count
from tamis.expr.functions.table import is_nondeterministic
from tamis.expr.nodes import Call, Column, Expr, and_, find_columns, split_conjuncts
from tamis.query.plan.column_ids import ColumnIds
from tamis.query.plan.nodes import Join, JoinKind, Node, get_outputs
from tamis.query.sql.partition_conditions import PartitionedTables
from tamis.query.sql.scopes import Field, QueryTime, Relation, Scope, UnsupportedSql


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """A plan, and its columns under their names in the query."""

    node: Node
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class CommonTableExpression:
    """A common table expression. Each use is planned separately, so that filters are pushed into each one."""

    tree: exp.Expr
    columns: tuple[str, ...]
    visible_commons: Commons
    must_run_once: bool
    """Whether it must run only once: it is recursive, or its rows vary between runs."""


Commons = Mapping[str, CommonTableExpression]
"""The common table expressions that a query may refer to, by their folded names."""


class Tables(PartitionedTables, Protocol):
    """Resolves the tables of a query."""

    @property
    def has_policies(self) -> bool: ...

    def check(self, text: str, tree: exp.Expr) -> None:
        """Raise AccessDenied if a query refers to something that policies forbid."""

    def scan(self, name: tuple[str, ...], column_ids: ColumnIds) -> PlannedSource:
        """Return a scan of all rows and columns of a table that the user may see; raise TableNotFound without one."""


MAX_PLANNED_COMMONS = 100
"""The maximum number of uses that are planned separately: nested common table expressions double at each level."""


class QueryPlanner(Protocol):
    """The part of the planner that other modules use."""

    commons_planned: int
    tables: Tables
    column_ids: ColumnIds
    now: QueryTime

    def query(self, tree: exp.Expr, commons: Commons) -> PlannedSource: ...

    def values(self, tree: exp.Values) -> PlannedSource: ...


def add_commons(tree: exp.Expr, commons: Commons) -> Commons:
    """Return the common table expressions that are visible inside of a query."""
    clause = tree.args.get("with_")
    if clause is None:
        return commons
    known = dict(commons)
    for each in clause.expressions:
        if not isinstance(each, exp.CTE) or each.args.get("scalar"):
            raise UnsupportedSql("a WITH entry that is not a table")
        name = each.alias.casefold()
        columns = tuple(column.name for column in each.args["alias"].columns)
        tables = each.this.find_all(exp.Table)
        is_recursive = clause.recursive and any(table.name.casefold() == name for table in tables)
        known[name] = CommonTableExpression(
            each.this, columns, dict(known), is_recursive or _is_nondeterministic(tree, each)
        )
    return known


def _is_nondeterministic(tree: exp.Expr, common: exp.CTE) -> bool:
    """Return whether a common table expression is used several times, and its rows vary between runs."""
    name = common.alias.casefold()
    if sum(table.name.casefold() == name for table in tree.find_all(exp.Table)) < 2:
        return False
    calls = common.this.find_all(exp.Anonymous)
    is_cut = next(common.this.find_all(exp.Limit, exp.Fetch, exp.Offset, exp.TableSample), None) is not None
    return is_cut or any(is_nondeterministic(call.name) for call in calls)


def is_common(table: exp.Table, commons: Commons) -> bool:
    is_plain = isinstance(table.this, exp.Identifier) and table.args.get("db") is None
    return is_plain and table.name.casefold() in commons


def plan_from(queries: QueryPlanner, tree: exp.Expr, commons: Commons) -> tuple[Node, Scope]:
    """Plan the FROM of a SELECT; return the plan and the scope of its columns."""
    return _plan_joins(queries, tree.args["from_"].this, tree.args.get("joins") or (), commons)


def _plan_joins(
    queries: QueryPlanner, first: exp.Expr, joins: Sequence[exp.Expr], commons: Commons
) -> tuple[Node, Scope]:
    node, scope = _plan_source(queries, first, commons)
    has_comma = False
    for join in joins:
        side = join.args.get("side", "")
        if has_comma and side in ("RIGHT", "FULL"):
            # JOIN binds stronger than a comma: the sources before the comma are not part of the join.
            raise UnsupportedSql("an outer join after a comma")
        has_comma |= not (join.args.get("kind") or side or join.args.get("on") or join.args.get("using"))
        node, scope = _plan_join(queries, node, scope, join, commons)
    return node, scope


_SUPPORTED_CLAUSES = {"this", "alias", "db", "catalog", "joins"}


def _plan_source(queries: QueryPlanner, tree: exp.Expr, commons: Commons) -> tuple[Node, Scope]:
    check_clauses(tree, _SUPPORTED_CLAUSES if not isinstance(tree, exp.Values) else {"expressions", "alias"})
    match tree:
        case exp.Table() if has_plain_name(tree):
            planned = plan_table(queries, tree, commons)
            name = (tree.alias,) if tree.alias else get_table_parts(tree)
        case exp.Subquery(this=exp.Query() as query):
            planned, name = queries.query(query, commons), (tree.alias,)
        case exp.Subquery(this=exp.Table() as table) if not tree.alias:
            return _plan_joins(queries, table, tree.args.get("joins") or (), commons)
        case exp.Values():
            planned, name = queries.values(tree), (tree.alias,)
        case _:
            raise UnsupportedSql(f"{tree.key} in FROM")
    fields = planned.fields
    alias = tree.args.get("alias")
    if alias is not None and alias.columns:
        fields = rename_fields(fields, [column.name for column in alias.columns])
    scope = Scope((Relation(name if name != ("",) else (), fields),))
    if not tree.args.get("joins"):
        return planned.node, scope
    node = planned.node
    for join in tree.args["joins"]:
        node, scope = _plan_join(queries, node, scope, join, commons)
    return node, scope


def has_plain_name(table: exp.Table) -> bool:
    """Return whether a table is given by plain identifiers, not by a table function."""
    return all(isinstance(part, exp.Identifier) for part in table.parts)


def get_table_parts(table: exp.Table) -> tuple[str, ...]:
    if not has_plain_name(table):
        raise UnsupportedSql("a table without a plain name")
    return tuple(part.name for part in table.parts)


def plan_table(queries: QueryPlanner, table: exp.Table, commons: Commons) -> PlannedSource:
    """Plan a table or a common table expression."""
    if is_common(table, commons):
        return _plan_common(queries, commons[table.name.casefold()])
    return queries.tables.scan(get_table_parts(table), queries.column_ids)


def _plan_common(queries: QueryPlanner, common: CommonTableExpression) -> PlannedSource:
    queries.commons_planned += 1
    if common.must_run_once or queries.commons_planned > MAX_PLANNED_COMMONS:
        raise UnsupportedSql("a common table expression that must run once")
    planned = queries.query(common.tree, common.visible_commons)
    return PlannedSource(planned.node, rename_fields(planned.fields, common.columns)) if common.columns else planned


def rename_fields(fields: Sequence[Field], names: Sequence[str]) -> tuple[Field, ...]:
    if len(names) != len(fields):
        raise ExpressionError(
            f"found {format_count(len(names), 'name')} for {format_count(len(fields), 'column')}: {', '.join(names)}. "
            "Name all columns"
        )
    return tuple(Field(name, field.value, field.type) for name, field in zip(names, fields, strict=True))


def check_clauses(tree: exp.Expr, keys: set[str]) -> None:
    """Raise `UnsupportedSql` if a tree has clauses other than the supported ones."""
    for key, value in tree.args.items():
        if key not in keys and value:
            raise UnsupportedSql(f"{key} of {tree.key}")


# --- Joins ------------------------------------------------------------------------------------------------------------

_JOIN_KINDS: dict[tuple[str, str], JoinKind] = {
    ("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "cross",
    ("LEFT", ""): "left", ("LEFT", "OUTER"): "left", ("RIGHT", ""): "right", ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full", ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "semi", ("", "SEMI"): "semi", ("LEFT", "ANTI"): "anti", ("", "ANTI"): "anti",
}  # fmt: skip


def _plan_join(
    queries: QueryPlanner, left: Node, left_scope: Scope, join: exp.Expr, commons: Commons
) -> tuple[Node, Scope]:
    check_clauses(join, {"this", "on", "using", "side", "kind", "method", "hint"})
    kind = _JOIN_KINDS.get((join.args.get("side") or "", join.args.get("kind") or ""))
    method = join.args.get("method")
    if kind is None or method not in (None, "", "NATURAL"):
        raise UnsupportedSql(f"the join {join.args.get('side')} {join.args.get('kind')} {method}")
    right, right_scope = _plan_source(queries, join.this, commons)
    both = left_scope.merge_with(right_scope)
    using = [each.name for each in join.args.get("using") or ()]
    if method == "NATURAL":
        known = {field.name.casefold() for field in right_scope.expand_star()}
        using = [field.name for field in left_scope.expand_star() if field.name.casefold() in known]
    on = join.args.get("on")
    pairs: list[tuple[Expr, Expr]] = []
    rest: list[Expr] = []
    if using:
        pairs, both = _merge_using(using, left_scope, right_scope, both, kind)
    elif on is not None:
        pairs, rest = split_condition(both.resolve_expression(on, queries.now), left, right)
    elif kind not in ("inner", "cross"):
        raise UnsupportedSql("an outer join without a condition")
    else:
        kind = "cross"
    joined = Join(left, right, kind, tuple(pairs), and_(*rest) if rest else None)
    return joined, left_scope if kind in ("semi", "anti") else both


def split_condition(condition: Expr, left: Node, right: Node) -> tuple[list[tuple[Expr, Expr]], list[Expr]]:
    """Split a join condition into equal pairs, each with its left side first, and the other conjuncts."""
    of_left = {output.name for output in get_outputs(left)}
    of_right = {output.name for output in get_outputs(right)}
    pairs: list[tuple[Expr, Expr]] = []
    rest: list[Expr] = []
    for conjunct in split_conjuncts(condition):
        match conjunct:
            case Call("=", (one, other)) if _is_over(one, of_left) and _is_over(other, of_right):
                pairs.append((one, other))
            case Call("=", (one, other)) if _is_over(one, of_right) and _is_over(other, of_left):
                pairs.append((other, one))
            case _:
                rest.append(conjunct)
    return pairs, rest


def _is_over(expr: Expr, names: set[str]) -> bool:
    columns = find_columns(expr)
    return bool(columns) and all(column.path[0] in names for column in columns)


def _merge_using(
    names: Sequence[str], left: Scope, right: Scope, both: Scope, kind: JoinKind
) -> tuple[list[tuple[Expr, Expr]], Scope]:
    pairs: list[tuple[Expr, Expr]] = []
    merged: list[Field] = []
    hidden: set[Expr] = set()
    for name in names:
        found = [scope.find((name,)) for scope in (left, right)]
        if None in found or any(each is not None and each[1] for each in found):
            raise UnsupportedSql(f"no column {name} in both sides")
        one, other = (each[0] for each in found if each is not None)
        if one.type is None or one.type != other.type:
            raise UnsupportedSql(f"{name} has two types")
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
    # Only columns are hidden by value. A value that was merged before is replaced by name.
    columns = frozenset(value for value in hidden if isinstance(value, Column))
    return pairs, Scope(both.relations, (*merged, *earlier), both.hidden | columns)


# --- Stars ------------------------------------------------------------------------------------------------------------


def expand_argument_stars(select: exp.Expr, scope: Scope) -> None:
    """Expand stars among arguments in place, as in `struct(*)`. `count(*)` stays.

    A star stays if the name of one of its columns would be ambiguous.
    """
    for call in list(select.find_all(exp.Anonymous)):
        if call.find_ancestor(exp.Select) is not select:
            continue
        parents = [call, *(each for each in call.expressions if isinstance(each, exp.Distinct))]
        for parent in parents:
            if parent is call and call.name.lower() == "count":
                continue
            stars = [
                each for each in parent.expressions if isinstance(each, exp.Star) or isinstance(each.this, exp.Star)
            ]
            if stars and not scope.merged:
                _expand_stars(parent, scope)


def _expand_stars(parent: exp.Expr, scope: Scope) -> None:
    found: list[exp.Expr] = []
    for each in parent.expressions:
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
    parent.set("expressions", found)

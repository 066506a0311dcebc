"""Unnesting of subqueries in expressions: they become joins where the meaning is the same.

    WHERE a IN (SELECT b FROM …)                          semi join on a = b
    WHERE [NOT] EXISTS (SELECT … FROM t WHERE t.b = a)    semi or anti join on the conditions over both queries
    … > (SELECT max(b) FROM …)                            cross join with the single row of an ungrouped aggregate

`NOT IN` is not supported: one NULL in the subquery makes it NULL for every row.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from tamis.expr.nodes import Call, Expr, and_
from tamis.expr.sql.syntax import to_sql_text
from tamis.query.plan.nodes import Filter, Join, Node
from tamis.query.sql.grouping import has_aggregates
from tamis.query.sql.scopes import Field, Scope, UnsupportedSql, make_column_tree, make_hidden_name
from tamis.query.sql.sources import CommonTableExpression, PlannedSource, QueryPlanner, plan_from, split_condition
from tamis.query.sql.trees import split_conjuncts


def add_where(
    queries: QueryPlanner, node: Node, scope: Scope, where: exp.Expr, commons: Mapping[str, CommonTableExpression]
) -> Node:
    """Add a WHERE to a node, with its subqueries as joins."""
    plain: list[exp.Expr] = []
    nested: list[exp.Expr] = []
    for each in split_conjuncts(where):
        (plain if next(each.find_all(exp.Query), None) is None else nested).append(each)
    if not nested:
        return Filter(node, scope.resolve_expression(where, queries.now))
    if plain:
        node = Filter(node, and_(*(scope.resolve_expression(each, queries.now) for each in plain)))
    for each in nested:
        node = _apply_condition(queries, node, scope, each, commons)
    return node


def _apply_condition(
    queries: QueryPlanner, node: Node, scope: Scope, tree: exp.Expr, commons: Mapping[str, CommonTableExpression]
) -> Node:
    match tree:
        case exp.In() if tree.args.get("query") is not None:
            return _join_in(queries, node, scope, tree, commons)
        case exp.Exists(this=exp.Select() as inner):
            return _join_exists(queries, node, scope, inner, commons, is_semi=True)
        case exp.Not(this=exp.Exists(this=exp.Select() as inner)):
            return _join_exists(queries, node, scope, inner, commons, is_semi=False)
    beside = ScalarSubqueries(queries, commons)
    root = exp.Select(expressions=[tree.copy()])
    (replaced,) = beside.replace_subqueries(root).expressions
    condition = scope.with_fields(beside.fields).resolve_expression(replaced.unalias(), queries.now)
    return Filter(beside.join_to(node), condition)


def _join_in(
    queries: QueryPlanner, node: Node, scope: Scope, tree: exp.In, commons: Mapping[str, CommonTableExpression]
) -> Node:
    inner = tree.args["query"]
    inner = inner.this if isinstance(inner, exp.Subquery) and isinstance(inner.this, exp.Query) else inner
    if isinstance(tree.this, exp.Tuple):
        raise UnsupportedSql("several columns IN a subquery")
    value = scope.resolve_expression(tree.this, queries.now)
    planned = queries.query(inner, commons)
    if len(planned.fields) != 1:
        raise UnsupportedSql("IN a subquery of several columns")
    field = planned.fields[0]
    condition = scope.with_fields(planned.fields).bind_expression(Call("=", (value, field.value)))
    return _make_join(node, planned.node, condition, is_semi=True)


_SUPPORTED_CLAUSES = {"expressions", "from_", "joins", "where", "hint"}


def _join_exists(
    queries: QueryPlanner,
    node: Node,
    scope: Scope,
    tree: exp.Select,
    commons: Mapping[str, CommonTableExpression],
    *,
    is_semi: bool,
) -> Node:
    if any(value and key not in _SUPPORTED_CLAUSES for key, value in tree.args.items()) or has_aggregates(tree):
        raise UnsupportedSql("EXISTS of a query that is not a plain SELECT")
    where = tree.args.get("where")
    if tree.args.get("from_") is None or where is None:
        raise UnsupportedSql("EXISTS of an uncorrelated subquery")
    inner, own = plan_from(queries, tree, commons)
    within = own.with_outer(scope)
    alone: list[Expr] = []
    both: list[Expr] = []
    for each in split_conjuncts(where.this):
        try:
            alone.append(own.resolve_expression(each, queries.now))
        except UnsupportedSql:
            both.append(within.resolve_expression(each, queries.now))
    if not both:
        raise UnsupportedSql("EXISTS of an uncorrelated subquery")
    return _make_join(node, Filter(inner, and_(*alone)) if alone else inner, and_(*both), is_semi=is_semi)


def _make_join(node: Node, inner: Node, condition: Expr, *, is_semi: bool) -> Node:
    pairs, rest = split_condition(condition, node, inner)
    if not pairs:
        raise UnsupportedSql("a correlated subquery without an equality")
    return Join(node, inner, "semi" if is_semi else "anti", tuple(pairs), and_(*rest) if rest else None)


def _name_subquery_columns(select: exp.Select) -> None:
    """Name columns that contain a subquery after their original text, before the subquery is replaced."""
    for each in list(select.expressions):
        has_name = isinstance(each, exp.Alias | exp.Aliases) or bool(each.alias)
        if not has_name and next(each.find_all(exp.Query), None) is not None:
            # `alias_` would set the alias of the subquery itself, which will be replaced.
            each.replace(exp.Alias(this=each.copy(), alias=exp.to_identifier(to_sql_text(each), quoted=True)))


class ScalarSubqueries:
    """Scalar subqueries with exactly one row, which are cross joined to the query."""

    def __init__(self, queries: QueryPlanner, commons: Mapping[str, CommonTableExpression]) -> None:
        self._queries = queries
        self._commons = commons
        self._planned: list[PlannedSource] = []
        self.fields: list[Field] = []

    def replace_subqueries(self, select: exp.Select) -> exp.Select:
        """Return the SELECT with such subqueries replaced by columns in its list, HAVING and ORDER BY."""
        parts = [*select.expressions, select.args.get("having"), select.args.get("order")]
        if not any(part is not None and next(part.find_all(exp.Query), None) is not None for part in parts):
            return select
        changed = select.copy()
        _name_subquery_columns(changed)
        for part in (*changed.expressions, changed.args.get("having"), changed.args.get("order")):
            for nested in [] if part is None else list(part.find_all(exp.Subquery)):
                if nested.find_ancestor(exp.Query) is changed:
                    nested.replace(self._replace_subquery(nested))
        return changed

    def _replace_subquery(self, nested: exp.Subquery) -> exp.Expr:
        inner = nested.this
        is_one_row = isinstance(inner, exp.Select) and has_aggregates(inner) and len(inner.expressions) == 1
        if not is_one_row or any(inner.args.get(key) for key in ("group", "having", "limit", "offset", "distinct")):
            raise UnsupportedSql("a scalar subquery that may have no row, or several")
        if isinstance(nested.parent, exp.In | exp.Exists | exp.Any | exp.All):
            raise UnsupportedSql("a subquery that is not a value")
        planned = self._queries.query(inner, self._commons)
        (field,) = planned.fields
        name = make_hidden_name(f"value of a query, {len(self._planned)}")
        self._planned.append(planned)
        self.fields.append(Field(name, field.value, field.type))
        return make_column_tree(name)

    def join_to(self, node: Node) -> Node:
        for planned in self._planned:
            node = Join(node, planned.node, "cross")
        return node

"""The planner: it turns SQL into a logical plan, as far as plan nodes support it.

    SELECT region, sum(amount) AS total FROM orders WHERE day > '2024-01-01' GROUP BY region ORDER BY total LIMIT 3

    TableScan(orders) ─▶ Filter(day > …) ─▶ Aggregate(region; sum(amount)) ─▶ TopN(sum, 3) ─▶ Project(region, total)

A SELECT with unsupported SQL stays text, over plans of the tables and subqueries that it reads from:
`tamis.query.sql.unsupported`. Sorts and limits are below the last projection, nearer to the scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlglot import exp

from tamis.errors import ExpressionError, ParseError
from tamis.expr.functions.table import type_of
from tamis.expr.nodes import Call, Column, Expr, and_
from tamis.expr.sql.syntax import parse_statement, retry_with_large_stack, to_sql_text
from tamis.query.plan.column_ids import ColumnIds, is_deterministic
from tamis.query.plan.nodes import (
    UNLIMITED,
    Aggregate,
    Filter,
    Join,
    Limit,
    Named,
    Node,
    Output,
    Project,
    Sort,
    SortKey,
    Sql,
    TopN,
    Union,
    get_outputs,
)
from tamis.query.sql.conditions import check_conditions
from tamis.query.sql.grouping import Grouping, has_aggregates, parse_position, refuse_maps
from tamis.query.sql.scopes import (
    Field,
    QueryTime,
    Scope,
    UnsupportedSql,
    find_references,
    make_column_tree,
    make_hidden_name,
)
from tamis.query.sql.sources import (
    Commons,
    PlannedSource,
    QueryPlanner,
    Tables,
    add_commons,
    check_clauses,
    expand_argument_stars,
    plan_from,
    split_condition,
)
from tamis.query.sql.trees import refuse_engine_syntax, split_conjuncts
from tamis.query.sql.unsupported import UnsupportedSqlPlanner

# --- Subqueries -----------------------------------------------------------------------------------------------------
#
# Unnesting of subqueries in expressions: they become joins where the meaning is the same.
#
#     WHERE a IN (SELECT b FROM …)                          semi join on a = b
#     WHERE [NOT] EXISTS (SELECT … FROM t WHERE t.b = a)    semi or anti join on the conditions over both queries
#     … > (SELECT max(b) FROM …)                            cross join with the single row of an ungrouped aggregate
#
# `NOT IN` is not supported: one NULL in the subquery makes it NULL for every row.


def add_where(queries: QueryPlanner, node: Node, scope: Scope, where: exp.Expr, commons: Commons) -> Node:
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


def _apply_condition(queries: QueryPlanner, node: Node, scope: Scope, tree: exp.Expr, commons: Commons) -> Node:
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


def _join_in(queries: QueryPlanner, node: Node, scope: Scope, tree: exp.In, commons: Commons) -> Node:
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


_SUBQUERY_CLAUSES = {"expressions", "from_", "joins", "where", "hint"}


def _join_exists(
    queries: QueryPlanner, node: Node, scope: Scope, tree: exp.Select, commons: Commons, *, is_semi: bool
) -> Node:
    if any(value and key not in _SUBQUERY_CLAUSES for key, value in tree.args.items()) or has_aggregates(tree):
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

    def __init__(self, queries: QueryPlanner, commons: Commons) -> None:
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


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """The plan of a query, and the names of its columns; None if only the engine knows them."""

    plan: Node
    names: tuple[str, ...] | None
    binder_errors: tuple[ExpressionError, ...] = ()
    """Errors that Tamis' binder found in unsupported SQL. They explain why, if the engine rejects it too."""


def read_query(text: str) -> exp.Query:
    """Parse a query; raise `ParseError` if the text is another statement."""
    tree = parse_statement(text, lambda tree: tree)
    if isinstance(tree, exp.Values):
        tree = exp.Select(expressions=[exp.Star()], from_=exp.From(this=tree))
    if not isinstance(tree, exp.Query):
        raise ParseError(f"{tree.key.upper()} is not a query", hint="Only queries run here: SELECT, WITH, VALUES")
    refuse_engine_syntax(tree)
    return tree


def plan_query(tree: exp.Query, tables: Tables, *, now: QueryTime | None = None, plain: bool = False) -> PlannedQuery:
    """Plan a query. With `plain` the plan is a single SQL text over all rows of its tables, for the engine to try."""

    def work() -> PlannedQuery:
        return _Planner(tables, tree, now or QueryTime(datetime.now(UTC))).plan_query(plain=plain)

    return retry_with_large_stack(work)


@dataclass(frozen=True, slots=True)
class _Item:
    """An item of a SELECT list with its label: a syntax tree, or the value of a column that a star expands to."""

    label: str
    tree: exp.Expr | None
    value: Expr | None = None


_SUPPORTED_CLAUSES = {"with_", "expressions", "hint", "distinct", "from_", "joins", "where", "group", "having", "order",
                      "limit", "offset"}  # fmt: skip


class _Planner:
    def __init__(self, tables: Tables, tree: exp.Query, now: QueryTime) -> None:
        self.tables = tables
        self.now = now
        self.column_ids = ColumnIds()
        self.commons_planned = 0
        self._tree = tree
        self._rest = UnsupportedSqlPlanner(self, tree)
        self._doubts: list[ExpressionError] = []

    def plan_query(self, *, plain: bool) -> PlannedQuery:
        if not plain:
            try:
                planned = self._plan_supported(self._tree, {})
                known = tuple(field.name for field in planned.fields)
                if not known:
                    raise ParseError("the query has no columns", hint="Select at least one, or count the rows")
                return PlannedQuery(planned.node, known, tuple(self._doubts))
            except UnsupportedSql as reason:
                self._record_doubt(reason)
                self.column_ids = ColumnIds()
            try:
                select, inputs, output_names = self._rest.make_partial_select(self._tree, add_commons(self._tree, {}))
                return PlannedQuery(Sql(select, inputs, ()), output_names, tuple(self._doubts))
            except UnsupportedSql:
                pass
        # The failed attempt must not reserve column ids.
        self.column_ids = ColumnIds()
        tree, inputs = self._rest.rewrite(self._tree, {}, plain=plain)
        try:
            names = tuple(self._rest.names(self._tree))
        except UnsupportedSql:
            names = None
        return PlannedQuery(Sql(tree, inputs, ()), names, tuple(self._doubts))

    def _record_doubt(self, reason: UnsupportedSql) -> None:
        if isinstance(reason.__cause__, ExpressionError):
            self._doubts.append(reason.__cause__)

    def query(self, tree: exp.Expr, commons: Commons) -> PlannedSource:
        for attempt in (self._plan_supported, self._plan_as_text):
            try:
                return attempt(tree, commons)
            except UnsupportedSql as reason:
                self._record_doubt(reason)
        return self._rest.plan_as_text(tree, commons)

    def _plan_as_text(self, tree: exp.Expr, commons: Commons) -> PlannedSource:
        return self._rest.plan_partial_select(tree, add_commons(tree, commons))

    def _plan_supported(self, tree: exp.Expr, commons: Commons) -> PlannedSource:
        commons = add_commons(tree, commons)
        match tree:
            case exp.Select():
                return self._plan_select(tree, commons)
            case exp.Union() if not tree.args.get("distinct"):
                return self._finish(tree, self._plan_union(tree, commons))
            case exp.Union():
                return self._finish(tree, _drop_duplicates(self._plan_union(tree, commons)))
            case exp.Intersect() | exp.Except():
                return self._finish(tree, self._plan_set_difference(tree, commons))
            case exp.Subquery(this=exp.Query() as inner):
                check_clauses(tree, {"this", "with_", "order", "limit", "offset"})
                return self._finish(tree, self.query(inner, commons))
            case _:
                raise UnsupportedSql(tree.key)

    # --- SELECT -------------------------------------------------------------------------------------------------------

    def _plan_select(self, tree: exp.Select, commons: Commons) -> PlannedSource:
        check_clauses(tree, _SUPPORTED_CLAUSES)
        if tree.args.get("from_") is None:
            raise UnsupportedSql("no FROM")
        node, scope = plan_from(self, tree, commons)
        check_conditions(tree, scope)
        expand_argument_stars(tree, scope)
        where = tree.args.get("where")
        if where is not None:
            node = add_where(self, node, scope, where.this, commons)
        beside = ScalarSubqueries(self, commons)
        tree = beside.replace_subqueries(tree)
        items = self._expand_items(tree, scope)
        if has_aggregates(tree):
            return self._plan_grouped(tree, node, scope, items, beside)
        node = beside.join_to(node)
        scope = scope.with_fields(beside.fields) if beside.fields else scope
        fields: list[Field] = []
        for item in items:
            value = item.value if item.tree is None else self._resolve(item.tree, scope.with_aliases(fields))
            assert value is not None
            fields.append(Field(item.label, value, type_of(value)))
        if tree.args.get("distinct") is not None:
            return self._plan_distinct(tree, node, fields)
        keys = [self._plan_sort_key(each, fields, scope) for each in _get_sort_items(tree)]
        return self._add_projection(self._add_sort_and_limit(tree, node, keys), fields)

    def _resolve(self, tree: exp.Expr, scope: Scope) -> Expr:
        return scope.resolve_expression(tree, self.now)

    def _plan_grouped(
        self, tree: exp.Select, node: Node, scope: Scope, items: Sequence[_Item], beside: ScalarSubqueries
    ) -> PlannedSource:
        grouping = Grouping(scope, self.column_ids, self.now)
        grouping.add_joined_values(beside.fields)
        self._add_grouping_keys(tree, grouping, scope, items)
        fields: list[Field] = []
        for item in items:
            if item.tree is None:
                assert item.value is not None
                value = grouping.rewrite_over_groups(item.value)
            else:
                value = grouping.resolve(item.tree, fields)
            fields.append(Field(item.label, value, type_of(value)))
        having = tree.args.get("having")
        kept = None
        if having is not None:
            refuse_ambiguous_alias(having.this, fields, scope)
            kept = grouping.resolve(having.this, fields)
        keys = []
        is_distinct = tree.args.get("distinct") is not None
        if not is_distinct:
            keys = [self._plan_sort_key(each, fields, scope, grouping) for each in _get_sort_items(tree)]
        node = beside.join_to(Aggregate(node, tuple(grouping.keys), tuple(grouping.calls)))
        if kept is not None:
            node = Filter(node, kept)
        if is_distinct:
            return self._plan_distinct(tree, node, fields)
        return self._add_projection(self._add_sort_and_limit(tree, node, keys), fields)

    def _add_grouping_keys(self, tree: exp.Select, grouping: Grouping, scope: Scope, items: Sequence[_Item]) -> None:
        group = tree.args.get("group")
        if group is None:
            return
        check_clauses(group, {"expressions"})
        for each in group.expressions:
            item = None
            if (position := parse_position(each)) is not None:
                item = items[position - 1] if 0 < position <= len(items) else None
                if item is None:
                    raise UnsupportedSql(f"no column {position}")
            elif isinstance(each, exp.Column) and not each.table and scope.find((each.name,)) is None:
                item = next((item for item in items if item.label.casefold() == each.name.casefold()), None)
            if item is None:
                grouping.add_key(self._resolve(each, scope), each.name or "key")
            elif item.tree is None:
                assert item.value is not None
                grouping.add_key(item.value, item.label)
            else:
                grouping.add_key(self._resolve(item.tree, scope), item.label)

    def _plan_distinct(self, tree: exp.Select, node: Node, fields: Sequence[Field]) -> PlannedSource:
        check_clauses(tree.args["distinct"], set())
        return self._finish(tree, _drop_duplicates(self._add_projection(node, fields)))

    def _expand_items(self, tree: exp.Select, scope: Scope) -> list[_Item]:
        found: list[_Item] = []
        for each in tree.expressions:
            match each:
                case exp.Star():
                    found += _expand_star(each, scope.expand_star())
                case exp.Column(this=exp.Star() as star):
                    parts = [
                        each.args[key].name for key in ("catalog", "db", "table") if each.args.get(key) is not None
                    ]
                    inner = [] if any(star.args.values()) else scope.expand_struct_star(parts)
                    found += [_Item(name, tree) for name, tree in inner] or _expand_star(
                        star, scope.expand_relation_star(parts)
                    )
                case exp.Alias():
                    found.append(_Item(each.alias, each.this))
                case exp.Aliases():
                    raise UnsupportedSql("several names for one expression")
                case _:
                    found.append(_Item(make_label(each, scope), each))
        return found

    def _add_projection(self, node: Node, fields: Sequence[Field]) -> PlannedSource:
        outputs: list[Named] = []
        used: set[str] = set()
        named: list[Field] = []
        for field in fields:
            match field.value:
                case Column((column_id,)) if column_id not in used:
                    pass
                case _:
                    column_id = self.column_ids.allocate(field.name)
            used.add(column_id)
            outputs.append(Named(column_id, field.value))
            named.append(Field.of(field.name, column_id, field.type))
        names = [output.name for output in get_outputs(node)]
        if names == [each.name for each in outputs] and all(each.is_forwarded for each in outputs):
            return PlannedSource(node, tuple(named))
        return PlannedSource(Project(node, tuple(outputs)), tuple(named))

    # --- Order and limit ----------------------------------------------------------------------------------------------

    def _plan_sort_key(
        self, ordered: exp.Ordered, fields: Sequence[Field], scope: Scope, grouping: Grouping | None = None
    ) -> SortKey:
        """Return a sort key over the columns below the projection. SELECT aliases precede source columns."""
        check_clauses(ordered, {"this", "desc", "nulls_first"})
        tree = ordered.this
        found = None
        if (position := parse_position(tree)) is not None:
            if not 0 < position <= len(fields):
                raise UnsupportedSql(f"no column {position}")
            found = fields[position - 1].value
        elif isinstance(tree, exp.Column) and not tree.table:
            meant = {field.value for field in fields if field.name == tree.name}
            meant = meant or {field.value for field in fields if field.name.casefold() == tree.name.casefold()}
            if len(meant) > 1:
                raise UnsupportedSql(f"{tree.name} has several meanings")
            found = meant.pop() if meant else None
        elif isinstance(tree, exp.Var):
            raise UnsupportedSql("ORDER BY ALL")
        if found is None:
            refuse_ambiguous_alias(tree, fields, scope)
            within = scope.with_aliases(fields)
            found = self._resolve(tree, within) if grouping is None else grouping.resolve(tree, fields)
        if not is_deterministic(found):
            raise UnsupportedSql("a sort key that is not deterministic")
        refuse_maps([type_of(found)], "ORDER BY compares values")
        return SortKey(found, bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first")))

    def _add_sort_and_limit(self, tree: exp.Expr, node: Node, keys: Sequence[SortKey]) -> Node:
        """Add the sort and the limit of a query to a node."""
        count, offset = self._parse_limit_and_offset(tree)
        if keys and count is not None and not offset:
            return TopN(node, tuple(keys), count)
        node = Sort(node, tuple(keys)) if keys else node
        return node if count is None and not offset else Limit(node, UNLIMITED if count is None else count, offset)

    def _parse_limit_and_offset(self, tree: exp.Expr) -> tuple[int | None, int]:
        limit, offset = tree.args.get("limit"), tree.args.get("offset")
        if limit is not None:
            check_clauses(limit, {"expression"})
        if offset is not None:
            check_clauses(offset, {"expression"})
        is_all = limit is not None and limit.expression.name.upper() == "ALL"
        count = None if limit is None or is_all else _parse_row_count(limit.expression)
        return count, 0 if offset is None else _parse_row_count(offset.expression)

    def _finish(self, tree: exp.Expr, planned: PlannedSource) -> PlannedSource:
        """Add the sort and the limit to a plan that already has its columns: a set operation or DISTINCT."""
        scope = Scope().with_fields(planned.fields)
        keys = [self._plan_sort_key(each, planned.fields, scope) for each in _get_sort_items(tree)]
        return PlannedSource(self._add_sort_and_limit(tree, planned.node, keys), planned.fields)

    # --- Set operations -----------------------------------------------------------------------------------------------

    def _plan_union(self, tree: exp.Union, commons: Commons) -> PlannedSource:
        _check_set_clauses(tree)
        sources = [self.query(tree.expression, commons)]
        left = tree.this
        own = ("distinct", "with_", *exp.QUERY_MODIFIERS)
        while type(left) is exp.Union and not any(left.args.get(key) for key in own):
            _check_set_clauses(left)
            sources.append(self.query(left.expression, commons))
            left = left.this
        sources.append(self.query(left, commons))
        sources.reverse()
        width = len(sources[0].fields)
        if any(len(source.fields) != width for source in sources):
            raise UnsupportedSql("a union of different widths")
        columns = []
        for index, field in enumerate(sources[0].fields):
            types = {source.fields[index].type for source in sources}
            columns.append(Output(self.column_ids.allocate(field.name), types.pop() if len(types) == 1 else None))
        names = [field.name for field in sources[0].fields]
        nodes = tuple(self._add_projection(source.node, source.fields).node for source in sources)
        fields = (Field.of(name, each.name, each.type) for name, each in zip(names, columns, strict=True))
        return PlannedSource(Union(nodes, tuple(columns)), tuple(fields))

    def _plan_set_difference(self, tree: exp.SetOperation, commons: Commons) -> PlannedSource:
        _check_set_clauses(tree)
        sides = [self.query(each, commons) for each in (tree.this, tree.expression)]
        refuse_maps([field.type for field in sides[0].fields], f"{tree.key.upper()} compares rows")
        column_ids = [self.column_ids.allocate(field.name) for field in sides[0].fields]
        return self._rest.set_operation(type(tree), sides, column_ids, distinct=bool(tree.args.get("distinct")))

    def values(self, tree: exp.Values) -> PlannedSource:
        return self._rest.values(tree)


def _drop_duplicates(planned: PlannedSource) -> PlannedSource:
    refuse_maps([field.type for field in planned.fields], "DISTINCT and set operations compare rows")
    keys = [Named(output.name, output.column) for output in get_outputs(planned.node)]
    return PlannedSource(Aggregate(planned.node, tuple(keys), ()), planned.fields)


def _check_set_clauses(tree: exp.Expr) -> None:
    check_clauses(tree, {"this", "expression", "distinct", "with_", "order", "limit", "offset"})


def _get_sort_items(tree: exp.Expr) -> list[exp.Ordered]:
    order = tree.args.get("order")
    if order is None:
        return []
    check_clauses(order, {"expressions"})
    return list(order.expressions)


def _parse_row_count(tree: exp.Expr) -> int:
    if not isinstance(tree, exp.Literal) or tree.is_string or not tree.name.isdecimal():
        raise UnsupportedSql("a limit that is not a number")
    return int(tree.name)


def _expand_star(star: exp.Star, fields: Sequence[Field]) -> list[_Item]:
    check_clauses(star, {"except_"})
    excepted = star.args.get("except_") or ()
    left_out = {each.name.casefold() for each in excepted}
    if not left_out <= {field.name.casefold() for field in fields}:
        # The engine will reject it and explain why.
        raise UnsupportedSql("a star with EXCEPT of an unknown column")
    return [_Item(field.name, None, field.value) for field in fields if field.name.casefold() not in left_out]


def make_label(tree: exp.Expr, scope: Scope) -> str:
    """Return the label of an item without an alias: the name of its column or field, or its text."""
    if isinstance(tree, exp.Column | exp.Dot):
        for top, parts in find_references(exp.Paren(this=tree.copy())):
            found = scope.find(parts) if isinstance(top.parent, exp.Paren) else None
            return parts[-1] if found is None or found[1] else found[0].name
    return to_sql_text(tree)


def refuse_ambiguous_alias(tree: exp.Expr, fields: Sequence[Field], scope: Scope) -> None:
    """Raise `UnsupportedSql` if a name is both a source column and another value's alias: engines disagree on it."""
    for column in tree.find_all(exp.Column):
        meant = {field.value for field in fields if field.name.casefold() == column.name.casefold()}
        found = scope.find((column.name,)) if meant and not column.table else None
        if found is not None and {found[0].value} != meant:
            raise UnsupportedSql(f"{column.name} has two meanings")

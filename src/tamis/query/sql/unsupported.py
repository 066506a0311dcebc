"""Unsupported SQL, which stays a syntax tree: windows, lateral views, subqueries in expressions, grouping sets, …

In the tree each table is replaced by its own plan. The plan has only the columns that the query mentions and, where
outer joins allow it, the conditions on that table alone, so that pruning works below the tree. Subqueries that can be
planned on their own are planned. The conditions stay in the tree as well: they are copied, not moved.

    SELECT rank() OVER (ORDER BY o.amount) FROM orders o WHERE o.day = DATE '2024-01-01'

    SELECT rank() OVER (ORDER BY o.amount)
    FROM (SELECT `orders.amount` AS `amount`, `orders.day` AS `day` FROM `input_1`) AS o WHERE o.day = DATE '2024-01-01'
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from sqlglot import exp

from tamis.expr.functions.table import Function, find_arithmetic_operator, find_spark_function, may_fail
from tamis.expr.nodes import Column, Expr, and_
from tamis.expr.sql.syntax import to_sql_text
from tamis.query.plan.column_ids import is_deterministic
from tamis.query.plan.nodes import Filter, Named, Node, Output, Project, Sql, Values
from tamis.query.sql.scopes import (
    Field,
    Relation,
    Scope,
    UnsupportedSql,
    find_references,
    make_column_tree,
    make_hidden_name,
    name_fields,
    refuse_case_collisions,
)
from tamis.query.sql.sources import (
    Commons,
    PlannedSource,
    QueryPlanner,
    get_table_parts,
    has_plain_name,
    is_common,
    plan_from,
    plan_table,
)
from tamis.query.sql.trees import (
    find_filterable_tables,
    find_inner_commons,
    has_free_star,
    may_have_several_columns,
    shorten_names,
    split_block,
    split_conjuncts,
)
from tamis.types import SIGNED_TYPES, is_binary, is_formatted_differently


@dataclass
class _Inputs:
    """The plans that unsupported SQL reads from."""

    mentioned_names: Collection[str]
    """The names in the whole query, which must not be among the generated names."""
    generated_names: list[str]
    """All names generated for the query."""
    is_plain: bool = False
    """Whether each table is read as it is, without conditions, and no subquery is planned on its own."""
    found: list[tuple[str, Node]] = field(default_factory=list)

    def add(self, node: Node) -> exp.Table:
        number = len(self.generated_names) + 1
        while f"input_{number}" in self.mentioned_names:
            number += 1
        name = f"input_{number}"
        self.generated_names.append(name)
        self.found.append((name, node))
        return exp.Table(this=exp.to_identifier(name, quoted=True))

    def name_of_common(self) -> str:
        """Return a new name for a common table expression, with spaces so that it is not the name of a table."""
        name = f"common {len(self.generated_names) + 1} of the query"
        self.generated_names.append(name)
        return name


_NO_PLAN = Values(pa.table({}), ())
_MORE_COLUMNS = ("joins", "laterals", "pivots", "sample")
"""Clauses of a query in brackets that change its columns."""


class UnsupportedSqlPlanner:
    """Makes `Sql` nodes for unsupported SQL."""

    def __init__(self, queries: QueryPlanner, statement: exp.Expr) -> None:
        self._queries = queries
        self._statement = statement
        self._generated_names: list[str] = []

    # --- Blocks -------------------------------------------------------------------------------------------------------

    def rewrite(
        self, tree: exp.Expr, commons: Commons, *, plain: bool = False
    ) -> tuple[exp.Expr, tuple[tuple[str, Node], ...]]:
        """Return the tree of a query over inputs, and the plans that it reads from."""
        root = exp.Paren(this=tree.copy())
        inputs = _Inputs(self._mentioned_names, self._generated_names, plain)
        self._rewrite(root.this, commons, {}, inputs)
        return root.this.pop(), tuple(inputs.found)

    def make_partial_select(
        self, tree: exp.Expr, commons: Commons
    ) -> tuple[exp.Expr, tuple[tuple[str, Node], ...], tuple[str, ...]]:
        """Return a SELECT over one plan of its FROM and WHERE, the plan, and the names of the plan's columns."""
        inputs = self._make_inputs()
        # The tree needs the name before the plan exists.
        table = inputs.add(_NO_PLAN)
        found = make_partial_select(self._queries, tree, commons, table)
        return found.tree, ((table.name, found.node),), found.names

    def plan_partial_select(self, tree: exp.Expr, commons: Commons) -> PlannedSource:
        """Return the result of `make_partial_select` as a node."""
        return self._wrap(*self.make_partial_select(tree, commons))

    def plan_as_text(self, tree: exp.Expr, commons: Commons) -> PlannedSource:
        """Return a query as a node; raise `UnsupportedSql` if the names of its columns are unknown."""
        names = self.names(tree)
        if not self._is_closed(tree, commons):
            raise UnsupportedSql("a correlated subquery")
        return self._wrap(*self.rewrite(tree, commons), names)

    def _wrap(self, tree: exp.Expr, inputs: tuple[tuple[str, Node], ...], names: Sequence[str]) -> PlannedSource:
        column_ids = [self._queries.column_ids.allocate(name) for name in names]
        return _make_sql_node(_select_all(exp.Subquery(this=tree), "rest", column_ids), inputs, names, column_ids)

    def set_operation(
        self, kind: type[exp.SetOperation], sides: Sequence[PlannedSource], column_ids: Sequence[str], *, distinct: bool
    ) -> PlannedSource:
        """Return INTERSECT or EXCEPT of two plans as a node."""
        if len(sides[0].fields) != len(sides[1].fields):
            raise UnsupportedSql("sides of different widths")
        inputs = self._make_inputs()
        selects = []
        for side in sides:
            columns = [exp.alias_(make_field_tree(each), name, quoted=True)
                       for each, name in zip(side.fields, column_ids, strict=True)]  # fmt: skip
            selects.append(exp.Select(expressions=columns, from_=exp.From(this=inputs.add(side.node))))
        names = [each.name for each in sides[0].fields]
        tree = kind(this=selects[0], expression=selects[1], distinct=distinct, by_name=False)
        return _make_sql_node(tree, tuple(inputs.found), names, column_ids)

    def values(self, tree: exp.Values) -> PlannedSource:
        rows = tree.expressions
        width = len(rows[0].expressions) if isinstance(rows[0], exp.Tuple) else 1
        if any((len(row.expressions) if isinstance(row, exp.Tuple) else 1) != width for row in rows):
            raise UnsupportedSql("rows of different widths")
        if next(tree.find_all(exp.Query, exp.Column), None) is not None:
            raise UnsupportedSql("rows that are not constant")
        names = [f"col{index + 1}" for index in range(width)]
        column_ids = [self._queries.column_ids.allocate(name) for name in names]
        return _make_sql_node(_select_all(tree.copy(), "given", column_ids), (), names, column_ids)

    def _make_inputs(self) -> _Inputs:
        return _Inputs(self._mentioned_names, self._generated_names)

    def _is_closed(self, tree: exp.Expr, commons: Commons) -> bool:
        """Return whether a query uses only names of its own sources. If the answer is wrong, the engine reports it."""
        tables = list(tree.find_all(exp.Table))
        aliases = list(tree.find_all(exp.TableAlias))
        inner = {each.name.casefold() for each in (*tables, *aliases, *tree.find_all(exp.CTE))}
        inner |= {each.alias.casefold() for each in tree.find_all(exp.Alias)}
        inner |= {column.name.casefold() for each in aliases for column in each.columns}
        own_commons = find_inner_commons(tree)
        has_known_columns = True
        for table in tables:
            if is_common(table, commons) or table.name.casefold() in own_commons:
                # Its column names are not resolved here.
                has_known_columns = False
            elif has_plain_name(table):
                inner |= {each.name.casefold() for each in plan_table(self._queries, table, commons).fields}
        return all(
            parts[0].casefold() in inner or (len(parts) == 1 and not has_known_columns)
            for _, parts in find_references(tree)
        )

    def names(self, tree: exp.Expr) -> list[str]:
        """Return the column names of a query; raise `UnsupportedSql` if only the engine knows them."""
        while isinstance(tree, exp.SetOperation | exp.Subquery):
            if isinstance(tree, exp.Subquery) and any(tree.args.get(key) for key in _MORE_COLUMNS):
                raise UnsupportedSql("a query in brackets with joins")
            tree = tree.this
        if not isinstance(tree, exp.Select):
            raise UnsupportedSql(f"the names of {tree.key}")
        names = []
        for each in tree.expressions:
            if isinstance(each, exp.Aliases) or has_free_star(each):
                raise UnsupportedSql("names that the engine gives")
            if may_have_several_columns(each):
                raise UnsupportedSql("columns of a function")
            names.append(_name_item(each))
        return names

    # --- Text ---------------------------------------------------------------------------------------------------------

    def _rewrite(self, tree: exp.Expr, commons: Commons, kept: Mapping[str, str], inputs: _Inputs) -> None:
        """Replace tables and subqueries by inputs. `kept` maps the common table expressions of the text to new names.

        No table has such a name, so an engine cannot confuse them with one.
        """
        clause = tree.args.get("with_")
        for each in [] if clause is None else clause.expressions:
            and_itself = {**kept, each.alias.casefold(): inputs.name_of_common()}
            is_recursive = each.parent.recursive
            self._rewrite_nested(each.this, commons, and_itself if is_recursive else kept, inputs)
            kept = and_itself
            alias = each.args["alias"]
            alias.set("this", exp.to_identifier(kept[each.alias.casefold()], quoted=True))
        tables, nested = split_block(tree)
        for query in nested:
            self._rewrite_nested(query, commons, kept, inputs)
        conditions = {} if inputs.is_plain else self._find_conditions(tree, tables, commons, kept)
        for table in tables:
            if table.args.get("db") is not None and not table.alias and has_plain_name(table):
                shorten_names(tree, get_table_parts(table))
            self._replace_table(table, commons, kept, inputs, conditions.get(id(table)))

    def _rewrite_nested(self, query: exp.Expr, commons: Commons, kept: Mapping[str, str], inputs: _Inputs) -> None:
        uses_text = any(table.name.casefold() in kept for table in query.find_all(exp.Table))
        if not inputs.is_plain and not uses_text:
            try:
                planned = self._queries.query(query, commons)
            except UnsupportedSql:
                pass
            else:
                query.replace(_make_select(inputs.add(planned.node), planned.fields))
                return
        if commons:
            commons = {name: each for name, each in commons.items() if name not in kept}
        self._rewrite(query, commons, kept, inputs)

    def _replace_table(
        self, table: exp.Table, commons: Commons, kept: Mapping[str, str], inputs: _Inputs, condition: _Condition | None
    ) -> None:
        if not has_plain_name(table):
            return
        if table.args.get("db") is None and table.name.casefold() in kept:
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
            table.set("this", exp.to_identifier(kept[table.name.casefold()], quoted=True))
            return
        if condition is not None:
            planned, predicate = condition.planned, condition.predicate
        else:
            planned, predicate = plan_table(self._queries, table, commons), None
        node = planned.node if predicate is None else Filter(planned.node, predicate)
        fields = planned.fields if inputs.is_plain or self._needs_all else self._drop_unmentioned(planned.fields)
        refuse_case_collisions(fields)
        if len(fields) < len(planned.fields):
            node = Project(node, tuple(Named(_get_column_id(each), each.value) for each in fields))
        source = inputs.add(node)
        # TABLESAMPLE precedes the alias of its source.
        source.set("sample", table.args.get("sample"))
        replaced = exp.Subquery(this=_make_select(source, fields))
        for key, value in table.args.items():
            if key not in ("this", "db", "catalog", "sample") and value:
                replaced.set(key, value)
        if not table.alias:
            replaced.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        table.replace(replaced)

    # --- Columns and conditions of tables -----------------------------------------------------------------------------

    @cached_property
    def _mentioned_names(self) -> frozenset[str]:
        return frozenset(each.name.casefold() for each in self._statement.find_all(exp.Identifier))

    @cached_property
    def _needs_all(self) -> bool:
        """Return whether the query may read columns that it does not mention."""
        statement = self._statement
        return (
            has_free_star(statement)
            or any(join.args.get("method") for join in statement.find_all(exp.Join))
            or next(statement.find_all(exp.Pivot), None) is not None
            or any(call.name.lower() in ("columns", "unnest") for call in statement.find_all(exp.Anonymous))
            # A table name as a column is its whole row.
            or any(
                not column.table and column.name.casefold() in self._source_names
                for column in statement.find_all(exp.Column)
            )
        )

    @cached_property
    def _source_names(self) -> frozenset[str]:
        """The names of all sources of rows."""
        found = self._statement.find_all(exp.Table, exp.Subquery, exp.CTE, exp.Lateral, exp.Values)
        return frozenset(name.casefold() for each in found for name in (each.alias, each.name) if name)

    def _drop_unmentioned(self, fields: Sequence[Field]) -> tuple[Field, ...]:
        return tuple(each for each in fields if each.name.casefold() in self._mentioned_names)

    def _find_conditions(
        self, tree: exp.Expr, tables: Sequence[exp.Table], commons: Commons, kept: Mapping[str, str]
    ) -> dict[int, _Condition]:
        """Return for each table of a SELECT the conditions of WHERE on that table alone."""
        where = tree.args.get("where")
        if not isinstance(tree, exp.Select) or where is None or tree.args.get("from_") is None:
            return {}
        sources = find_filterable_tables(tree)
        joins = tree.args.get("joins") or ()
        has_merged = any(join.args.get("using") or join.args.get("method") for join in joins)
        scopes: dict[int, tuple[PlannedSource, Relation]] = {}
        for table in sources:
            if not any(each is table for each in tables) or table.name.casefold() in kept:
                continue
            if not has_plain_name(table):
                continue  # a table function
            planned = plan_table(self._queries, table, commons)
            name = (table.alias,) if table.alias else get_table_parts(table)
            scopes[id(table)] = planned, Relation(name, planned.fields)
        together = Scope(tuple(relation for _, relation in scopes.values()))
        found: dict[int, list[Expr]] = {}
        for conjunct in split_conjuncts(where.this):
            owner = self._find_owner(conjunct, together, scopes, has_merged)
            if owner is None:
                continue
            try:
                predicate = Scope((scopes[owner][1],)).resolve_expression(conjunct, self._queries.now)
            except UnsupportedSql:
                continue
            if is_deterministic(predicate) and not may_fail(predicate):
                found.setdefault(owner, []).append(predicate)
        return {key: _Condition(planned, and_(*found[key]) if key in found else None)
                for key, (planned, _) in scopes.items()}  # fmt: skip

    def _find_owner(
        self,
        conjunct: exp.Expr,
        together: Scope,
        scopes: Mapping[int, tuple[PlannedSource, Relation]],
        has_merged: bool,
    ) -> int | None:
        """Return the only table that a condition refers to; None if there are several, or if it is unclear."""
        if next(conjunct.find_all(exp.Query), None) is not None:
            return None
        owners: set[int | None] = set()
        try:
            for _, parts in find_references(conjunct):
                found = together.find(parts)
                is_bare = not any(
                    relation.is_called(parts[:count])
                    for relation in together.relations
                    for count in range(1, len(parts))
                )
                # `a.b` may be a column of a source outside of `together`.
                is_doubtful = is_bare and (has_merged or (len(parts) > 1 and parts[0].casefold() in self._source_names))
                if found is None or is_doubtful:
                    return None
                owners.add(next(key for key, (_, relation) in scopes.items() if found[0] in relation.fields))
        except UnsupportedSql:
            return None
        return owners.pop() if len(owners) == 1 else None


@dataclass(frozen=True, slots=True)
class _Condition:
    planned: PlannedSource
    predicate: Expr | None


def _get_column_id(field: Field) -> str:
    match field.value:
        case Column((column_id,)):
            return column_id
        case _:
            raise UnsupportedSql("a computed column")


def make_field_tree(field: Field) -> exp.Expr:
    return make_column_tree(_get_column_id(field))


def _make_select(table: exp.Table, fields: Sequence[Field]) -> exp.Select:
    columns = [exp.alias_(make_field_tree(each), each.name, quoted=True) for each in fields]
    return exp.Select(expressions=columns or [exp.Literal.number(1)], from_=exp.From(this=table))


def _select_all(source: exp.Expr, alias: str, columns: Sequence[str]) -> exp.Select:
    """Return a SELECT of all columns of a source, under new names."""
    names = [exp.to_identifier(name, quoted=True) for name in columns]
    source.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=names))
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=source))


def _make_sql_node(
    tree: exp.Expr, inputs: tuple[tuple[str, Node], ...], names: Sequence[str], column_ids: Sequence[str]
) -> PlannedSource:
    columns = tuple(Output(column_id) for column_id in column_ids)
    fields = tuple(Field.of(name, column_id, None) for name, column_id in zip(names, column_ids, strict=True))
    return PlannedSource(Sql(tree, inputs, columns), fields)


# --- A SELECT whose FROM and WHERE are planned while its other clauses are unsupported SQL: windows, lateral views,
#
# grouping sets, unknown functions. Those stay text, over one plan, with all names replaced by column ids.
#
#     SELECT o.id, rank() OVER (ORDER BY c.name) AS r FROM orders o JOIN customers c ON … WHERE o.day = …
#
#     SELECT `orders.id`, rank() OVER (ORDER BY `customers.name`) AS r FROM `input_1`


@dataclass(frozen=True, slots=True)
class PartialSelect:
    """A SELECT as text over one plan, and the names of its columns."""

    tree: exp.Select
    node: Node
    names: tuple[str, ...]


_TEXT_CLAUSES = {"expressions", "hint", "distinct", "group", "having", "qualify", "windows", "order", "limit", "offset",
                 "laterals", "sort", "cluster", "distribute"}  # fmt: skip
_PLANNED_CLAUSES = {"from_", "joins", "where", "with_"}


def make_partial_select(queries: QueryPlanner, tree: exp.Expr, commons: Commons, table: exp.Table) -> PartialSelect:
    """Return a SELECT as text over `table`, which is the plan of its FROM and WHERE."""
    if not isinstance(tree, exp.Select) or tree.args.get("from_") is None:
        raise UnsupportedSql("no SELECT over tables")
    if any(value and key not in _TEXT_CLAUSES | _PLANNED_CLAUSES for key, value in tree.args.items()):
        raise UnsupportedSql("a SELECT with an unsupported clause")
    node, scope = plan_from(queries, tree, commons)
    scopes = _add_views(scope, tree)
    node, remaining = _add_filter(queries, node, scope, scopes[-1], tree)
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
    used = _replace_names(select, scopes)
    outputs = [Named(column_id, value) for column_id, value in used.items()]
    return PartialSelect(select, Project(node, tuple(outputs)), tuple(names))


def _add_views(scope: Scope, select: exp.Select) -> list[Scope]:
    """Return the scope of each lateral view, which sees the views before it, and at last that of the other clauses."""
    scopes = [scope]
    for view in select.args.get("laterals") or ():
        alias = view.args.get("alias")
        if alias is None or not alias.columns:
            raise UnsupportedSql("a lateral view without names of columns")
        fields = tuple(Field(column.name, _IN_VIEW) for column in alias.columns)
        scopes.append(scopes[-1].merge_with(Scope((Relation((alias.name,), fields),))))
    return scopes


_IN_VIEW = Column((make_hidden_name("view"),), None)
"""The value of all columns of lateral views, which stay text."""


def _is_in_view(parts: Sequence[str], scope: Scope) -> bool:
    found = scope.find(parts)
    return found is not None and found[0].value == _IN_VIEW


def _add_filter(
    queries: QueryPlanner, node: Node, scope: Scope, with_views: Scope, tree: exp.Select
) -> tuple[Node, list[exp.Expr]]:
    """Add the conditions on tables to the plan; return also the other conditions, which use lateral view columns."""
    where = tree.args.get("where")
    known: list[Expr] = []
    others: list[exp.Expr] = []
    for each in [] if where is None else split_conjuncts(where.this):
        try:
            if not any(_is_in_view(parts, with_views) for _, parts in find_references(each)):
                known.append(scope.resolve_expression(each, queries.now))
                continue
        except UnsupportedSql:
            if next(each.find_all(exp.Query), None) is not None:
                raise
        others.append(each)
    return (Filter(node, and_(*known)) if known else node), others


def _name_item(item: exp.Expr) -> str:
    """Return the name of an item of a SELECT list."""
    match item:
        case exp.Alias() | exp.Column():
            return item.alias or item.name
        case exp.Dot(expression=exp.Identifier() as last):
            return last.name
        case _:
            return to_sql_text(item)


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
            case _:
                names.append(_name_item(each))
                found.append(each)
        for item in fields:
            match item.value:
                case Column((column_id,)):
                    # The qualifier marks a name that is a column id already.
                    found.append(exp.Column(this=exp.to_identifier(column_id, quoted=True), table=_MARK.copy()))
                    names.append(item.name)
                case _:
                    raise UnsupportedSql("a star over computed columns")
    select.set("expressions", found)
    return names


_MARK = exp.to_identifier("\x00symbol", quoted=True)


def _has_subquery(select: exp.Select) -> bool:
    return any(node is not select for node in select.find_all(exp.Query))


def _replace_names(select: exp.Select, scopes: Sequence[Scope]) -> dict[str, Expr]:
    """Replace names by column ids in place; return the column ids in use, with their values.

    `scopes` are those of the lateral views, and that of the other clauses.
    """
    views = {id(column): scope for view, scope in zip(select.args.get("laterals") or (), scopes, strict=False)
             for column in view.find_all(exp.Column)}  # fmt: skip
    aliases = {each.alias.casefold() for each in select.expressions if isinstance(each, exp.Alias)}
    in_order = {id(column) for key in ("order", "sort", "cluster", "distribute") if select.args.get(key) is not None
                for column in select.args[key].find_all(exp.Column)}  # fmt: skip
    after = {id(column) for key in ("having", "qualify") if select.args.get(key) is not None
             for column in select.args[key].find_all(exp.Column)}  # fmt: skip
    used: dict[str, Expr] = {}
    found_chains = [(top, parts, column, views.get(id(column), scopes[-1]))
                    for top, parts in find_references(select) for column in top.find_all(exp.Column)]  # fmt: skip
    operand_types = {id(top): _find_operand_type(top, parts, scope) for top, parts, _, scope in found_chains}
    for top, parts, column, scope in found_chains:
        if column.args.get("table") == _MARK:
            column_id = column.name
            used[column_id] = Column((column_id,), scope.columns.get(column_id))
            column.set("table", None)
            continue
        is_alias = len(parts) == 1 and parts[0].casefold() in aliases
        if (is_alias and id(column) in in_order) or _is_in_view(parts, scope):
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
                elif around is not None and around.joins_texts and is_formatted_differently(field.type):
                    named = exp.cast(named, "string")
                elif around is not None and around.name == "length" and is_binary(field.type):
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


def _is_mixing(node: exp.Expr) -> bool:
    """Return whether an engine finds a common type for the operands of a node."""
    if not isinstance(node, exp.Anonymous):
        return isinstance(node, _MIXING)
    row = find_spark_function(node.name)
    return (row is not None and row.alike is not None) or find_arithmetic_operator(node.name) is not None


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
    if _is_mixing(parent) and pa.types.is_float32(data_type) and not _has_only_floats(parent, scope):
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
        case exp.Anonymous(expressions=arguments):
            row = find_spark_function(parent.name)
            # Without the condition of `if`. The results of `decode` count too, as those of CASE do.
            first = 0 if row is None or row.alike is None else min(row.alike(len(arguments)), default=0)
            return list(arguments[first:])
        case _:
            return list(parent.iter_expressions())


def _is_float(value: exp.Expr, scope: Scope) -> bool:
    if isinstance(value, exp.Null):
        return True
    found = scope.find([value.name]) if isinstance(value, exp.Column) and not value.table else None
    data_type = None if found is None else found[0].type
    return data_type is not None and bool(pa.types.is_float32(data_type))


def _find_function_around(tree: exp.Expr) -> Function | None:
    """Return the function whose argument a value is. DuckDB's function may differ from Spark's for some types."""
    match tree.parent:
        case exp.DPipe():
            return find_spark_function("concat")
        case exp.Anonymous() as call:
            return find_spark_function(call.name)
        case _:
            return None

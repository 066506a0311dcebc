"""Aggregation in a query: grouping keys, aggregate calls, and expressions over both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product

import pyarrow as pa
from sqlglot import exp

from tamis.errors import TypeMismatch
from tamis.expr.functions.aggregates import Kind, find_aggregate, is_aggregate, is_of_kind
from tamis.expr.functions.table import type_of
from tamis.expr.nodes import Column, Expr, find_columns, fold, get_operands, replace_args
from tamis.expr.sql.refusals import make_unsupported_syntax_error
from tamis.expr.sql.syntax import to_sql_text
from tamis.query.plan.column_ids import ColumnIds, is_deterministic
from tamis.query.plan.nodes import AggregateCall, Named
from tamis.query.sql.scopes import (
    Field,
    QueryTime,
    Scope,
    UnsupportedSql,
    make_column_tree,
    make_hidden_name,
)


def has_aggregates(tree: exp.Select) -> bool:
    if tree.args.get("group") is not None or tree.args.get("having") is not None:
        return True
    order = tree.args.get("order")
    parts = [*tree.expressions, *(order.expressions if order is not None else ())]
    return any(_find_calls(part) for part in parts)


def _find_calls(tree: exp.Expr) -> list[exp.Expr]:
    """Return the aggregate calls in a tree, each with its FILTER."""
    found: list[exp.Expr] = []
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Query):
            continue
        is_filtered = isinstance(node, exp.Filter) and isinstance(node.this, exp.Anonymous)
        if is_filtered or (isinstance(node, exp.Anonymous) and is_of_kind(node.name, Kind.AGGREGATE)):
            found.append(node)
            continue
        stack += reversed(list(node.iter_expressions()))
    return found


class Grouping:
    """Collects the keys and calls of an Aggregate node while the expressions above it are resolved."""

    def __init__(self, scope: Scope, column_ids: ColumnIds, now: QueryTime) -> None:
        self._scope = scope
        self._column_ids = column_ids
        self._now = now
        self.keys: list[Named] = []
        self.calls: list[AggregateCall] = []
        self._key_columns: dict[Expr, Column] = {}
        self._beside: list[Field] = []

    def add_joined_values(self, fields: Sequence[Field]) -> None:
        """Add values that are joined to each group: those of scalar subqueries."""
        self._beside += fields

    def add_key(self, value: Expr, label: str) -> None:
        if value in self._key_columns:
            return
        if not find_columns(value) or not is_deterministic(value):
            raise UnsupportedSql("a grouping key that is constant or not deterministic")
        data_type = type_of(value)
        match value:
            case Column((column_id,)):
                pass
            case _:
                column_id = self._column_ids.allocate(label)
        self.keys.append(Named(column_id, value))
        self._key_columns[value] = Column((column_id,), type=data_type)

    def resolve(self, tree: exp.Expr, aliases: Sequence[Field]) -> Expr:
        """Return an expression over the groups."""
        root = exp.Paren(this=tree.copy())
        for call in _find_calls(root):
            call.replace(make_column_tree(make_hidden_name(self._add_call(call))))
        scope = self._scope.with_fields([*self._make_fields(), *self._beside]).with_aliases(aliases)
        return self.rewrite_over_groups(scope.resolve_expression(root.this, self._now))

    def _make_fields(self) -> list[Field]:
        """Return the columns of the groups under internal names."""
        keys = [(key.name, type_of(key.expr)) for key in self.keys]
        calls = [(call.name, call.type) for call in self.calls]
        return [Field.of(make_hidden_name(name), name, data_type) for name, data_type in (*keys, *calls)]

    def rewrite_over_groups(self, value: Expr) -> Expr:
        """Rewrite a value over the columns of the sources to one over the groups."""

        def combine(node: Expr, args: tuple[Expr, ...]) -> Expr:
            return self._key_columns.get(node) or replace_args(node, args)

        found = fold(value, combine, lambda node: () if node in self._key_columns else get_operands(node))
        known = {*(key.name for key in self.keys), *(call.name for call in self.calls)}
        known |= {field.value.path[0] for field in self._beside if isinstance(field.value, Column)}
        for column in find_columns(found):
            if column.path[0] not in known:
                raise UnsupportedSql(f"{column.name} is neither a key nor inside of an aggregate function")
        return found

    def _add_call(self, tree: exp.Expr) -> str:
        """Return the column id of a call, adding the call if it is new."""
        kept = None
        if isinstance(tree, exp.Filter):
            kept = self._scope.resolve_expression(tree.expression.this, self._now)
            tree = tree.this
        if not isinstance(tree, exp.Anonymous) or not is_of_kind(tree.name, Kind.AGGREGATE):
            raise UnsupportedSql("a FILTER of a function that is not an aggregate")
        function = tree.name.lower()
        given = tree.expressions
        distinct = len(given) == 1 and isinstance(given[0], exp.Distinct)
        if distinct:
            if given[0].args.get("on"):
                raise UnsupportedSql("DISTINCT ON")
            given = given[0].expressions
        if function == "count" and len(given) == 1 and isinstance(given[0], exp.Star) and not distinct:
            given = []
        if function == "count" and len(given) > 1:
            raise UnsupportedSql("a count of several columns")
        args = tuple(self._scope.resolve_expression(each, self._now) for each in given)
        row = find_aggregate(function)
        data_type = None if row is None else row.returns(type_of(args[0]) if args else None)
        wanted = AggregateCall("", function, args, distinct, kept, data_type)
        for known in self.calls:
            if replace(known, name="") == wanted:
                return known.name
        name = self._column_ids.allocate(function)
        self.calls.append(replace(wanted, name=name))
        return name


def has_map(data_type: pa.DataType | None) -> bool:
    """Return whether a type is a map or contains one."""
    if data_type is None:
        return False
    if pa.types.is_map(data_type):
        return True
    return any(has_map(data_type.field(index).type) for index in range(data_type.num_fields))


def refuse_maps(data_types: Sequence[pa.DataType | None], reason: str) -> None:
    """Raise if values that are compared contain a map, which has no order and no equality."""
    if any(map(has_map, data_types)):
        raise TypeMismatch(f"{reason}, and maps cannot be compared. Compare map_entries(m), or drop the column")


# --- Normalisation of GROUP BY: ALL becomes positions, and ROLLUP, CUBE and the like become one list of GROUPING SETS
#
#     GROUP BY a, ROLLUP (b, 2)    GROUP BY GROUPING SETS ((a, b, c), (a, b), (a))
#
# A key that is in no set is NULL in every row, like b in `GROUP BY a, b GROUPING SETS ((a))`.

MAX_GROUPING_SETS = 4096
"""The maximum number of grouping sets: those of a CUBE with 12 columns."""


def has_aggregate(tree: exp.Expr) -> bool:
    """Return whether an expression has an aggregate function that is not a window function."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Query):
            continue
        if isinstance(node, exp.Window):
            # Its arguments may be aggregates: sum(sum(x)) OVER ().
            inner = node.this
            while isinstance(inner, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
                inner = inner.this
            stack += [*inner.iter_expressions(), *(each for each in node.iter_expressions() if each is not node.this)]
            continue
        is_call = isinstance(node, exp.Anonymous) and is_aggregate(node.name)
        if is_call or (isinstance(node, exp.Any) and not isinstance(node.parent, exp.Binary)):
            return True
        stack += list(node.iter_expressions())
    return False


def _is_star(item: exp.Expr) -> bool:
    """Return whether an item is `*` or `t.*`. Of sqlglot's `is_star`, a subquery of all columns is one too."""
    return isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))


def parse_position(tree: exp.Expr) -> int | None:
    """Return the column position that a bare number in ORDER BY or GROUP BY means; None for other expressions."""
    is_position = isinstance(tree, exp.Literal) and not tree.is_string and tree.name.isdecimal()
    return int(tree.name) if is_position else None


def check_positions(select: exp.Select) -> None:
    """Raise if a position in ORDER BY or GROUP BY does not refer to a column."""
    items = select.expressions
    order, group = select.args.get("order"), select.args.get("group")
    has_star = any(map(_is_star, items))
    if group is not None and has_star and any(parse_position(each) for each in group.expressions):
        raise make_unsupported_syntax_error(
            group, "a position in GROUP BY cannot be combined with a *", "Name the columns"
        )
    if has_star or any(isinstance(each.unalias(), exp.Anonymous | exp.Aliases) for each in items):
        return  # a function may have several columns
    for each in order.expressions if order is not None else ():
        position = parse_position(each.this)
        if position is not None and not 0 < position <= len(items):
            raise make_unsupported_syntax_error(
                each, f"ORDER BY {position} is not a column position: the SELECT has {len(items)} columns"
            )


def normalise_groups(select: exp.Select) -> None:
    group = select.args.get("group")
    if group is None:
        return
    if group.args.get("all") and not group.expressions:
        _expand_group_by_all(select, group)
        return
    if group.args.get("all") is not None or group.args.get("totals"):
        raise make_unsupported_syntax_error(group, "GROUP BY accepts ALL, expressions, or grouping sets")
    kinds = (exp.GroupingSets, exp.Rollup, exp.Cube)
    has_sets = any(isinstance(each, kinds) for each in group.expressions)
    if any(isinstance(each, exp.Tuple) and not each.expressions for each in group.expressions):
        raise make_unsupported_syntax_error(group, "GROUP BY needs expressions", "Write GROUPING SETS (())")
    if has_sets or any(group.args.get(key) for key in ("grouping_sets", "rollup", "cube")):
        _GroupingSets(select, group).write()


def _expand_group_by_all(select: exp.Select, group: exp.Group) -> None:
    """Replace GROUP BY ALL by the positions of the columns without aggregate functions."""
    if any(_is_star(each) or isinstance(each, exp.Aliases) for each in select.expressions):
        return
    positions = [index + 1 for index, each in enumerate(select.expressions) if not has_aggregate(each)]
    numbers = [exp.Literal.number(position) for position in positions]
    select.set("group", exp.Group(expressions=numbers) if numbers else None)


_Set = tuple[exp.Expr, ...]


class _GroupingSets:
    """The grouping sets of a SELECT, each as a list of expressions."""

    def __init__(self, select: exp.Select, group: exp.Group) -> None:
        self._select = select
        self._group = group
        self._keys: dict[str, exp.Expr] = {}
        """All grouping expressions, in order of appearance."""

    def write(self) -> None:
        group = self._group
        named = [self._expand_element(each) for each in group.expressions]
        if group.args.get("grouping_sets"):
            # GROUP BY a, b GROUPING SETS (…): the expressions before only declare the keys.
            sets = [each for part in group.args["grouping_sets"] for each in self._expand_element(part)]
        else:
            for kind, expand in (("rollup", _expand_rollup), ("cube", _expand_cube)):
                if group.args.get(kind):
                    named = [expand([single[0] for single in named])]
            sets = _combine_sets(named)
        if len(sets) > MAX_GROUPING_SETS:
            raise make_unsupported_syntax_error(
                group, f"GROUP BY has {len(sets)} grouping sets, and at most {MAX_GROUPING_SETS} are supported"
            )
        used = {_canonicalise(key) for each in sets for key in each}
        self._replace_keys(used)
        tuples = [exp.Tuple(expressions=[key.copy() for key in each]) for each in sets]
        self._select.set("group", exp.Group(expressions=[exp.GroupingSets(expressions=tuples)]))

    def _expand_element(self, tree: exp.Expr) -> list[_Set]:
        match tree:
            case exp.GroupingSets():
                return [each for part in tree.expressions for each in self._expand_element(part)]
            case exp.Rollup():
                return _expand_rollup([self._expand_element(part)[0] for part in tree.expressions])
            case exp.Cube():
                return _expand_cube([self._expand_element(part)[0] for part in tree.expressions])
            case exp.Tuple():
                return [tuple(key for part in tree.expressions for key in self._expand_element(part)[0])]
            case exp.Paren():
                return self._expand_element(tree.this)
            case _:
                return [(self._add_key(tree),)]

    def _add_key(self, tree: exp.Expr) -> exp.Expr:
        position = parse_position(tree)
        if position is not None:
            items = self._select.expressions
            if not 0 < position <= len(items) or any(map(_is_star, items[:position])):
                raise make_unsupported_syntax_error(
                    tree, f"GROUP BY {position} is not a column position: the SELECT has {len(items)} columns"
                )
            tree = items[position - 1].unalias()
            if has_aggregate(tree):
                raise make_unsupported_syntax_error(
                    tree, f"GROUP BY {position} is the position of an aggregate function"
                )
        return self._keys.setdefault(_canonicalise(tree), tree)

    def _replace_keys(self, used: set[str]) -> None:
        """Normalise the uses of keys: one spelling, NULL for keys in no set, and arguments for `grouping_id`."""
        for part in self._iter_parts_above():
            for node in list(part.walk(prune=lambda each: isinstance(each, exp.Query))):
                if node.parent is None and node is not part:
                    continue  # inside of a replaced node
                self._normalise_use(node, used)

    def _iter_parts_above(self) -> Iterator[exp.Expr]:
        yield from list(self._select.expressions)
        for key in ("having", "qualify", "order"):
            if self._select.args.get(key) is not None:
                yield self._select.args[key]

    def _normalise_use(self, node: exp.Expr, used: set[str]) -> None:
        is_id = isinstance(node, exp.Column) and not node.table and node.name.lower() == "grouping__id"
        if is_id or (isinstance(node, exp.Anonymous) and node.name.lower() == "grouping_id" and not node.expressions):
            self._replace_node(node, self._make_grouping_id(used))
            return
        if isinstance(node, exp.Anonymous) and node.name.lower() in ("grouping", "grouping_id"):
            for each in node.expressions:
                if _canonicalise(each) not in self._keys:
                    raise make_unsupported_syntax_error(
                        node, f"{node.name} needs grouping expressions, and {to_sql_text(each)} is not one"
                    )
            if not all(_canonicalise(each) in used for each in node.expressions):
                raise make_unsupported_syntax_error(node, f"{node.name} needs expressions that are in a grouping set")
            return
        if isinstance(node, exp.Identifier | exp.Literal) or self._is_in_call(node):
            return
        name = _canonicalise(node)
        key = self._keys.get(name)
        if key is None:
            return
        if name not in used:
            never = exp.Filter(
                this=exp.Anonymous(this="any_value", expressions=[key.copy()]), expression=exp.Where(this=exp.false())
            )
            self._replace_node(node, never)
        elif node.sql() != key.sql():
            self._replace_node(node, key.copy())

    def _replace_node(self, node: exp.Expr, value: exp.Expr) -> None:
        if node.parent is self._select and node.arg_key == "expressions":
            name = node.name if isinstance(node, exp.Column) else to_sql_text(node)
            value = exp.alias_(value, name, quoted=True)
        node.replace(value)

    def _make_grouping_id(self, used: set[str]) -> exp.Expr:
        """Return the bit vector of all keys; the bit of a key in no set is always 1."""
        found: exp.Expr = exp.cast(exp.Literal.number(0), "bigint")
        terms: list[exp.Expr] = []
        for bit_index, (name, key) in enumerate(reversed(self._keys.items())):
            weight = exp.Literal.number(2**bit_index)
            if name not in used:
                terms.append(weight)
                continue
            bit = exp.Anonymous(this="grouping", expressions=[key.copy()])
            terms.append(exp.Mul(this=exp.cast(bit, "bigint"), expression=weight))
        for each in terms:
            found = exp.Add(this=found, expression=each)
        return exp.Paren(this=found)

    def _is_in_call(self, node: exp.Expr) -> bool:
        """Return whether a value is inside an aggregate function: it is then computed for rows, not for groups."""
        parent = node.parent
        while parent is not None and parent is not self._select:
            if isinstance(parent, exp.Anonymous) and is_aggregate(parent.name):
                over = parent.parent
                return not isinstance(over, exp.Window)
            parent = parent.parent
        return False


def _canonicalise(tree: exp.Expr) -> str:
    """Return a canonical text of an expression, the same for `a + b` and `b + a`."""
    match tree:
        case exp.Paren():
            return _canonicalise(tree.this)
        case exp.Add() | exp.Mul() | exp.And() | exp.Or() | exp.EQ():
            operands = sorted(_canonicalise(each) for each in _flatten_operands(tree, type(tree)))
            return f"({f' {tree.key} '.join(operands)})"
        case exp.Column() | exp.Identifier():
            return ".".join(part.name.casefold() for part in tree.find_all(exp.Identifier))
        case _:
            return (
                to_sql_text(tree).casefold()
                if not any(each.is_string for each in tree.find_all(exp.Literal))
                else to_sql_text(tree)
            )


def _flatten_operands(tree: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    if isinstance(tree, exp.Paren):
        return _flatten_operands(tree.this, kind) if isinstance(tree.this, kind) else [tree]
    if type(tree) is not kind or (kind is exp.EQ and tree.parent is not None and isinstance(tree.parent, exp.EQ)):
        return [tree]
    return [*_flatten_operands(tree.this, kind), *_flatten_operands(tree.expression, kind)]


def _expand_rollup(parts: Sequence[_Set]) -> list[_Set]:
    return [_join_sets(parts[:count]) for count in range(len(parts), -1, -1)]


def _expand_cube(parts: Sequence[_Set]) -> list[_Set]:
    counts = range(len(parts), -1, -1)
    if len(parts) > 12:
        return [()] * (2 ** len(parts))
    return [_join_sets(each) for count in counts for each in combinations(parts, count)]


def _join_sets(parts: Sequence[_Set]) -> _Set:
    return tuple(key for part in parts for key in part)


def _combine_sets(elements: Sequence[list[_Set]]) -> list[_Set]:
    total = 1
    for each in elements:
        total *= len(each)
    if total > MAX_GROUPING_SETS:
        return [()] * total
    return [_join_sets(each) for each in product(*elements)]

"""Translation of generators, functions that return several rows, to DuckDB's `unnest`.

| in Spark                                    | in DuckDB                                                              |
|---------------------------------------------|------------------------------------------------------------------------|
| `SELECT x, explode(xs) AS e FROM t`         | `SELECT x, unnest(xs) AS e FROM t`                                     |
| several generators, or one with a window    | `FROM t CROSS JOIN LATERAL (SELECT unnest(xs)) AS g`, and so on        |
| `LATERAL VIEW explode(xs) e AS x`           | `CROSS JOIN LATERAL (SELECT unnest(xs) AS x) AS e`                     |
| `FROM explode(xs)`, `JOIN LATERAL …`        | a subquery                                                             |
| `explode_outer(xs)`, `LATERAL VIEW OUTER`   | the list [NULL] instead of an empty or NULL list                       |

Two generators in one SELECT return all pairs of their rows, and window functions see the generated rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from tamis.engines.duckdb.translate.calls import make_unsupported_error
from tamis.expr.sql.refusals import AGGREGATES

GENERATORS = (
    "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple",
)  # fmt: skip

_MAP_FUNCTIONS = frozenset((
    "map", "map_from_arrays", "map_from_entries", "map_concat", "map_filter", "transform_keys", "transform_values",
    "str_to_map", "map_zip_with",
))  # fmt: skip
_STRUCT_FUNCTIONS = frozenset(("struct", "named_struct"))


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns that a generator returns: parallel unnested values, and their names. Without names they are the
    fields of a struct."""

    values: tuple[exp.Expr, ...]
    names: tuple[str, ...] | None


def unnest_generators(tree: exp.Expr) -> None:
    """Translate all generators in a tree."""
    for unnest in list(tree.find_all(exp.Unnest)):
        unnest.replace(_translate_unnest(unnest))
    for table in list(tree.find_all(exp.Table)):
        _translate_table(table)
    for lateral in list(tree.find_all(exp.Lateral)):
        _translate_lateral(lateral)
    for select in list(tree.find_all(exp.Select)):
        _translate_views(select)
        _translate_items(select)


# --- Columns of generators --------------------------------------------------------------------------------------------


def _as_generator(tree: exp.Expr) -> exp.Anonymous | None:
    is_one = isinstance(tree, exp.Anonymous) and tree.name.lower() in GENERATORS
    return tree if is_one else None  # type: ignore[return-value]


def _make_columns(call: exp.Anonymous, names: Sequence[str], *, outer: bool = False) -> _Columns:
    name = call.name.lower()
    outer = outer or name.endswith("_outer")
    name = name.removesuffix("_outer")
    if name == "stack":
        return _make_stack_columns(call, names)
    if name == "json_tuple":
        return _make_json_columns(call, names)
    if len(call.expressions) != 1:
        raise make_unsupported_error(call.name, f"it takes one argument, not {len(call.expressions)}")
    values = call.expressions[0]
    if isinstance(values, exp.Null) or (isinstance(values, exp.Anonymous) and values.name.lower() in _STRUCT_FUNCTIONS):
        raise make_unsupported_error(call.name, "it takes an array or a map")
    if name == "inline":
        kept = _make_outer_items(values) if outer else values
        depth = exp.PropertyEQ(this=exp.to_identifier("max_depth"), expression=exp.Literal.number(2))
        unnested = exp.Anonymous(this="duckdb_unnest", expressions=[kept.copy(), depth])
        return _Columns((unnested,), None)
    positions = ("pos",) if name == "posexplode" else ()
    is_map = len(names) == len(positions) + 2 or (not names and _is_map(values))
    wanted = names or (*positions, *(("key", "value") if is_map else ("col",)))
    if len(wanted) != len(positions) + (2 if is_map else 1):
        raise make_unsupported_error(
            call.name, f"it returns {len(positions) + 1} columns, or {len(positions) + 2} for a map, not {len(wanted)}"
        )
    lists = [exp.Anonymous(this=part, expressions=[values.copy()]) for part in ("map_keys", "map_values")]
    parts: list[exp.Expr] = list(lists) if is_map else [values]
    unnested_parts = [_make_unnest(_make_outer_items(part) if outer else part) for part in parts]
    found = [_make_positions(parts[0])] if positions else []
    return _Columns((*found, *unnested_parts), tuple(wanted))


def _is_map(values: exp.Expr) -> bool:
    if isinstance(values, exp.Cast):
        return getattr(values.to.this, "name", "") == "MAP"
    return isinstance(values, exp.Anonymous) and values.name.lower() in _MAP_FUNCTIONS


def _make_stack_columns(call: exp.Anonymous, names: Sequence[str]) -> _Columns:
    count, *given = call.expressions or [exp.Null()]
    if not isinstance(count, exp.Literal) or count.is_string or not count.name.isdecimal() or int(count.name) < 1:
        raise make_unsupported_error("stack", "its number of rows must be a constant")
    if not given:
        raise make_unsupported_error("stack", "it needs values")
    rows = int(count.name)
    width = -(-len(given) // rows)
    wanted = names or [f"col{index}" for index in range(width)]
    if len(wanted) != width:
        raise make_unsupported_error("stack", f"it returns {width} columns, not {len(wanted)}")
    padded = [*given, *(exp.null() for _ in range(rows * width - len(given)))]
    lists = (exp.Anonymous(this="array", expressions=[each.copy() for each in padded[index::width]])
             for index in range(width))  # fmt: skip
    return _Columns(tuple(map(_make_unnest, lists)), tuple(wanted))


def _make_json_columns(call: exp.Anonymous, names: Sequence[str]) -> _Columns:
    text, *fields = call.expressions or [exp.Null()]
    wanted = names or [f"c{index}" for index in range(len(fields))]
    if not fields or len(wanted) != len(fields):
        raise make_unsupported_error(
            "json_tuple", f"it returns a column for each of its {len(fields)} fields, not {len(wanted)}"
        )
    if not all(isinstance(each, exp.Literal) and each.is_string and each.name.isidentifier() for each in fields):
        raise make_unsupported_error("json_tuple", "its fields must be constants of letters, digits and _")
    paths = [exp.Literal.string(f"$.{each.name}") for each in fields]
    values = (exp.Anonymous(this="get_json_object", expressions=[text.copy(), path]) for path in paths)
    return _Columns(tuple(values), tuple(wanted))


def _make_unnest(values: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="duckdb_unnest", expressions=[values.copy()])


def _make_outer_items(values: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="spark_outer_items", expressions=[values.copy()])


def _make_positions(values: exp.Expr) -> exp.Expr:
    """Return the positions of items, from 0. They are NULL for an empty list while other columns have rows."""
    subscripts = exp.Anonymous(this="duckdb_generate_subscripts", expressions=[values.copy(), exp.Literal.number(1)])
    return exp.cast(exp.Paren(this=exp.Sub(this=subscripts, expression=exp.Literal.number(1))), "int")


def _make_alias(value: exp.Expr, name: str) -> exp.Expr:
    return exp.alias_(value, name, quoted=True)


def _make_select(columns: _Columns) -> exp.Select:
    if columns.names is None:
        return exp.Select(expressions=list(columns.values))
    return exp.Select(expressions=[_make_alias(*pair) for pair in zip(columns.values, columns.names, strict=True)])


def _make_source(call: exp.Anonymous, alias: exp.TableAlias | None, *, outer: bool = False) -> exp.Subquery:
    """Return a subquery with the rows of a generator, under its table alias and column aliases."""
    names = [each.name for each in alias.columns] if alias is not None else []
    columns = _make_columns(call, names, outer=outer)
    name = alias.this.copy() if alias is not None and alias.this is not None else None
    if columns.names is None and names:
        # The column aliases rename the fields of a struct.
        name = name or exp.to_identifier("generated", quoted=True)
        given = exp.TableAlias(this=name, columns=[exp.to_identifier(each, quoted=True) for each in names])
        return exp.Subquery(this=_make_select(columns), alias=given)
    return exp.Subquery(this=_make_select(columns), alias=None if name is None else exp.TableAlias(this=name))


# --- In FROM ----------------------------------------------------------------------------------------------------------


def _translate_table(table: exp.Table) -> None:
    call = _as_generator(table.this)
    if call is None:
        return
    source = _make_source(call, table.args.get("alias"))
    for key in ("joins", "laterals", "sample", "pivots"):
        if table.args.get(key):
            source.set(key, table.args[key])
    table.replace(source)


def _translate_lateral(lateral: exp.Lateral) -> None:
    if lateral.args.get("view"):
        return
    call = _as_generator(lateral.this)
    if call is None:
        return
    source = _make_source(call, lateral.args.get("alias"))
    alias = source.args.get("alias")
    source.set("alias", None)
    changed = exp.Lateral(this=source, alias=alias)
    if isinstance(lateral.parent, exp.From):
        source.set("alias", alias)
        lateral.replace(source)
    else:
        lateral.replace(changed)


def _translate_unnest(unnest: exp.Unnest) -> exp.Expr:
    """Translate `UNNEST(xs, ys) WITH ORDINALITY AS t(x, y, position)`: parallel lists, and positions from 1."""
    lists = list(unnest.expressions)
    if any(map(_is_map, lists)):
        raise make_unsupported_error("unnest", "it takes arrays")
    alias = unnest.args.get("alias")
    names = [each.name for each in alias.columns] if alias is not None else []
    offset = unnest.args.get("offset")
    if isinstance(offset, exp.Identifier) and len(names) == len(lists):
        names = [*names, offset.name]
    values = [_make_unnest(each) for each in lists]
    defaults = ["col"] if len(lists) == 1 else [f"col{index + 1}" for index in range(len(lists))]
    if offset:
        lengths = [
            exp.Anonymous(
                this="coalesce",
                expressions=[exp.Anonymous(this="duckdb_len", expressions=[each.copy()]), exp.Literal.number(0)],
            )
            for each in lists
        ]
        longest = lengths[0] if len(lengths) == 1 else exp.Anonymous(this="greatest", expressions=lengths)
        end = exp.Add(this=longest, expression=exp.Literal.number(1))
        numbers = exp.Anonymous(this="duckdb_range", expressions=[exp.Literal.number(1), end])
        values.append(exp.cast(_make_unnest(numbers), "int"))
        defaults.append("ordinality")
    wanted = names or defaults
    if len(wanted) != len(values):
        raise make_unsupported_error("unnest", f"it returns {len(values)} columns, not {len(wanted)}")
    select = _make_select(_Columns(tuple(values), tuple(wanted)))
    name = None if alias is None or alias.this is None else exp.TableAlias(this=alias.this.copy())
    source = exp.Subquery(this=select, alias=name)
    for key in ("joins", "laterals"):
        if unnest.args.get(key):
            source.set(key, unnest.args[key])
    if isinstance(unnest.parent, exp.Lateral):
        lateral_alias = unnest.parent.args.get("alias")
        if lateral_alias is not None and lateral_alias.columns:
            given = [each.name for each in lateral_alias.columns]
            if isinstance(offset, exp.Identifier):
                given.append(offset.name)
            if len(given) != len(values):
                raise make_unsupported_error("unnest", f"it returns {len(values)} columns, not {len(given)}")
            select.set("expressions", [_make_alias(value, each) for value, each in zip(values, given, strict=True)])
            lateral_alias.set("columns", [])
        source.set("alias", None)
    elif isinstance(unnest.parent, exp.Join):
        # It may refer to the sources before it.
        source.set("alias", None)
        return exp.Lateral(this=source, alias=name)
    return source


def _translate_views(select: exp.Select) -> None:
    views = select.args.get("laterals") or []
    if not views:
        return
    joins: list[exp.Expr] = []
    for view in views:
        call = _as_generator(view.this)
        if call is None or not view.args.get("view"):
            return
        source = _make_source(call, view.args.get("alias"), outer=bool(view.args.get("outer")))
        alias = source.args.get("alias") or exp.TableAlias(this=exp.to_identifier("view", quoted=True))
        source.set("alias", None)
        joins.append(exp.Join(this=exp.Lateral(this=source, alias=alias), kind="CROSS"))
    select.set("laterals", None)
    select.set("joins", [*(select.args.get("joins") or ()), *joins])


# --- In SELECT --------------------------------------------------------------------------------------------------------


def _get_generator(item: exp.Expr) -> exp.Anonymous | None:
    return _as_generator(item.this if isinstance(item, exp.Alias | exp.Aliases) else item)


def _get_names(item: exp.Expr) -> list[str]:
    if isinstance(item, exp.Aliases):
        return [each.name for each in item.expressions]
    return [item.alias] if isinstance(item, exp.Alias) else []


def _translate_items(select: exp.Select) -> None:
    found = [item for item in select.expressions if _get_generator(item) is not None]
    calls = {id(_get_generator(item)) for item in found}
    for node in select.find_all(exp.Anonymous):
        is_own = id(node) in calls or node.find_ancestor(exp.Select) is not select
        if not is_own and _as_generator(node) is not None:
            raise make_unsupported_error(node.name, "it is nested in another expression")
    if not found:
        return
    if _is_grouped(select):
        if len(found) > 1 or any(_has_window(item) for item in select.expressions):
            raise make_unsupported_error(
                "generators", "a SELECT with groups has several of them, or one with a window function"
            )
        _translate_single(select, found[0])
    elif len(found) > 1 or any(_has_window(item) for item in select.expressions) or _needs_join(found[0]):
        _join_items(select, found)
    else:
        _translate_single(select, found[0])


def _is_grouped(select: exp.Select) -> bool:
    if select.args.get("group") is not None or select.args.get("having") is not None:
        return True
    for item in select.expressions:
        for node in item.walk(prune=lambda each: isinstance(each, exp.Query)):
            name = node.name.lower().removeprefix("duckdb_") if isinstance(node, exp.Anonymous) else ""
            if name in AGGREGATES and not _is_windowed_call(node):
                return True
    return False


def _is_windowed_call(node: exp.Expr) -> bool:
    while isinstance(node.parent, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        node = node.parent
    return isinstance(node.parent, exp.Window)


def _has_window(item: exp.Expr) -> bool:
    return next(item.find_all(exp.Window), None) is not None


def _needs_join(item: exp.Expr) -> bool:
    """Return whether an item must be a join: the fields of structs cannot be renamed in a SELECT list."""
    call = _get_generator(item)
    return call is not None and call.name.lower().startswith("inline") and bool(_get_names(item))


def _translate_single(select: exp.Select, item: exp.Expr) -> None:
    call = _get_generator(item)
    assert call is not None
    columns = _make_columns(call, _get_names(item))
    changed = _make_select(columns).expressions
    items = [each for known in select.expressions for each in (changed if known is item else [known])]
    select.set("expressions", items)


def _join_items(select: exp.Select, found: Sequence[exp.Expr]) -> None:
    """Turn generators into lateral joins, whose columns have internal names."""
    joins: list[exp.Expr] = []
    hidden: list[str] = []
    items: list[exp.Expr] = []
    for item in select.expressions:
        call = _get_generator(item)
        if call is None or not any(item is each for each in found):
            items.append(item)
            continue
        number = len(joins) + 1
        columns = _make_columns(call, _get_names(item))
        table = exp.to_identifier(f"generated {number}", quoted=True)
        names = columns.names if columns.names is not None else tuple(_get_names(item))
        if not names:
            # Only the engine knows the fields of the struct.
            items.append(exp.Column(this=exp.Star(), table=table.copy()))
            if any(isinstance(each, exp.Star) for each in select.expressions):
                raise make_unsupported_error(
                    call.name, "with a * in the SELECT its columns need names; add them, as in AS (a, b)"
                )
            joins.append(_make_lateral_join(exp.Select(expressions=list(columns.values)), table, ()))
            continue
        own = [f"generated {number}.{index}" for index in range(len(names))]
        hidden += own
        items += [
            _make_alias(exp.column(exp.to_identifier(each, quoted=True), table.copy()), name)
            for each, name in zip(own, names, strict=True)
        ]
        joins.append(_make_lateral_join(exp.Select(expressions=list(columns.values)), table, own))
    for each in items:
        if isinstance(each, exp.Star):
            each.set(
                "except_", [*(each.args.get("except_") or ()), *(exp.to_identifier(h, quoted=True) for h in hidden)]
            )
    select.set("expressions", items)
    if select.args.get("from_") is None:
        one = exp.Subquery(this=exp.Select(expressions=[exp.Literal.number(1)]),
                           alias=exp.TableAlias(this=exp.to_identifier("one row", quoted=True)))  # fmt: skip
        select.set("from_", exp.From(this=one))
    select.set("joins", [*(select.args.get("joins") or ()), *joins])


def _make_lateral_join(select: exp.Select, table: exp.Identifier, names: Sequence[str]) -> exp.Join:
    columns = [exp.to_identifier(each, quoted=True) for each in names]
    alias = exp.TableAlias(this=table.copy(), columns=columns)
    return exp.Join(this=exp.Lateral(this=exp.Subquery(this=select), alias=alias), kind="CROSS")

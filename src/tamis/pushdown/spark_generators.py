"""Functions that make several rows of one, as DuckDB's unnested lists.

| in Spark                                    | in DuckDB                                                              |
|---------------------------------------------|------------------------------------------------------------------------|
| `SELECT x, explode(xs) AS e FROM t`         | `SELECT x, unnest(xs) AS e FROM t`                                     |
| several of them, or one beside a window     | `FROM t CROSS JOIN LATERAL (SELECT unnest(xs)) AS g`, and so on       |
| `LATERAL VIEW explode(xs) e AS x`           | `CROSS JOIN LATERAL (SELECT unnest(xs) AS x) AS e`                     |
| `FROM explode(xs)`, `JOIN LATERAL …`        | a subquery in its place                                                |
| `explode_outer(xs)`, `LATERAL VIEW OUTER`   | the list [NULL] in the place of one that is empty or NULL              |

Two generators in one SELECT have all pairs of their rows, and window functions see the rows that generators make.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlglot import exp

from tamis.expr.sql_refusals import AGGREGATES
from tamis.scan.spark_calls import refusal

GENERATORS = (
    "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple",
)  # fmt: skip

_MAPS = frozenset((
    "map", "map_from_arrays", "map_from_entries", "map_concat", "map_filter", "transform_keys", "transform_values",
    "str_to_map", "map_zip_with",
))  # fmt: skip
_STRUCTS = frozenset(("struct", "named_struct"))


@dataclass(frozen=True, slots=True)
class _Columns:
    """The values that a generator gives, each unnested beside the others, and their names; without names they are
    those of the fields of a struct."""

    values: tuple[exp.Expr, ...]
    names: tuple[str, ...] | None


def unnest_generators(tree: exp.Expr) -> None:
    """Change all generators in a tree."""
    for unnest in list(tree.find_all(exp.Unnest)):
        unnest.replace(_subquery_of_unnest(unnest))
    for table in list(tree.find_all(exp.Table)):
        _change_table(table)
    for lateral in list(tree.find_all(exp.Lateral)):
        _change_lateral(lateral)
    for select in list(tree.find_all(exp.Select)):
        _change_views(select)
        _change_items(select)


def mark_maps(tree: exp.Expr, maps: Collection[str]) -> bool:
    """Say of the columns that generators unnest which ones are maps, by their names; return whether there were some.

    A generator has two columns of a map, and one of a list: `map_concat` of a map is that map.
    """
    is_changed = False
    for call in list(tree.find_all(exp.Anonymous)):
        if call.name.lower() not in ("explode", "explode_outer", "posexplode", "posexplode_outer"):
            continue
        for value in call.expressions:
            if isinstance(value, exp.Column) and value.name.casefold() in maps:
                value.replace(exp.Anonymous(this="map_concat", expressions=[value.copy()]))
                is_changed = True
    return is_changed


# --- What a generator gives -------------------------------------------------------------------------------------------


def _generator(tree: exp.Expr) -> exp.Anonymous | None:
    is_one = isinstance(tree, exp.Anonymous) and tree.name.lower() in GENERATORS
    return tree if is_one else None  # type: ignore[return-value]


def _columns(call: exp.Anonymous, names: Sequence[str], *, outer: bool = False) -> _Columns:
    name = call.name.lower()
    outer = outer or name.endswith("_outer")
    name = name.removesuffix("_outer")
    if name == "stack":
        return _stack(call, names)
    if name == "json_tuple":
        return _json_tuple(call, names)
    if len(call.expressions) != 1:
        raise refusal(call.name, f"it takes one argument, not {len(call.expressions)}")
    values = call.expressions[0]
    if isinstance(values, exp.Null) or (isinstance(values, exp.Anonymous) and values.name.lower() in _STRUCTS):
        raise refusal(call.name, "it takes an array or a map")
    if name == "inline":
        kept = _or_null(values) if outer else values
        depth = exp.PropertyEQ(this=exp.to_identifier("max_depth"), expression=exp.Literal.number(2))
        unnested = exp.Anonymous(this="duckdb_unnest", expressions=[kept.copy(), depth])
        return _Columns((unnested,), None)
    places = ("pos",) if name == "posexplode" else ()
    is_map = len(names) == len(places) + 2 or (not names and _is_map(values))
    wanted = names or (*places, *(("key", "value") if is_map else ("col",)))
    if len(wanted) != len(places) + (2 if is_map else 1):
        raise refusal(call.name, f"it has {len(places) + 1} columns, or {len(places) + 2} of a map, not {len(wanted)}")
    lists = [exp.Anonymous(this=part, expressions=[values.copy()]) for part in ("map_keys", "map_values")]
    parts: list[exp.Expr] = list(lists) if is_map else [values]
    unnested_parts = [_unnest(_or_null(part) if outer else part) for part in parts]
    found = [_places(parts[0])] if places else []
    return _Columns((*found, *unnested_parts), tuple(wanted))


def _is_map(values: exp.Expr) -> bool:
    if isinstance(values, exp.Cast):
        return getattr(values.to.this, "name", "") == "MAP"
    return isinstance(values, exp.Anonymous) and values.name.lower() in _MAPS


def _stack(call: exp.Anonymous, names: Sequence[str]) -> _Columns:
    count, *given = call.expressions or [exp.Null()]
    if not isinstance(count, exp.Literal) or count.is_string or not count.name.isdecimal() or int(count.name) < 1:
        raise refusal("stack", "its number of rows is a constant")
    if not given:
        raise refusal("stack", "it needs values")
    rows = int(count.name)
    width = -(-len(given) // rows)
    wanted = names or [f"col{place}" for place in range(width)]
    if len(wanted) != width:
        raise refusal("stack", f"it has {width} columns, not {len(wanted)}")
    padded = [*given, *(exp.null() for _ in range(rows * width - len(given)))]
    lists = (exp.Anonymous(this="array", expressions=[each.copy() for each in padded[place::width]])
             for place in range(width))  # fmt: skip
    return _Columns(tuple(map(_unnest, lists)), tuple(wanted))


def _json_tuple(call: exp.Anonymous, names: Sequence[str]) -> _Columns:
    text, *fields = call.expressions or [exp.Null()]
    wanted = names or [f"c{place}" for place in range(len(fields))]
    if not fields or len(wanted) != len(fields):
        raise refusal("json_tuple", f"it has a column for each of its {len(fields)} fields, not {len(wanted)}")
    if not all(isinstance(each, exp.Literal) and each.is_string and each.name.isidentifier() for each in fields):
        raise refusal("json_tuple", "its fields are constants of letters, digits and _")
    paths = [exp.Literal.string(f"$.{each.name}") for each in fields]
    values = (exp.Anonymous(this="get_json_object", expressions=[text.copy(), path]) for path in paths)
    return _Columns(tuple(values), tuple(wanted))


def _unnest(values: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="duckdb_unnest", expressions=[values.copy()])


def _or_null(values: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="spark_outer_items", expressions=[values.copy()])


def _places(values: exp.Expr) -> exp.Expr:
    """The positions of items, from 0; where a list is empty, the other columns go on beside NULL."""
    subscripts = exp.Anonymous(this="duckdb_generate_subscripts", expressions=[values.copy(), exp.Literal.number(1)])
    return exp.cast(exp.Paren(this=exp.Sub(this=subscripts, expression=exp.Literal.number(1))), "int")


def _named(value: exp.Expr, name: str) -> exp.Expr:
    return exp.alias_(value, name, quoted=True)


def _select(columns: _Columns) -> exp.Select:
    if columns.names is None:
        return exp.Select(expressions=list(columns.values))
    return exp.Select(expressions=[_named(*pair) for pair in zip(columns.values, columns.names, strict=True)])


def _source(call: exp.Anonymous, alias: exp.TableAlias | None, *, outer: bool = False) -> exp.Subquery:
    """A subquery of the rows of a generator, under the name and the names of columns that it was given."""
    names = [each.name for each in alias.columns] if alias is not None else []
    columns = _columns(call, names, outer=outer)
    name = alias.this.copy() if alias is not None and alias.this is not None else None
    if columns.names is None and names:
        # The fields of a struct get the names from outside.
        name = name or exp.to_identifier("generated", quoted=True)
        given = exp.TableAlias(this=name, columns=[exp.to_identifier(each, quoted=True) for each in names])
        return exp.Subquery(this=_select(columns), alias=given)
    return exp.Subquery(this=_select(columns), alias=None if name is None else exp.TableAlias(this=name))


# --- In FROM ----------------------------------------------------------------------------------------------------------


def _change_table(table: exp.Table) -> None:
    call = _generator(table.this)
    if call is None:
        return
    source = _source(call, table.args.get("alias"))
    for key in ("joins", "laterals", "sample", "pivots"):
        if table.args.get(key):
            source.set(key, table.args[key])
    table.replace(source)


def _change_lateral(lateral: exp.Lateral) -> None:
    if lateral.args.get("view"):
        return
    call = _generator(lateral.this)
    if call is None:
        return
    source = _source(call, lateral.args.get("alias"))
    alias = source.args.get("alias")
    source.set("alias", None)
    changed = exp.Lateral(this=source, alias=alias)
    if isinstance(lateral.parent, exp.From):
        source.set("alias", alias)
        lateral.replace(source)
    else:
        lateral.replace(changed)


def _subquery_of_unnest(unnest: exp.Unnest) -> exp.Expr:
    """`UNNEST(xs, ys) WITH ORDINALITY AS t(x, y, position)`: lists beside each other, and positions from 1."""
    lists = list(unnest.expressions)
    if any(map(_is_map, lists)):
        raise refusal("unnest", "it takes arrays")
    alias = unnest.args.get("alias")
    names = [each.name for each in alias.columns] if alias is not None else []
    offset = unnest.args.get("offset")
    if isinstance(offset, exp.Identifier) and len(names) == len(lists):
        names = [*names, offset.name]
    values = [_unnest(each) for each in lists]
    defaults = ["col"] if len(lists) == 1 else [f"col{place + 1}" for place in range(len(lists))]
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
        values.append(exp.cast(_unnest(numbers), "int"))
        defaults.append("ordinality")
    wanted = names or defaults
    if len(wanted) != len(values):
        raise refusal("unnest", f"it has {len(values)} columns, not {len(wanted)}")
    select = _select(_Columns(tuple(values), tuple(wanted)))
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
                raise refusal("unnest", f"it has {len(values)} columns, not {len(given)}")
            select.set("expressions", [_named(value, each) for value, each in zip(values, given, strict=True)])
            lateral_alias.set("columns", [])
        source.set("alias", None)
    elif isinstance(unnest.parent, exp.Join):
        # What stands before it may be used in it.
        source.set("alias", None)
        return exp.Lateral(this=source, alias=name)
    return source


def _change_views(select: exp.Select) -> None:
    views = select.args.get("laterals") or []
    if not views:
        return
    joins: list[exp.Expr] = []
    for view in views:
        call = _generator(view.this)
        if call is None or not view.args.get("view"):
            return
        source = _source(call, view.args.get("alias"), outer=bool(view.args.get("outer")))
        alias = source.args.get("alias") or exp.TableAlias(this=exp.to_identifier("view", quoted=True))
        source.set("alias", None)
        joins.append(exp.Join(this=exp.Lateral(this=source, alias=alias), kind="CROSS"))
    select.set("laterals", None)
    select.set("joins", [*(select.args.get("joins") or ()), *joins])


# --- In SELECT --------------------------------------------------------------------------------------------------------


def _call_of(item: exp.Expr) -> exp.Anonymous | None:
    return _generator(item.this if isinstance(item, exp.Alias | exp.Aliases) else item)


def _names_of(item: exp.Expr) -> list[str]:
    if isinstance(item, exp.Aliases):
        return [each.name for each in item.expressions]
    return [item.alias] if isinstance(item, exp.Alias) else []


def _change_items(select: exp.Select) -> None:
    found = [item for item in select.expressions if _call_of(item) is not None]
    calls = {id(_call_of(item)) for item in found}
    for node in select.find_all(exp.Anonymous):
        is_own = id(node) in calls or node.find_ancestor(exp.Select) is not select
        if not is_own and _generator(node) is not None:
            raise refusal(node.name, "it stands inside of another expression")
    if not found:
        return
    if _is_grouped(select):
        if len(found) > 1 or any(_is_windowed(item) for item in select.expressions):
            raise refusal("generators", "several of them, or one beside a window, stand over groups")
        _change_single(select, found[0])
    elif len(found) > 1 or any(_is_windowed(item) for item in select.expressions) or _needs_join(found[0]):
        _join_items(select, found)
    else:
        _change_single(select, found[0])


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


def _is_windowed(item: exp.Expr) -> bool:
    return next(item.find_all(exp.Window), None) is not None


def _needs_join(item: exp.Expr) -> bool:
    """The fields of structs get names only from outside of a SELECT."""
    call = _call_of(item)
    return call is not None and call.name.lower().startswith("inline") and bool(_names_of(item))


def _change_single(select: exp.Select, item: exp.Expr) -> None:
    call = _call_of(item)
    assert call is not None
    columns = _columns(call, _names_of(item))
    changed = _select(columns).expressions
    items = [each for known in select.expressions for each in (changed if known is item else [known])]
    select.set("expressions", items)


def _join_items(select: exp.Select, found: Sequence[exp.Expr]) -> None:
    """Generators as lateral joins, in which columns have names that no query gives."""
    joins: list[exp.Expr] = []
    hidden: list[str] = []
    items: list[exp.Expr] = []
    for item in select.expressions:
        call = _call_of(item)
        if call is None or not any(item is each for each in found):
            items.append(item)
            continue
        number = len(joins) + 1
        columns = _columns(call, _names_of(item))
        table = exp.to_identifier(f"generated {number}", quoted=True)
        names = columns.names if columns.names is not None else tuple(_names_of(item))
        if not names:
            # A struct whose fields only the engine knows.
            items.append(exp.Column(this=exp.Star(), table=table.copy()))
            if any(isinstance(each, exp.Star) for each in select.expressions):
                raise refusal(call.name, "its columns have no names beside a *; write them, as in AS (a, b)")
            joins.append(_lateral(exp.Select(expressions=list(columns.values)), table, ()))
            continue
        own = [f"generated {number}.{place}" for place in range(len(names))]
        hidden += own
        items += [
            _named(exp.column(exp.to_identifier(each, quoted=True), table.copy()), name)
            for each, name in zip(own, names, strict=True)
        ]
        joins.append(_lateral(exp.Select(expressions=list(columns.values)), table, own))
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


def _lateral(select: exp.Select, table: exp.Identifier, names: Sequence[str]) -> exp.Join:
    columns = [exp.to_identifier(each, quoted=True) for each in names]
    alias = exp.TableAlias(this=table.copy(), columns=columns)
    return exp.Join(this=exp.Lateral(this=exp.Subquery(this=select), alias=alias), kind="CROSS")

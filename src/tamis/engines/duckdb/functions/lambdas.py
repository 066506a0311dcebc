"""Spark's functions that take lambda functions, as DuckDB expressions.

A macro cannot take a lambda function as an argument, so these are built as expression trees. `let` binds a value that
such a tree uses more than once to a name.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tamis.engines.duckdb.macros.define_macros import define_macros
from tamis.engines.duckdb.translate.calls import (
    Build,
    BuildNamed,
    Macros,
    Rows,
    call_duckdb,
    call_macro,
    is_null,
    make_struct,
    make_unsupported_error,
    null_if,
)

MACROS: Macros = define_macros(
    r"""
    condition(b BOOLEAN): b
    zipped(x, y): CASE WHEN x IS NOT NULL AND y IS NOT NULL THEN list_zip(x, y) END
    exists(x):
        CASE WHEN list_contains(x, TRUE) THEN TRUE WHEN list_position(x, NULL) IS NOT NULL THEN NULL
        WHEN x IS NOT NULL THEN FALSE END
    forall(x):
        CASE WHEN list_contains(x, FALSE) THEN FALSE WHEN list_position(x, NULL) IS NOT NULL THEN NULL
        WHEN x IS NOT NULL THEN TRUE END
    comparison(c BIGINT): CASE WHEN c IS NULL THEN error('the comparator of array_sort returned NULL') ELSE c < 0 END
    """
)


def _build_lambda(body: exp.Expr, *parameters: exp.Expr | str) -> exp.Lambda:
    names = [exp.to_identifier(each) if isinstance(each, str) else each.copy() for each in parameters]
    return exp.Lambda(this=body, expressions=names)


def let(name: exp.Expr | str, value: exp.Expr, body: exp.Expr) -> exp.Expr:
    """Build an expression that binds a name to a value in a body: a lambda function over a list of one item."""
    each = call_duckdb("list_transform", call_duckdb("list_value", value), _build_lambda(body, name))
    return call_duckdb("list_extract", each, exp.Literal.number(1))


def _read_lambda(name: str, node: exp.Expr, fewest: int, most: int) -> tuple[list[exp.Expr], exp.Expr]:
    """Return the parameters and the body of a lambda function. Spark takes a plain value for a function too."""
    if not isinstance(node, exp.Lambda):
        return [exp.to_identifier(f"_unused{index}") for index in range(fewest)], node
    parameters = list(node.expressions)
    if not fewest <= len(parameters) <= most:
        raise make_unsupported_error(name, f"its lambda function has {len(parameters)} parameters")
    return parameters, _as_struct(node.this)


def _as_struct(node: exp.Expr, names: Sequence[str] = ()) -> exp.Expr:
    """Turn the value `(a, b)` into a struct. Its fields are named after columns, or numbered."""
    inner = node.this if isinstance(node, exp.Paren) else node
    if isinstance(inner, exp.Paren | exp.Alias) and not names:
        return node
    if isinstance(inner, exp.Tuple):
        items = list(inner.expressions)
    elif isinstance(inner, exp.Struct) and names:
        items = [each.expression if isinstance(each, exp.PropertyEQ) else each for each in inner.expressions]
    else:
        return node
    named = (
        names if len(names) == len(items) else [_derive_field_name(each, f"col{n}") for n, each in enumerate(items, 1)]
    )
    values = [each.this if isinstance(each, exp.Alias) else each for each in items]
    return make_struct(named, values)


def _derive_field_name(node: exp.Expr, otherwise: str) -> str:
    """Return the name of a struct field, derived from the expression of its value."""
    named = isinstance(node, exp.Alias | exp.Column | exp.Dot | exp.Identifier)
    return (node.output_name if named else "") or otherwise


def _build_item(name: str, args: Sequence[exp.Expr]) -> exp.Expr:
    """Build `filter`, `transform`, … of items. Their index is 0-based in Spark and 1-based in DuckDB."""
    parameters, body = _read_lambda(name, args[1], 1, 2)
    if len(parameters) == 2:
        position = exp.Sub(this=exp.to_identifier("_position"), expression=exp.Literal.number(1))
        body = let(parameters[1], exp.cast(exp.Paren(this=position), "int"), body)
        parameters[1] = exp.to_identifier("_position")
    body = body if name == "transform" else call_macro("condition", body)
    function = "list_filter" if name == "filter" else "list_transform"
    return call_duckdb(function, args[0], _build_lambda(body, *parameters))


def _build_aggregate(name: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    items, start, merge, *finish = args
    start = _as_struct(start)
    names = [each.this.name for each in start.expressions] if isinstance(start, exp.Struct) else []
    (total, item), body = _read_lambda(name, merge, 2, 2)
    reduced = call_duckdb(
        "list_reduce", exp.to_identifier("_items"), _build_lambda(_as_struct(body, names), total, item), start
    )
    if finish:
        (parameter,), last = _read_lambda(name, finish[0], 1, 1)
        reduced = let(parameter, reduced, last)
    return let("_items", items, null_if(is_null(exp.to_identifier("_items")), reduced))


def _build_array_sort(args: Sequence[exp.Expr]) -> exp.Expr | None:
    """Build a stable insertion sort, as in Java: each item goes before the sorted items that it is smaller than."""
    if len(args) == 1:
        return call_macro("array_sort", *args)
    if not isinstance(args[1], exp.Lambda) and not args[1].is_int:
        raise make_unsupported_error(
            "array_sort", "its comparator must be a lambda function of two items that returns a whole number"
        )
    (left, right), body = _read_lambda("array_sort", args[1], 2, 2)
    smaller = call_macro("comparison", body)
    sorted_, items = exp.to_identifier("_sorted"), exp.to_identifier("_items")
    inserted = call_duckdb(
        "list_concat",
        call_duckdb("list_filter", sorted_.copy(), _build_lambda(exp.Not(this=smaller.copy()), right)),
        call_duckdb("list_value", left.copy()),
        call_duckdb("list_filter", sorted_.copy(), _build_lambda(smaller, right)),
    )
    nothing = call_duckdb("list_slice", items.copy(), exp.Literal.number(1), exp.Literal.number(0))
    return let(
        "_items", args[0], call_duckdb("list_reduce", items.copy(), _build_lambda(inserted, "_sorted", left), nothing)
    )


def _build_zip_with(args: Sequence[exp.Expr]) -> exp.Expr | None:
    (left, right), body = _read_lambda("zip_with", args[2], 2, 2)
    pair = exp.to_identifier("_pair")
    first, second = (call_duckdb("struct_extract", pair.copy(), exp.Literal.number(n)) for n in (1, 2))
    body = let(left, first, let(right, second, body))
    return call_duckdb("list_transform", call_macro("zipped", args[0], args[1]), _build_lambda(body, pair))


def _take_entry(name: str, function: exp.Expr) -> exp.Lambda:
    """Turn a function of the key and the value of a map into a function of an entry."""
    (key, value), body = _read_lambda(name, function, 2, 2)
    entry = exp.to_identifier("_entry")
    of_key, of_value = (call_duckdb("struct_extract", entry.copy(), exp.Literal.string(n)) for n in ("key", "value"))
    body = call_macro("condition", body) if name == "map_filter" else body
    return _build_lambda(let(key, of_key, let(value, of_value, body)), entry)


def _build_entry(name: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    function = _take_entry(name, args[1])
    if name == "map_filter":
        return call_duckdb(
            "map_from_entries", call_duckdb("list_filter", call_duckdb("map_entries", args[0]), function)
        )
    map_ = exp.to_identifier("_map")
    changed = call_duckdb("list_transform", call_duckdb("map_entries", map_.copy()), function)
    if name == "transform_keys":
        return let(map_, args[0], call_duckdb("map", changed, call_duckdb("map_values", map_.copy())))
    return let(map_, args[0], call_duckdb("map", call_duckdb("map_keys", map_.copy()), changed))


def _build_map_zip_with(args: Sequence[exp.Expr]) -> exp.Expr | None:
    (key, *values), body = _read_lambda("map_zip_with", args[2], 3, 3)
    maps, keys = [exp.to_identifier(name) for name in ("_map1", "_map2")], exp.to_identifier("_keys")
    for value, map_ in zip(values, maps, strict=True):
        body = let(value, call_duckdb("map_extract_value", map_.copy(), key.copy()), body)
    made = call_duckdb("map", keys.copy(), call_duckdb("list_transform", keys.copy(), _build_lambda(body, key)))
    found = let(keys, call_macro("array_union", *(call_duckdb("map_keys", map_.copy()) for map_ in maps)), made)
    for given, map_ in zip(args, maps, strict=False):
        found = let(map_, given, found)
    return found


def _build_arrays_zip(args: Sequence[exp.Expr]) -> exp.Expr | None:
    """Build a list of structs from lists. The fields are named after columns, or numbered from 0."""
    if not args:
        raise make_unsupported_error("arrays_zip", "it takes at least one list")
    names = [_derive_field_name(each, str(index)) for index, each in enumerate(args)]
    item = exp.to_identifier("_item")
    positions = (exp.Literal.number(position) for position in range(1, len(args) + 1))
    each = make_struct(names, [call_duckdb("struct_extract", item.copy(), position) for position in positions])
    given = [exp.to_identifier(f"_list{index}") for index in range(len(args))]
    zipped = call_duckdb(
        "list_transform", call_duckdb("list_zip", *(list_.copy() for list_ in given)), _build_lambda(each, item)
    )
    found = null_if(exp.or_(*(is_null(list_.copy()) for list_ in given)), zipped)
    for name, arg in zip(given, args, strict=True):
        found = let(name, arg.this if isinstance(arg, exp.Alias) else arg, found)
    return found


ROWS: Rows = (
    ("array_sort", Build(_build_array_sort, (1, 2))),
    ("arrays_zip", Build(_build_arrays_zip)),
    ("zip_with", Build(_build_zip_with, (3,))),
    ("transform filter", BuildNamed(_build_item, (2,))),
    # The results for some items may be NULL.
    ("exists forall", BuildNamed(lambda name, args: call_macro(name, _build_item(name, args)), (2,))),
    ("aggregate reduce", BuildNamed(_build_aggregate, (3, 4))),
    ("map_filter transform_keys transform_values", BuildNamed(_build_entry, (2,))),
    ("map_zip_with", Build(_build_map_zip_with, (3,))),
)

"""Rewrites of grouped, sorted and compared values, where Spark and DuckDB differ for maps and for nested NULL.

| Spark                                              | DuckDB                                | Tamis on DuckDB         |
|----------------------------------------------------|---------------------------------------|-------------------------|
| GROUP BY a map ignores the order of its entries    | another order is another group        | entries are sorted      |
| maps have no order and no equality: an error       | compared as lists of entries          | an error                |
| NULL within a list or a struct is the smallest     | it is the largest                     | an error if there is one|

    SELECT m, count(*) FROM t GROUP BY m

    SELECT spark_plain_group_key(m, m) AS m, count(*) FROM t GROUP BY spark_plain_group_key(m, m)
"""

from __future__ import annotations

from sqlglot import exp

from tamis.engines.duckdb.functions.items import ANY_MAP_TYPE
from tamis.engines.duckdb.translate.calls import (
    DUCKDB_PREFIX,
    MACRO_PREFIX,
    Macros,
    call_macro,
    has_aggregate_or_window,
    list_overloads,
)

_MAPS_NOT_COMPARABLE = "error('maps have no order and no equality: compare map_entries(m), or leave the map out')"
_HAS_MAP = "typeof(x) LIKE '%MAP(%'"
_SORT_ENTRIES = "map_from_entries(list_sort(map_entries({})))"
_MAP_TOO_DEEP = (
    "error('GROUP BY supports maps and lists of maps, but no maps that are nested deeper: group by their parts')"
)

MACROS: Macros = {
    # A group key is repeated wherever it occurs in the query, so a plain column must not be bound twice.
    "plain_group_key": [
        (
            (f"kind {ANY_MAP_TYPE}", "x"),
            f"CASE WHEN typeof(map_entries(x)) LIKE '%MAP(%' THEN {_MAP_TOO_DEEP} ELSE {_SORT_ENTRIES.format('x')} END",
        ),
        (
            (f"kind {ANY_MAP_TYPE}[]", "x"),
            f"CASE WHEN regexp_matches(typeof(x), 'MAP\\(.*MAP\\(') THEN {_MAP_TOO_DEEP} "
            f"WHEN typeof(x) LIKE 'MAP(%' THEN list_transform(x, lambda e: {_SORT_ENTRIES.format('e')}) ELSE x END",
        ),
        (("kind", "x"), f"CASE WHEN {_HAS_MAP} THEN {_MAP_TOO_DEEP} ELSE x END"),
    ],
    "plain_sortable": (
        ("x",),
        f"CASE WHEN {_HAS_MAP} THEN {_MAPS_NOT_COMPARABLE} "
        "WHEN (typeof(x) LIKE '%]' OR typeof(x) LIKE 'STRUCT(%') AND regexp_matches(CAST(x AS VARCHAR), '\\bNULL\\b') "
        "THEN error('lists and structs that contain NULL are not ordered here as in Spark') ELSE x END",
    ),
    # DuckDB rejects window keys that may fail at run time, so the type alone decides on the error.
    "plain_window_key": [
        *(((f"kind {kind}", "x"), _MAPS_NOT_COMPARABLE) for kind in (ANY_MAP_TYPE, f"{ANY_MAP_TYPE}[]")),
        (("kind", "x"), "x"),
    ],
    "plain_comparable": (("x",), f"CASE WHEN {_HAS_MAP} THEN {_MAPS_NOT_COMPARABLE} ELSE x END"),
}


COMPARISON_MACROS = ("equal", "not_equal", "less", "less_or_equal", "greater", "greater_or_equal", "same", "not_same",
            "comparable")  # fmt: skip
"""The macros of comparison operators."""


_ITEM_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(18, 3)", "VARCHAR", "BOOLEAN",
               "DATE", "TIMESTAMP", "TIMESTAMPTZ", "BLOB", ANY_MAP_TYPE)  # fmt: skip


def reject_operands(macros: Macros) -> Macros:
    """Return macros with overloads for operands that Spark rejects: maps in comparisons, lists in sums."""
    refused = [((f"x {kind}", f"y {kind}"), _MAPS_NOT_COMPARABLE) for kind in (ANY_MAP_TYPE, f"{ANY_MAP_TYPE}[]")]
    no_sum = "error('lists cannot be added: join them with concat')"
    lists = [((f"x {kind}[]", f"y {kind}[]"), no_sum) for kind in _ITEM_TYPES]
    added = dict.fromkeys(COMPARISON_MACROS, refused) | dict.fromkeys(("add", "try_add"), lists)
    return macros | {name: [*overloads, *list_overloads(macros[name])] for name, overloads in added.items()}


_NESTED_PREFIXES = (
    "array", "collect", "from_csv", "from_json", "histogram", "json_object_keys", "list", "map", "named_struct",
    "regexp_extract_all", "sentences", "sequence", "session_window", "split", "str_to_map", "struct", "vector",
    "window",
)  # fmt: skip
"""Prefixes of the functions, Spark's and DuckDB's, that return or take a list, a map or a struct."""
_NESTED_NODES = (exp.Array, exp.Struct, exp.Tuple, exp.Map, exp.VarMap, exp.Lambda, exp.ArrayAgg, exp.ArrayUniqueAgg,
                 exp.Split)  # fmt: skip


def has_nested_values(tree: exp.Expr) -> bool:
    """Return whether a query in Spark's dialect builds a list, a map or a struct."""
    for node in tree.find_all(*_NESTED_NODES, exp.Anonymous, exp.DataType):
        match node:
            case exp.Anonymous() if not (
                _strip_prefix(node) == "row" or _strip_prefix(node).startswith(_NESTED_PREFIXES)
            ):
                continue
            case exp.DataType() if not node.args.get("nested"):
                continue
            case exp.Tuple() if isinstance(node.parent, exp.Values | exp.In | exp.Group | exp.GroupingSets):
                continue
            case _:
                return True
    return False


def _strip_prefix(call: exp.Anonymous) -> str:
    return call.name.lower().removeprefix(MACRO_PREFIX).removeprefix(DUCKDB_PREFIX)


# --- Compared values --------------------------------------------------------------------------------------------------

_SORTED_BY_SECOND = frozenset(
    f"{DUCKDB_PREFIX}{name}" for name in ("arg_max_null", "arg_min_null", "arg_max", "arg_min")
)
_MAY_BE_NESTED = (exp.Column, exp.Dot, exp.Bracket, exp.Array, exp.Struct, exp.Anonymous, exp.Case, exp.Coalesce)


def guard_comparisons(tree: exp.Expr) -> None:
    """Wrap compared values in macros that fail for maps, and sorted ones in macros that also fail for nested NULL."""
    for node in list(tree.find_all(exp.Max, exp.Min, exp.Greatest, exp.Least, exp.Window, exp.Nullif, exp.Case,
                                   exp.ArrayUniqueAgg, exp.Anonymous, exp.Select)):  # fmt: skip
        match node:
            case exp.Max() | exp.Min():
                _guard("sortable", node.this)
            case exp.Greatest() | exp.Least():
                _guard("sortable", node.this, *node.expressions)
            case exp.Window():
                order = node.args.get("order")
                keys = [] if order is None else [each.this for each in order.expressions]
                _guard("window_key", *(node.args.get("partition_by") or ()), *keys)
            case exp.Select(args={"order": exp.Order() as order}) if not _is_sorted_by_output(node):
                _guard("sortable", *(_resolve_sort_key(node, each.this) for each in order.expressions))
            case exp.Nullif() | exp.ArrayUniqueAgg():
                _guard("comparable", node.this)
            case exp.Case(args={"this": exp.Expr() as compared}):
                _guard("comparable", compared)
            case exp.Anonymous(expressions=[_, by, *_]) if node.name.lower() in _SORTED_BY_SECOND:
                _guard("sortable", by)


def _resolve_sort_key(select: exp.Select, key: exp.Expr) -> exp.Expr:
    """Return the expression that a sort key names: DuckDB rejects an alias within an expression if it may fail."""
    if isinstance(key, exp.Column) and not key.table:
        for item in select.expressions:
            if isinstance(item, exp.Alias) and item.alias.casefold() == key.name.casefold():
                value: exp.Expr = item.this
                return value
    return key


def _is_sorted_by_output(select: exp.Expr) -> bool:
    """Return whether ORDER BY sees only the output columns of a query, by their names."""
    return any(select.args.get(each) for each in ("group", "distinct", "having"))


def _guard(kind: str, *values: exp.Expr) -> None:
    for value in values:
        if isinstance(value, _MAY_BE_NESTED) and not has_aggregate_or_window(value):
            beside = [value.copy()] if kind == "window_key" else []
            value.replace(call_macro(f"plain_{kind}", *beside, value.copy()))


# --- GROUP BY ---------------------------------------------------------------------------------------------------------

_NEVER_MAPS = (exp.Literal, exp.Null, exp.Boolean, exp.Binary, exp.Unary, exp.Star)


def normalise_group_keys(tree: exp.Expr) -> None:
    """Sort the entries of the maps that a query groups by, wherever the query repeats such a key."""
    for select in list(tree.find_all(exp.Select)):
        group = select.args.get("group")
        if group is not None:
            _normalise_keys_of(select, group)


def _normalise_keys_of(select: exp.Select, group: exp.Group) -> None:
    items = {item.alias_or_name.casefold(): item for item in select.expressions if item.alias_or_name}
    keys: list[exp.Expr] = []
    for key in _collect_keys(group):
        position = key.name if isinstance(key, exp.Literal) and not key.is_string else ""
        if position.isdecimal() and 0 < int(position) <= len(select.expressions):
            keys.append(select.expressions[int(position) - 1].unalias())
            continue
        item = items.get(key.name.casefold()) if isinstance(key, exp.Column) and not key.table else None
        if item is not None and not _is_same(item.unalias(), key):
            # An alias: the aliased expression is a key too.
            keys.append(item.unalias())
        keys.append(key)
    keys = [
        key.copy() for key in keys if not isinstance(key.unnest(), _NEVER_MAPS) and not has_aggregate_or_window(key)
    ]
    if not keys:
        return
    for item in list(select.expressions):
        value = item.unalias()
        name = item.alias_or_name
        if any(_is_same(value, key) for key in keys):
            sorted_key = _sort_map_entries(value)
            named = exp.alias_(sorted_key, name, quoted=True, copy=False) if name else sorted_key
            item.replace(named)
        else:
            _replace_within(item, keys)
    for part in (group, *(select.args.get(each) for each in ("having", "qualify"))):
        if part is not None:
            _replace_within(part, keys, {name for name in items if not _is_column(items[name], name)})
    order = select.args.get("order")
    if order is not None:
        _replace_within(order, keys, set(items))


def _collect_keys(group: exp.Group) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    stack = list(group.expressions)
    while stack:
        key = stack.pop(0)
        if isinstance(key, exp.GroupingSets | exp.Rollup | exp.Cube | exp.Tuple):
            stack = [*key.expressions, *stack]
        elif isinstance(key, exp.Paren):
            stack.insert(0, key.this)
        else:
            found.append(key)
    return found


def _is_column(item: exp.Expr, name: str) -> bool:
    value = item.unalias()
    return isinstance(value, exp.Column) and value.name.casefold() == name


def _is_same(one: exp.Expr, other: exp.Expr) -> bool:
    if isinstance(one, exp.Column) and isinstance(other, exp.Column):
        tables = {each.table.casefold() for each in (one, other) if each.table}
        return one.name.casefold() == other.name.casefold() and len(tables) < 2
    return one == other


def _sort_map_entries(value: exp.Expr) -> exp.Expr:
    return call_macro("plain_group_key", value.copy(), value.copy())


def _replace_within(root: exp.Expr, keys: list[exp.Expr], aliases: set[str] | None = None) -> None:
    """Replace keys below a node by sorted keys, but not in the arguments of aggregates and not in subqueries."""
    stack = list(root.iter_expressions())
    while stack:
        node = stack.pop()
        is_alias = isinstance(node, exp.Column) and not node.table and node.name.casefold() in (aliases or ())
        if isinstance(node, exp.Query) or is_alias:
            continue
        if any(_is_same(node, key) for key in keys):
            node.replace(_sort_map_entries(node))
        elif isinstance(node, exp.Window) or not _is_aggregate(node):
            stack += list(node.iter_expressions())


_KEY_FUNCTIONS = frozenset(
    f"{prefix}{name}"
    for prefix in ("", DUCKDB_PREFIX)
    for name in ("grouping", "grouping_id", "unnest", "generate_subscripts")
)
"""Functions over several rows whose arguments are nevertheless group keys."""


def _is_aggregate(node: exp.Expr) -> bool:
    """Return whether a node is itself a call of an aggregate function."""
    if isinstance(node, exp.AggFunc | exp.WithinGroup | exp.Filter):
        # The argument of `grouping` is a group key.
        return not isinstance(node, exp.Grouping | exp.GroupingId)
    if not isinstance(node, exp.Anonymous) or node.name.lower() in _KEY_FUNCTIONS:
        return False
    return has_aggregate_or_window(exp.Anonymous(this=node.name))

"""Spark syntax that sqlglot does not translate to DuckDB: lateral views, WITH ROLLUP, `any`, `range`, `UNPIVOT`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from tamis.engines.duckdb.translate.calls import call_duckdb, call_macro, make_unsupported_error
from tamis.expr.functions.aggregates import Kind, find_aggregate, is_aggregate, is_of_kind
from tamis.expr.sql.dialect import MAX_LEVELS_OPTION
from tamis.query.sql.common_tables import find_references_to, split_recursive_query

# --- Translation of aggregate functions that differ between Spark and DuckDB ------------------------------------------
#
# | in Spark                             | in DuckDB                       | translation                            |
# |--------------------------------------|---------------------------------|----------------------------------------|
# | `count_if`: 0 for no rows            | NULL                            | `count` of the TRUE values             |
# | `collect_list`, …: [] for no rows    | NULL                            | `coalesce` with []                     |
# | `percentile`: interpolated           | one of the values               | `quantile_cont` of doubles             |
# | `percentile_cont(q) WITHIN GROUP (…)`| DESC is lost in a window        | `quantile_cont`; -q for DESC           |
# | `kurtosis`: of the population        | estimated from a sample         | `kurtosis_pop`                         |

_RENAMED = {("kurtosis", 1): "duckdb_kurtosis_pop"}
_EXTREMES = {"max_by": "duckdb_arg_max", "min_by": "duckdb_arg_min"}
MAX_EXTREMES = 100_000
"""The maximum number of values that Spark's max_by and min_by return."""
_PERCENTILES = {"percentile_cont": "duckdb_quantile_cont", "percentile_disc": "duckdb_quantile_disc"}
_CALL_WRAPPERS = (exp.Filter, exp.Window, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
"""Nodes around a call that belong to it."""


def translate_aggregates(tree: exp.Expr) -> None:
    """Replace the aggregate calls in a tree by their translations. All functions in it are `exp.Anonymous`."""
    for ordered in list(tree.find_all(exp.WithinGroup)):
        _order_percentile(ordered)
    for call in list(tree.find_all(exp.Anonymous)):
        name, args = call.name.lower(), call.expressions
        if (renamed := _RENAMED.get((name, len(args)))) is not None:
            call.set("this", renamed)
        elif name == "percentile" and len(args) == 2:
            call.replace(_make_quantile("duckdb_quantile_cont", args[0], args[1]))
        elif name == "median" and len(args) == 1 and not isinstance(args[0], exp.Distinct):
            call.replace(_make_quantile("duckdb_quantile_cont", args[0], exp.Literal.number("0.5")))
        elif name in _EXTREMES and len(args) == 3:
            _keep_null_values(call)
        elif name == "count_if" and len(args) == 1:
            is_true = exp.Case(ifs=[exp.If(this=args[0], true=exp.Literal.number(1))])
            call.replace(exp.Anonymous(this="count", expressions=[is_true]))
        elif (row := find_aggregate(name)) is not None and row.returns_list:
            whole = _get_whole_call(call)
            whole.replace(exp.Anonymous(this="coalesce", expressions=[whole.copy(), exp.Anonymous(this="array")]))


def _get_whole_call(call: exp.Expr) -> exp.Expr:
    """Return a call with its FILTER and OVER."""
    while isinstance(call.parent, _CALL_WRAPPERS) and call.arg_key == "this":
        call = call.parent
    return call


def _keep_null_values(call: exp.Anonymous) -> None:
    """Wrap x in a struct in `max_by(x, y, 3)`: DuckDB drops rows whose x is NULL, but a struct is not NULL."""
    value, by, count = call.expressions
    if not isinstance(count, exp.Literal) or count.is_string or not count.name.isdecimal():
        raise make_unsupported_error(call.name, "its number of values must be a constant")
    if not 0 < int(count.name) <= MAX_EXTREMES:
        raise make_unsupported_error(call.name, f"its number of values must be between 1 and {MAX_EXTREMES}")
    boxed = exp.Anonymous(this="named_struct", expressions=[exp.Literal.string("v"), value.copy()])
    found = exp.Anonymous(this=_EXTREMES[call.name.lower()], expressions=[boxed, by.copy(), count.copy()])
    whole = _get_whole_call(call)
    call.replace(found) if whole is not call else None
    inner = found if whole is call else whole.copy()
    item = exp.to_identifier("boxed")
    field = exp.Dot(this=exp.column("boxed"), expression=exp.to_identifier("v"))
    whole.replace(exp.Anonymous(this="transform", expressions=[inner, exp.Lambda(this=field, expressions=[item])]))


def _order_percentile(ordered: exp.WithinGroup) -> None:
    """Translate `percentile_cont(0.25) WITHIN GROUP (ORDER BY x DESC)`."""
    call, order = ordered.this, ordered.expression
    name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    if name not in _PERCENTILES:
        return
    keys = order.expressions
    if len(keys) != 1 or len(call.expressions) != 1 or isinstance(call.expressions[0], exp.Distinct):
        raise make_unsupported_error(name, "it takes one percentage, or an array of them, and ORDER BY one value")
    key = keys[0]
    shares = call.expressions[0]
    if key.args.get("desc"):
        shares = _negate_shares(name, shares)
    ordered.replace(_make_quantile(_PERCENTILES[name], key.this, shares))


def _negate_shares(name: str, shares: exp.Expr) -> exp.Expr:
    if isinstance(shares, exp.Anonymous) and shares.name.lower() == "array":
        return exp.Anonymous(this="array", expressions=[_negate_shares(name, each) for each in shares.expressions])
    value = shares.this if isinstance(shares, exp.Cast) else shares
    if not isinstance(value, exp.Literal) or value.is_string:
        raise make_unsupported_error(name, "its percentage must be a constant")
    # DuckDB counts negative shares from the end, and 0 has no sign.
    return exp.Literal.number(1) if float(value.name) == 0 else exp.Neg(this=exp.Literal.number(value.name))


def _make_quantile(function: str, values: exp.Expr, shares: exp.Expr) -> exp.Expr:
    """Return a call of a quantile function over doubles, as Spark's percentiles are."""
    return exp.Anonymous(this=function, expressions=[exp.cast(values.copy(), "double"), shares.copy()])


def translate_syntax(tree: exp.Expr) -> None:
    """Replace Spark's syntax in the tree of a query, for example lateral views by joins of unnested lists.

    >>> from tamis.query.sql.planner import read_query
    >>> from tamis.expr.sql.syntax import to_sql_text
    >>> tree = read_query("SELECT x FROM t LATERAL VIEW explode(xs) e AS x")
    >>> translate_syntax(tree)
    >>> to_sql_text(tree)
    'SELECT x FROM t CROSS JOIN LATERAL (SELECT duckdb_unnest(xs) AS `x`) AS e'
    """
    nodes = list(tree.walk())
    kinds = {type(node) for node in nodes}
    calls = {node.name.lower() for node in nodes if isinstance(node, exp.Anonymous)}
    if "range" in calls:
        _name_ranges(tree)
    if exp.Any in kinds or any(map(is_aggregate, calls)):
        for each in list(tree.find_all(exp.Any, exp.Anonymous)):
            _rename_aggregate(each)
        translate_aggregates(tree)
        nodes = list(tree.walk())
    for node in nodes if kinds & {exp.Group, exp.Pivot, exp.Values, exp.With} else ():
        match node:
            case exp.Group():
                _normalise_keys(node)
            case exp.Pivot():
                _keep_partly_null_rows(node)
                _name_pivoted_columns(node)
            case exp.Values():
                _name_columns(node)
            case exp.With():
                limit_recursion(node)
    if exp.Unnest in kinds or any(is_of_kind(name, Kind.GENERATOR) for name in calls):
        unnest_generators(tree)


def _name_ranges(tree: exp.Expr) -> None:
    """Name the column of a table function `range` as Spark does."""
    for table in tree.find_all(exp.Table):
        call = table.this
        if isinstance(call, exp.Anonymous) and call.name.lower() == "range" and not table.alias_column_names:
            name = exp.to_identifier(table.alias or "range")
            table.set("alias", exp.TableAlias(this=name, columns=[exp.to_identifier("id")]))


def _name_pivoted_columns(pivot: exp.Pivot) -> None:
    """Leave the names of columns to DuckDB for values that are calls: sqlglot names them after the function alone."""
    if any(isinstance(each, exp.Anonymous) for values in pivot.fields for each in values.expressions):
        pivot.set("columns", None)


_AGGREGATES = {"any": "duckdb_bool_or", "some": "duckdb_bool_or", "every": "duckdb_bool_and"}


def _rename_aggregate(call: exp.Expr) -> None:
    """Translate the aggregate `any(x > 5)`; in other dialects `any` compares with the items of a list."""
    if isinstance(call, exp.Anonymous) and call.name.lower() in _AGGREGATES:
        call.set("this", _AGGREGATES[call.name.lower()])
    elif isinstance(call, exp.Any) and not isinstance(call.parent, exp.Binary):
        value = call.this.this if isinstance(call.this, exp.Paren) else call.this
        if not isinstance(value, exp.Query):
            call.replace(exp.Anonymous(this="duckdb_bool_or", expressions=[value]))


def _normalise_keys(group: exp.Group) -> None:
    """Write `GROUP BY a, b WITH ROLLUP` as `GROUP BY ROLLUP (a, b)`, and drop the keys of `GROUP BY a, b GROUPING SETS
    (…)`, which only declare them."""
    if group.args.get("grouping_sets"):
        group.set("expressions", [])
    _drop_empty_groups(group)
    for key in ("rollup", "cube"):
        for each in group.args.get(key) or ():
            if not each.expressions and group.expressions:
                each.set("expressions", group.expressions)
                group.set("expressions", [])


def _drop_empty_groups(group: exp.Group) -> None:
    """Add a HAVING so that no rows give no groups. In Spark even the set () gives no row, unless it is the only set."""
    sets = [each for part in group.expressions if isinstance(part, exp.GroupingSets) for each in part.expressions]
    is_empty = [isinstance(each, exp.Tuple) and not each.expressions for each in sets]
    select = group.parent
    if not any(is_empty) or all(is_empty) or not isinstance(select, exp.Select):
        return
    count = exp.Anonymous(this="count", expressions=[exp.Star()])
    has_rows = exp.GT(this=count, expression=exp.Literal.number(0))
    having = select.args.get("having")
    kept = has_rows if having is None else exp.And(this=exp.Paren(this=having.this), expression=has_rows)
    select.set("having", exp.Having(this=kept))


def _name_columns(values: exp.Values) -> None:
    """Name the columns of VALUES col1, col2, … if the query does not name them."""
    alias = values.args.get("alias")
    if (alias is not None and alias.columns) or not values.expressions:
        return
    first = values.expressions[0]
    width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
    name = alias.this if alias is not None else exp.to_identifier("values", quoted=True)
    columns = [exp.to_identifier(f"col{index + 1}") for index in range(width)]
    if isinstance(values.parent, exp.From | exp.Join):
        values.set("alias", exp.TableAlias(this=name, columns=columns))


def _keep_partly_null_rows(pivot: exp.Pivot) -> None:
    """Make UNPIVOT of several values drop a row only if all of them are NULL. DuckDB drops it if one of them is."""
    values = pivot.expressions[0] if pivot.args.get("unpivot") and pivot.expressions else None
    source = pivot.parent
    if not isinstance(values, exp.Tuple) or pivot.args.get("include_nulls") or not isinstance(source, exp.Expr):
        return
    if len(source.args["pivots"]) > 1:
        return
    alias = pivot.args.get("alias")
    pivot.set("alias", None)
    pivot.set("include_nulls", True)
    not_null = [
        exp.Not(this=exp.Is(this=exp.column(each.copy()), expression=exp.null())) for each in values.expressions
    ]
    rows = exp.Subquery(alias=alias)
    source.replace(rows)
    found = exp.Select(expressions=[exp.Star()], from_=exp.From(this=source))
    rows.set("this", found.where(exp.or_(*not_null), copy=False))


# --- Recursive queries with Spark's limits on levels and rows ---------------------------------------------------------
#
#     WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)
#
#     WITH RECURSIVE `r, counted`(n, level, total) AS (
#         SELECT 1, 1, count(*) OVER ()
#         UNION ALL
#         SELECT n + 1, <level + 1, or an error>, <total + count(*) OVER (), or an error> FROM `r, counted` AS r
#     ), r AS (SELECT * EXCEPT (level, total) FROM `r, counted`)
#
# Every row carries the total number of rows up to its level, so that the next level can add its own.

MAX_LEVELS = 100
"""The default of `spark.sql.cteRecursionLevelLimit`, for a query without MAX RECURSION LEVEL."""
MAX_ROWS = 1_000_000
"""The default of `spark.sql.cteRecursionRowLimit`."""

_LEVEL, _TOTAL = "recursion level", "recursion total"


def limit_recursion(clause: exp.With) -> None:
    """Limit the levels and rows of the recursive queries of a WITH clause."""
    if not clause.recursive:
        return
    found: list[exp.Expr] = []
    for common in clause.expressions:
        name = common.alias.casefold()
        is_recursive = bool(find_references_to(common.this, name))
        found += _count_levels(common, name) if is_recursive else [common]
    clause.set("expressions", found)


def _count_levels(common: exp.CTE, name: str) -> list[exp.Expr]:
    first, rest = (part.unnest() for part in split_recursive_query(common))
    inner = exp.to_identifier(f"{common.alias}, counted", quoted=True)
    given = common.args["alias"].args.get(MAX_LEVELS_OPTION)
    _add_counts(rest, name, inner, MAX_LEVELS if given is None else int(given.name))
    columns = [each.copy() for each in common.args["alias"].columns]
    hidden = _make_hidden_columns()
    # The first rows may be a set operation or VALUES.
    source = exp.Subquery(this=first, alias=exp.TableAlias(this=exp.to_identifier("first rows", quoted=True)))
    around = exp.Select(
        expressions=[
            exp.Star(),
            exp.alias_(exp.cast(exp.Literal.number(1), "bigint"), _LEVEL, quoted=True),
            exp.alias_(exp.cast(_make_row_count(), "bigint"), _TOTAL, quoted=True),
        ],
        from_=exp.From(this=source),
    )
    if isinstance(rest, exp.SetOperation):
        rest = exp.Select(
            expressions=[exp.Star()],
            from_=exp.From(this=exp.Subquery(this=rest, alias=exp.TableAlias(this=exp.to_identifier("next rows")))),
        )
    body = exp.Union(this=around, expression=rest, distinct=False)
    alias = exp.TableAlias(this=inner.copy(), columns=[*columns, *hidden] if columns else [])
    shown = exp.Select(
        expressions=[exp.Star(except_=_make_hidden_columns())], from_=exp.From(this=exp.Table(this=inner.copy()))
    )
    return [exp.CTE(this=body, alias=alias), exp.CTE(this=shown, alias=exp.TableAlias(this=common.args["alias"].this))]


def _make_hidden_columns() -> list[exp.Identifier]:
    return [exp.to_identifier(each, quoted=True) for each in (_LEVEL, _TOTAL)]


def _add_counts(query: exp.Expr, name: str, inner: exp.Identifier, most_levels: int) -> None:
    """Add the level and the row total to the columns of a query that refers to itself, as `inner` then."""
    match query:
        case exp.Union() if not query.args.get("distinct"):
            for side in (query.this, query.expression):
                if not find_references_to(side, name):
                    raise make_unsupported_error(
                        "WITH RECURSIVE", "a side of UNION ALL in its second part does not refer to it"
                    )
                _add_counts(side.unnest(), name, inner, most_levels)
        case exp.Select():
            _add_counts_to_select(query, name, inner, most_levels)
        case _:
            raise make_unsupported_error(
                "WITH RECURSIVE", "a query refers to itself where its levels cannot be counted"
            )


def _add_counts_to_select(select: exp.Select, name: str, inner: exp.Identifier, most_levels: int) -> None:
    tables = find_references_to(select, name)
    sources = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
    own = [each for each in sources if any(each is table for table in tables)]
    below = [each for each in sources if isinstance(each, exp.Subquery) and find_references_to(each, name)]
    if len(own) + len(below) == 0 or sum(len(find_references_to(each, name)) for each in below) + len(own) < len(
        tables
    ):
        raise make_unsupported_error("WITH RECURSIVE", "a query refers to itself where its levels cannot be counted")
    for table in own:
        if not table.alias:
            table.set("alias", exp.TableAlias(this=table.this.copy()))
        table.set("this", inner.copy())
        if table.args["alias"].columns:
            table.args["alias"].set("columns", [*table.args["alias"].columns, *_make_hidden_columns()])
    for number, source in enumerate(below):
        _add_counts(source.this.unnest(), name, inner, most_levels)
        alias = source.args.get("alias")
        if alias is None:
            source.set("alias", exp.TableAlias(this=exp.to_identifier(f"rows of level {number}", quoted=True)))
        elif alias.columns:
            alias.set("columns", [*alias.columns, *_make_hidden_columns()])
    carriers = [each.alias for each in (*own, *below)]
    _hide_counts(select, {each.casefold() for each in carriers})
    level: exp.Expr
    total: exp.Expr
    level, total = (
        exp.column(exp.to_identifier(each, quoted=True), exp.to_identifier(carriers[0], quoted=True))
        for each in (_LEVEL, _TOTAL)
    )
    if own:
        is_last = exp.GTE(this=level.copy(), expression=exp.Literal.number(most_levels))
        following = exp.Add(this=level, expression=exp.Literal.number(1))
        level = _fail_if(is_last, f"{most_levels} levels", following)
        counted = exp.Add(this=total, expression=_make_row_count())
        are_too_many = exp.GT(this=counted.copy(), expression=exp.Literal.number(MAX_ROWS))
        total = _fail_if(are_too_many, f"{MAX_ROWS} rows", counted)
    counts = [exp.alias_(level, _LEVEL, quoted=True), exp.alias_(total, _TOTAL, quoted=True)]
    select.set("expressions", [*select.expressions, *counts])


def _hide_counts(select: exp.Select, carriers: set[str]) -> None:
    for each in select.expressions:
        star = each.this if isinstance(each, exp.Column) else each
        if isinstance(star, exp.Star) and (star is each or each.table.casefold() in carriers):
            star.set("except_", [*(star.args.get("except_") or ()), *_make_hidden_columns()])


def _make_row_count() -> exp.Expr:
    return exp.Window(this=exp.Anonymous(this="count", expressions=[exp.Star()]), over="OVER")


def _fail_if(condition: exp.Expr, limit: str, value: exp.Expr) -> exp.Expr:
    reason = f"a recursive query has more than {limit}: limit it with a condition, or with LIMIT"
    failure = call_duckdb("error", exp.Literal.string(reason))
    return exp.Case(ifs=[exp.If(this=condition, true=failure)], default=value)


# --- Generators -----------------------------------------------------------------------------------------------------
#
# Translation of generators, functions that return several rows, to DuckDB's `unnest`.
#
# | in Spark                                    | in DuckDB                                                            |
# |---------------------------------------------|----------------------------------------------------------------------|
# | `SELECT x, explode(xs) AS e FROM t`         | `SELECT x, unnest(xs) AS e FROM t`                                   |
# | several generators, or one with a window    | `FROM t CROSS JOIN LATERAL (SELECT unnest(xs)) AS g`, and so on      |
# | `LATERAL VIEW explode(xs) e AS x`           | `CROSS JOIN LATERAL (SELECT unnest(xs) AS x) AS e`                   |
# | `FROM explode(xs)`, `JOIN LATERAL …`        | a subquery                                                           |
# | `explode_outer(xs)`, `LATERAL VIEW OUTER`   | the list [NULL] instead of an empty or NULL list                     |
#
# Two generators in one SELECT return all pairs of their rows, and window functions see the generated rows.


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
    is_one = isinstance(tree, exp.Anonymous) and is_of_kind(tree.name, Kind.GENERATOR)
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
        return _Columns((call_duckdb("unnest", kept.copy(), depth),), None)
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
    return call_duckdb("unnest", values.copy())


def _make_outer_items(values: exp.Expr) -> exp.Expr:
    return call_macro("outer_items", values.copy())


def _make_positions(values: exp.Expr) -> exp.Expr:
    """Return the positions of items, from 0. They are NULL for an empty list while other columns have rows."""
    subscripts = call_duckdb("generate_subscripts", values.copy(), exp.Literal.number(1))
    return exp.cast(exp.Paren(this=exp.Sub(this=subscripts, expression=exp.Literal.number(1))), "int")


def _make_select(columns: _Columns) -> exp.Select:
    if columns.names is None:
        return exp.Select(expressions=list(columns.values))
    return exp.Select(
        expressions=[exp.alias_(*pair, quoted=True) for pair in zip(columns.values, columns.names, strict=True)]
    )


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
    if isinstance(lateral.parent, exp.From):
        lateral.replace(source)
        return
    alias = source.args.get("alias")
    source.set("alias", None)
    lateral.replace(exp.Lateral(this=source, alias=alias))


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
        sizes = (call_duckdb("len", each.copy()) for each in lists)
        lengths = [exp.Anonymous(this="coalesce", expressions=[size, exp.Literal.number(0)]) for size in sizes]
        longest = lengths[0] if len(lengths) == 1 else exp.Anonymous(this="greatest", expressions=lengths)
        end = exp.Add(this=longest, expression=exp.Literal.number(1))
        values.append(exp.cast(_make_unnest(call_duckdb("range", exp.Literal.number(1), end)), "int"))
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
            select.set("expressions", [exp.alias_(*pair, quoted=True) for pair in zip(values, given, strict=True)])
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
            if is_aggregate(name) and not _is_windowed_call(node):
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
            exp.alias_(exp.column(exp.to_identifier(each, quoted=True), table.copy()), name, quoted=True)
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

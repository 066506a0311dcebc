"""Spark syntax that sqlglot does not translate to DuckDB: lateral views, WITH ROLLUP, `any`, `range`, `UNPIVOT`."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from tamis.engines.duckdb.translate.calls import make_unsupported_error
from tamis.engines.duckdb.translate.generators import GENERATORS, unnest_generators
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

_LISTS = frozenset(("collect_list", "collect_set", "array_agg"))
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
        elif name in _LISTS:
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
    if exp.Any in kinds or not calls.isdisjoint(_TRANSLATED_CALLS):
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
    if exp.Unnest in kinds or not calls.isdisjoint(GENERATORS):
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
_TRANSLATED_CALLS = frozenset((
    *_AGGREGATES, *_LISTS, *_EXTREMES, *_PERCENTILES, "kurtosis", "percentile", "median", "count_if",
))  # fmt: skip


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
    _add_counts(rest, name, _CountedQuery(inner, MAX_LEVELS if given is None else int(given.name)))
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


@dataclass(frozen=True, slots=True)
class _CountedQuery:
    """A recursive query that counts its levels: its name, and its maximum number of levels."""

    name: exp.Identifier
    most_levels: int


def _make_hidden_columns() -> list[exp.Identifier]:
    return [exp.to_identifier(each, quoted=True) for each in (_LEVEL, _TOTAL)]


def _add_counts(query: exp.Expr, name: str, inner: _CountedQuery) -> None:
    """Add the level and the row total to the columns of a query that refers to itself."""
    match query:
        case exp.Union() if not query.args.get("distinct"):
            for side in (query.this, query.expression):
                if not find_references_to(side, name):
                    raise make_unsupported_error(
                        "WITH RECURSIVE", "a side of UNION ALL in its second part does not refer to it"
                    )
                _add_counts(side.unnest(), name, inner)
        case exp.Select():
            _add_counts_to_select(query, name, inner)
        case _:
            raise make_unsupported_error(
                "WITH RECURSIVE", "a query refers to itself where its levels cannot be counted"
            )


def _add_counts_to_select(select: exp.Select, name: str, inner: _CountedQuery) -> None:
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
        table.set("this", inner.name.copy())
        if table.args["alias"].columns:
            table.args["alias"].set("columns", [*table.args["alias"].columns, *_make_hidden_columns()])
    for number, source in enumerate(below):
        _add_counts(source.this.unnest(), name, inner)
        alias = source.args.get("alias")
        if alias is None:
            source.set("alias", exp.TableAlias(this=exp.to_identifier(f"rows of level {number}", quoted=True)))
        elif alias.columns:
            alias.set("columns", [*alias.columns, *_make_hidden_columns()])
    carriers = [each.alias for each in (*own, *below)]
    _hide_counts(select, {each.casefold() for each in carriers})
    level, total = (
        exp.column(exp.to_identifier(each, quoted=True), exp.to_identifier(carriers[0], quoted=True))
        for each in (_LEVEL, _TOTAL)
    )
    if own:
        next_level, next_total = _make_next_level(level, inner.most_levels), _make_next_total(total)
    else:
        next_level, next_total = level, total
    counts = [exp.alias_(next_level, _LEVEL, quoted=True), exp.alias_(next_total, _TOTAL, quoted=True)]
    select.set("expressions", [*select.expressions, *counts])


_REASON = "a recursive query has more than {}: limit it with a condition, or with LIMIT"


def _make_next_level(level: exp.Expr, most: int) -> exp.Expr:
    is_last = exp.GTE(this=level.copy(), expression=exp.Literal.number(most))
    following = exp.Add(this=level, expression=exp.Literal.number(1))
    return _fail_if(is_last, _REASON.format(f"{most} levels"), following)


def _make_next_total(total: exp.Expr) -> exp.Expr:
    following = exp.Add(this=total, expression=_make_row_count())
    are_too_many = exp.GT(this=following.copy(), expression=exp.Literal.number(MAX_ROWS))
    return _fail_if(are_too_many, _REASON.format(f"{MAX_ROWS} rows"), following)


def _hide_counts(select: exp.Select, carriers: set[str]) -> None:
    for each in select.expressions:
        star = each.this if isinstance(each, exp.Column) else each
        if isinstance(star, exp.Star) and (star is each or each.table.casefold() in carriers):
            star.set("except_", [*(star.args.get("except_") or ()), *_make_hidden_columns()])


def _make_row_count() -> exp.Expr:
    return exp.Window(this=exp.Anonymous(this="count", expressions=[exp.Star()]), over="OVER")


def _fail_if(condition: exp.Expr, reason: str, value: exp.Expr) -> exp.Expr:
    failure = exp.Anonymous(this="duckdb_error", expressions=[exp.Literal.string(reason)])
    return exp.Case(ifs=[exp.If(this=condition, true=failure)], default=value)

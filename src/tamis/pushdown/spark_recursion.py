"""Recursive queries with Spark's limits on levels and rows.

    WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)

    WITH RECURSIVE `r, counted`(n, level, total) AS (
        SELECT 1, 1, count(*) OVER ()
        UNION ALL
        SELECT n + 1, <level + 1, or an error>, <total + count(*) OVER (), or an error> FROM `r, counted` AS r
    ), r AS (SELECT * EXCEPT (level, total) FROM `r, counted`)

Every row carries the total number of rows up to its level, so that the next level can add its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from tamis.expr.sql_dialect import MAX_LEVELS as LEVELS_OF_ALIAS
from tamis.pushdown.sql_recursion import find_references_to, split_recursive_query
from tamis.scan.spark_calls import make_unsupported_error

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
    given = common.args["alias"].args.get(LEVELS_OF_ALIAS)
    _add_counts(rest, name, _CountedQuery(inner, MAX_LEVELS if given is None else int(given.name)))
    columns = [each.copy() for each in common.args["alias"].columns]
    hidden = _hidden_columns()
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
        expressions=[exp.Star(except_=_hidden_columns())], from_=exp.From(this=exp.Table(this=inner.copy()))
    )
    return [exp.CTE(this=body, alias=alias), exp.CTE(this=shown, alias=exp.TableAlias(this=common.args["alias"].this))]


@dataclass(frozen=True, slots=True)
class _CountedQuery:
    """A recursive query that counts its levels: its name, and its maximum number of levels."""

    name: exp.Identifier
    most_levels: int


def _hidden_columns() -> list[exp.Identifier]:
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
            table.args["alias"].set("columns", [*table.args["alias"].columns, *_hidden_columns()])
    for number, source in enumerate(below):
        _add_counts(source.this.unnest(), name, inner)
        alias = source.args.get("alias")
        if alias is None:
            source.set("alias", exp.TableAlias(this=exp.to_identifier(f"rows of level {number}", quoted=True)))
        elif alias.columns:
            alias.set("columns", [*alias.columns, *_hidden_columns()])
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
            star.set("except_", [*(star.args.get("except_") or ()), *_hidden_columns()])


def _make_row_count() -> exp.Expr:
    return exp.Window(this=exp.Anonymous(this="count", expressions=[exp.Star()]), over="OVER")


def _fail_if(condition: exp.Expr, reason: str, value: exp.Expr) -> exp.Expr:
    failure = exp.Anonymous(this="duckdb_error", expressions=[exp.Literal.string(reason)])
    return exp.Case(ifs=[exp.If(this=condition, true=failure)], default=value)

"""Recursive queries, which end after as many levels and rows as in Spark.

    WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)

    WITH RECURSIVE `r, counted`(n, level, total) AS (
        SELECT 1, 1, count(*) OVER ()
        UNION ALL
        SELECT n + 1, <level + 1, or an error>, <total + count(*) OVER (), or an error> FROM `r, counted` AS r
    ), r AS (SELECT * EXCEPT (level, total) FROM `r, counted`)

All rows of a level carry how many rows there were up to it, so that the next level can add its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from tamis.expr.sql_dialect import MOST_LEVELS as LEVELS_OF_ALIAS
from tamis.pushdown.sql_recursion import recursive_parts, references
from tamis.scan.spark_calls import refusal

MOST_LEVELS = 100
"""As `spark.sql.cteRecursionLevelLimit` is, where the query has no MAX RECURSION LEVEL."""
MOST_ROWS = 1_000_000
"""As `spark.sql.cteRecursionRowLimit` is."""

_LEVEL, _TOTAL = "recursion level", "recursion total"


def bound_recursion(clause: exp.With) -> None:
    """Count the levels and rows of the recursive queries of a WITH."""
    if not clause.recursive:
        return
    found: list[exp.Expr] = []
    for common in clause.expressions:
        name = common.alias.casefold()
        is_recursive = bool(references(common.this, name))
        found += _counted(common, name) if is_recursive else [common]
    clause.set("expressions", found)


def _counted(common: exp.CTE, name: str) -> list[exp.Expr]:
    first, rest = (part.unnest() for part in recursive_parts(common))
    inner = exp.to_identifier(f"{common.alias}, counted", quoted=True)
    given = common.args["alias"].args.get(LEVELS_OF_ALIAS)
    _carry(rest, name, _Counted(inner, MOST_LEVELS if given is None else int(given.name)))
    columns = [each.copy() for each in common.args["alias"].columns]
    hidden = _hidden()
    # The first rows may be a set operation or VALUES.
    source = exp.Subquery(this=first, alias=exp.TableAlias(this=exp.to_identifier("first rows", quoted=True)))
    around = exp.Select(
        expressions=[
            exp.Star(),
            exp.alias_(exp.cast(exp.Literal.number(1), "bigint"), _LEVEL, quoted=True),
            exp.alias_(exp.cast(_count(), "bigint"), _TOTAL, quoted=True),
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
    shown = exp.Select(expressions=[exp.Star(except_=_hidden())], from_=exp.From(this=exp.Table(this=inner.copy())))
    return [exp.CTE(this=body, alias=alias), exp.CTE(this=shown, alias=exp.TableAlias(this=common.args["alias"].this))]


@dataclass(frozen=True, slots=True)
class _Counted:
    """A recursive query that counts its levels: its name, and how many it may have."""

    name: exp.Identifier
    most_levels: int


def _hidden() -> list[exp.Identifier]:
    return [exp.to_identifier(each, quoted=True) for each in (_LEVEL, _TOTAL)]


def _carry(query: exp.Expr, name: str, inner: _Counted) -> None:
    """Let a query that refers to itself return the level and the total of its rows as well."""
    match query:
        case exp.Union() if not query.args.get("distinct"):
            for side in (query.this, query.expression):
                if not references(side, name):
                    raise refusal("WITH RECURSIVE", "a part of the query that is repeated does not refer to it")
                _carry(side.unnest(), name, inner)
        case exp.Select():
            _carry_select(query, name, inner)
        case _:
            raise refusal("WITH RECURSIVE", "a query refers to itself in a place of which the levels cannot be counted")


def _carry_select(select: exp.Select, name: str, inner: _Counted) -> None:
    tables = references(select, name)
    sources = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
    own = [each for each in sources if any(each is table for table in tables)]
    below = [each for each in sources if isinstance(each, exp.Subquery) and references(each, name)]
    if len(own) + len(below) == 0 or sum(len(references(each, name)) for each in below) + len(own) < len(tables):
        raise refusal("WITH RECURSIVE", "a query refers to itself in a place of which the levels cannot be counted")
    for table in own:
        if not table.alias:
            table.set("alias", exp.TableAlias(this=table.this.copy()))
        table.set("this", inner.name.copy())
        if table.args["alias"].columns:
            table.args["alias"].set("columns", [*table.args["alias"].columns, *_hidden()])
    for place, source in enumerate(below):
        _carry(source.this.unnest(), name, inner)
        alias = source.args.get("alias")
        if alias is None:
            source.set("alias", exp.TableAlias(this=exp.to_identifier(f"rows of level {place}", quoted=True)))
        elif alias.columns:
            alias.set("columns", [*alias.columns, *_hidden()])
    carriers = [each.alias for each in (*own, *below)]
    _hide_counts(select, {each.casefold() for each in carriers})
    level, total = (
        exp.column(exp.to_identifier(each, quoted=True), exp.to_identifier(carriers[0], quoted=True))
        for each in (_LEVEL, _TOTAL)
    )
    if own:
        next_level, next_total = _next_level(level, inner.most_levels), _next_total(total)
    else:
        next_level, next_total = level, total
    counts = [exp.alias_(next_level, _LEVEL, quoted=True), exp.alias_(next_total, _TOTAL, quoted=True)]
    select.set("expressions", [*select.expressions, *counts])


_REASON = "a recursive query has more than {}: bound it with a condition, or with LIMIT"


def _next_level(level: exp.Expr, most: int) -> exp.Expr:
    is_last = exp.GTE(this=level.copy(), expression=exp.Literal.number(most))
    following = exp.Add(this=level, expression=exp.Literal.number(1))
    return _unless(is_last, _REASON.format(f"{most} levels"), following)


def _next_total(total: exp.Expr) -> exp.Expr:
    following = exp.Add(this=total, expression=_count())
    are_too_many = exp.GT(this=following.copy(), expression=exp.Literal.number(MOST_ROWS))
    return _unless(are_too_many, _REASON.format(f"{MOST_ROWS} rows"), following)


def _hide_counts(select: exp.Select, carriers: set[str]) -> None:
    for each in select.expressions:
        star = each.this if isinstance(each, exp.Column) else each
        if isinstance(star, exp.Star) and (star is each or each.table.casefold() in carriers):
            star.set("except_", [*(star.args.get("except_") or ()), *_hidden()])


def _count() -> exp.Expr:
    return exp.Window(this=exp.Anonymous(this="count", expressions=[exp.Star()]), over="OVER")


def _unless(condition: exp.Expr, reason: str, value: exp.Expr) -> exp.Expr:
    failure = exp.Anonymous(this="duckdb_error", expressions=[exp.Literal.string(reason)])
    return exp.Case(ifs=[exp.If(this=condition, true=failure)], default=value)

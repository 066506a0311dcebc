"""Syntax of Spark that sqlglot does not turn into DuckDB's: lateral views, WITH ROLLUP, `any`, `range`, `UNPIVOT`."""

from __future__ import annotations

import re

import sqlglot
from sqlglot import exp

from tamis.expr.sql_syntax import SparkCalls, SparkText
from tamis.pushdown.spark_aggregates import NAMES, put_in_words

_CHANGED = ("lateral", "range", "with", "grouping", "any", "some", "every", "unpivot", "explode", "explode_outer",
            "posexplode_outer", *NAMES)  # fmt: skip
_WORDS = re.compile(rf"\b({'|'.join(_CHANGED)})\b", re.IGNORECASE)


def in_duckdb_syntax(text: str) -> str:
    """The text with joins of unnested lists in the place of lateral views.

    >>> in_duckdb_syntax("SELECT x FROM t LATERAL VIEW explode(xs) e AS x")
    'SELECT x FROM t CROSS JOIN LATERAL (SELECT unnest(xs) AS `x`) AS e'
    """
    if not _WORDS.search(text):
        return text
    tree = sqlglot.parse_one(text, read=SparkCalls)
    for table in tree.find_all(exp.Table):
        if (
            isinstance(table.this, exp.Anonymous)
            and table.this.name.lower() == "range"
            and not table.alias_column_names
        ):
            name = exp.to_identifier(table.alias or "range")
            table.set("alias", exp.TableAlias(this=name, columns=[exp.to_identifier("id")]))
    for each in list(tree.find_all(exp.Any, exp.Anonymous)):
        _rename_aggregate(each)
    put_in_words(tree)
    for group in tree.find_all(exp.Group):
        _bracket_keys(group)
    for pivot in list(tree.find_all(exp.Pivot)):
        _keep_partly_null(pivot)
    for join in list(tree.find_all(exp.Join)):
        _unnest_joined(join)
    for select in tree.find_all(exp.Select):
        select.set("expressions", [each for item in select.expressions for each in _unnested(item)])
        views = [each for each in select.args.get("laterals") or () if isinstance(each, exp.Lateral)]
        joins = [_join(each) for each in views if each.args.get("view")]
        if None in joins or len(joins) != len(select.args.get("laterals") or ()):
            continue
        select.set("laterals", None)
        select.set("joins", [*(select.args.get("joins") or ()), *joins])
    return tree.sql(SparkText, normalize_functions=False)


_AGGREGATES = {"any": "bool_or", "some": "bool_or", "every": "bool_and"}


def _rename_aggregate(call: exp.Expr) -> None:
    """`any(x > 5)`, which is a comparison with all of a list elsewhere."""
    if isinstance(call, exp.Anonymous) and call.name.lower() in _AGGREGATES:
        call.set("this", _AGGREGATES[call.name.lower()])
    elif isinstance(call, exp.Any) and not isinstance(call.parent, exp.Binary):
        value = call.this.this if isinstance(call.this, exp.Paren) else call.this
        if not isinstance(value, exp.Query):
            call.replace(exp.Anonymous(this="bool_or", expressions=[value]))


def _bracket_keys(group: exp.Group) -> None:
    """`GROUP BY a, b WITH ROLLUP` as `GROUP BY ROLLUP (a, b)`, and `GROUP BY a, b GROUPING SETS (…)` without the keys,
    which are only told there."""
    if group.args.get("grouping_sets"):
        group.set("expressions", [])
    for key in ("rollup", "cube"):
        for each in group.args.get(key) or ():
            if not each.expressions and group.expressions:
                each.set("expressions", group.expressions)
                group.set("expressions", [])


def _keep_partly_null(pivot: exp.Pivot) -> None:
    """UNPIVOT of several values leaves out rows in which all of them are NULL: DuckDB does where one of them is."""
    values = pivot.expressions[0] if pivot.args.get("unpivot") and pivot.expressions else None
    source = pivot.parent
    if not isinstance(values, exp.Tuple) or pivot.args.get("include_nulls") or not isinstance(source, exp.Expr):
        return
    if len(source.args["pivots"]) > 1:
        return
    alias = pivot.args.get("alias")
    pivot.set("alias", None)
    pivot.set("include_nulls", True)
    is_there = [
        exp.Not(this=exp.Is(this=exp.column(each.copy()), expression=exp.null())) for each in values.expressions
    ]
    rows = exp.Subquery(alias=alias)
    source.replace(rows)
    found = exp.Select(expressions=[exp.Star()], from_=exp.From(this=source))
    rows.set("this", found.where(exp.or_(*is_there), copy=False))


def _unnest_joined(join: exp.Join) -> None:
    """`FROM t, LATERAL explode(xs) AS v(x)`."""
    lateral = join.this
    if isinstance(lateral, exp.Lateral) and isinstance(lateral.this, exp.Anonymous) and not lateral.args.get("view"):
        found = _join(lateral)
        if found is not None and found.side and join.kind == "CROSS":
            join.replace(found)
        elif found is not None and not found.side:
            join.set("this", found.this)


def _unnested(item: exp.Expr) -> list[exp.Expr]:
    """What a SELECT returns of maps and of empty lists: `explode(map) AS (k, v)`, `explode_outer(list)`."""
    names = [each.name for each in item.expressions] if isinstance(item, exp.Aliases) else [item.alias or "col"]
    call = item.this if isinstance(item, exp.Alias | exp.Aliases) else item
    if not isinstance(call, exp.Anonymous) or len(call.expressions) != 1:
        return [item]
    values = call.expressions[0]
    match call.name.lower(), len(names):
        case "explode", 2:
            found = [_unnest(exp.Anonymous(this=part, expressions=[values])) for part in ("map_keys", "map_values")]
        case "explode_outer", 1:
            found = [_unnest(_or_null(values))]
        case "posexplode_outer", 2:
            # The shorter of two lists ends with NULL.
            found = [_places(values), _unnest(_or_null(values))]
        case _:
            return [item]
    return [_named(value, name) for value, name in zip(found, names, strict=True)]


def _or_null(values: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="spark_outer_items", expressions=[values.copy()])


def _places(values: exp.Expr) -> exp.Expr:
    subscripts = exp.Anonymous(this="generate_subscripts", expressions=[values.copy(), exp.Literal.number(1)])
    return exp.Sub(this=subscripts, expression=exp.Literal.number(1))


def _join(view: exp.Lateral) -> exp.Join | None:
    call = view.this
    if not isinstance(call, exp.Anonymous) or len(call.expressions) != 1:
        return None
    alias = view.args.get("alias")
    names = [each.name for each in alias.columns] if alias is not None else []
    values = call.expressions[0]
    match call.name.lower().removesuffix("_outer"), len(names):
        case "explode", 0 | 1:
            columns = [_named(_unnest(values), names[0] if names else "col")]
        case "posexplode", 0 | 2:
            place, item = names or ("pos", "col")
            columns = [_named(_places(values), place), _named(_unnest(values), item)]
        case "explode", 2:
            entries = exp.Anonymous(this="map_entries", expressions=[values])
            unnested = exp.Select(expressions=[_named(_unnest(entries), "entry")])
            columns = [
                _named(exp.Dot(this=exp.column("entry"), expression=exp.to_identifier(field)), name)
                for field, name in zip(("key", "value"), names, strict=True)
            ]
            source = exp.From(this=exp.Subquery(this=unnested, alias=exp.TableAlias(this=exp.to_identifier("entries"))))
            return _lateral(exp.Select(expressions=columns, from_=source), view, call)
        case _:
            return None
    return _lateral(exp.Select(expressions=columns), view, call)


def _lateral(select: exp.Select, view: exp.Lateral, call: exp.Anonymous) -> exp.Join:
    is_outer = bool(view.args.get("outer")) or call.name.lower().endswith("_outer")
    alias = view.args.get("alias")
    name = alias.this.copy() if alias is not None and alias.this is not None else exp.to_identifier("view")
    lateral = exp.Lateral(this=exp.Subquery(this=select), alias=exp.TableAlias(this=name))
    if is_outer:
        return exp.Join(this=lateral, side="LEFT", on=exp.true())
    return exp.Join(this=lateral, kind="CROSS")


def _unnest(values: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="unnest", expressions=[values.copy()])


def _named(value: exp.Expr, name: str) -> exp.Expr:
    return exp.alias_(value, name, quoted=True)

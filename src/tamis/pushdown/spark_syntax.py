"""Spark syntax that sqlglot does not translate to DuckDB: lateral views, WITH ROLLUP, `any`, `range`, `UNPIVOT`."""

from __future__ import annotations

import re

import sqlglot
from sqlglot import exp

from tamis.expr.sql_dialect import SparkCalls, SparkText
from tamis.pushdown.spark_aggregates import TRANSLATED_AGGREGATES, translate_aggregates
from tamis.pushdown.spark_generators import GENERATORS, unnest_generators
from tamis.pushdown.spark_recursion import limit_recursion

_TRANSLATED_KEYWORDS = ("lateral", "range", "with", "grouping", "any", "some", "every", "unpivot", "unnest", "values",
                        *GENERATORS, *TRANSLATED_AGGREGATES)  # fmt: skip
_KEYWORDS = re.compile(rf"\b({'|'.join(_TRANSLATED_KEYWORDS)})\b", re.IGNORECASE)


def to_duckdb_syntax(text: str) -> str:
    """Return the text with Spark syntax replaced, for example lateral views by joins of unnested lists.

    >>> in_duckdb_syntax("SELECT x FROM t LATERAL VIEW explode(xs) e AS x")
    'SELECT x FROM t CROSS JOIN LATERAL (SELECT duckdb_unnest(xs) AS `x`) AS e'
    """
    if not _KEYWORDS.search(text):
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
    translate_aggregates(tree)
    for group in tree.find_all(exp.Group):
        _normalise_keys(group)
    for pivot in list(tree.find_all(exp.Pivot)):
        _keep_partly_null_rows(pivot)
    for values in list(tree.find_all(exp.Values)):
        _name_columns(values)
    for clause in list(tree.find_all(exp.With)):
        limit_recursion(clause)
    unnest_generators(tree)
    return tree.sql(SparkText, normalize_functions=False)


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
    """Add a HAVING so that no rows give no groups. In Spark even the set () gives none, unless it is the only set."""
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

"""SQL that a filter cannot contain: subqueries, aggregates, windows, parameters. Each error says what to write."""

from __future__ import annotations

from sqlglot import exp

from tamis.errors import ParseError, Position

AGGREGATES = frozenset({
    "any", "any_value", "approx_count_distinct", "approx_percentile", "array_agg", "avg", "bit_and", "bit_or",
    "bit_xor", "bool_and", "bool_or", "collect_list", "collect_set", "corr", "count", "count_if",
    "count_min_sketch", "covar_pop", "covar_samp", "every", "first", "first_value", "grouping", "grouping_id",
    "histogram_numeric", "kurtosis", "last", "last_value", "listagg", "max", "max_by", "mean", "median", "min",
    "min_by", "mode", "percentile", "percentile_approx", "percentile_cont", "percentile_disc", "regr_avgx",
    "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
    "skewness", "some", "std", "stddev", "stddev_pop", "stddev_samp", "string_agg", "sum", "try_avg", "try_sum",
    "var_pop", "var_samp", "variance",
})  # fmt: skip
"""Spark's aggregate functions."""

_REFUSED: tuple[tuple[tuple[type[exp.Expr], ...], str, str], ...] = (
    (
        (exp.Query, exp.Exists),
        "a subquery cannot be part of a filter",
        "Run it first and compare with its values",
    ),
    ((exp.Window,), "a window function cannot be part of a filter", "A filter sees one row at a time"),
    ((exp.Star,), "* is not a value", "Name the column"),
    (
        (exp.Placeholder, exp.Parameter, exp.SessionParameter),
        "a parameter has no value here",
        "Put the value into the text, or build the filter with col('name') == value",
    ),
    (
        (exp.AtTimeZone, exp.FromTimeZone),
        "Spark's SQL has no AT TIME ZONE",
        "Write from_utc_timestamp(ts, 'Europe/Paris')",
    ),
    ((exp.Distinct,), "DISTINCT belongs to aggregate functions", "A filter sees one row at a time"),
)


def refuse(node: object) -> None:
    """Raise if a node is not allowed in a filter."""
    for kinds, message, hint in _REFUSED:
        if isinstance(node, kinds):
            raise ParseError(message, position=find_position(node), hint=hint)
    if isinstance(node, exp.Any) and not isinstance(node.parent, exp.Like | exp.ILike):
        raise _aggregate_error("any", node)
    if isinstance(node, exp.DataType) and getattr(node.this, "name", None) == "TIME":
        # sqlglot would print it as TIMESTAMP, which is another type.
        raise ParseError(
            "a TIME is not supported inside of this syntax",
            position=find_position(node),
            hint="Compare a time alone, as in clock > TIME '10:30:00'",
        )
    if isinstance(node, exp.Anonymous):
        refuse_aggregate(node)


_RESERVED_PREFIXES = ("duckdb_", "spark_")
"""Prefixes of the functions that Tamis itself writes into SQL for the embedded engine: see `spark_calls`."""


def refuse_reserved(tree: exp.Expr) -> None:
    """Raise if a user's text calls a function whose name is reserved for Tamis."""
    for call in tree.find_all(exp.Anonymous):
        if call.name.lower().startswith(_RESERVED_PREFIXES) and call.name.lower() != "spark_partition_id":
            raise ParseError(
                f"there is no function {call.name} with Spark's meaning on the embedded engine",
                position=find_position(call),
                hint="docs/expressions.md lists what there is; functions of DuckDB run with c.sql(…, dialect='duckdb')",
            )


def refuse_aggregate(node: exp.Expr) -> None:
    if node.name.lower() in AGGREGATES:
        raise _aggregate_error(node.name.lower(), node)


def _aggregate_error(name: str, node: exp.Expr) -> ParseError:
    return ParseError(
        f"{name} is an aggregate function",
        position=find_position(node),
        hint="A filter sees one row at a time: filter the result of the query, in HAVING or afterwards",
    )


def find_position(node: exp.Expr) -> int | None:
    """Return the 1-based position of a node, or of the first node inside it that has one."""
    # The name of a function precedes its arguments, which may be ten thousand levels deep.
    is_first = isinstance(node, exp.Anonymous) and "start" in node.meta
    metas = [node.meta] if is_first else [inner.meta for inner in node.dfs() if "start" in inner.meta]
    if not metas:
        return None
    first = min(metas, key=lambda meta: int(meta["start"]))
    # sqlglot records the column in which a token ends.
    return Position(first["start"] + 1, first["line"], first["col"] - (first["end"] - first["start"]))

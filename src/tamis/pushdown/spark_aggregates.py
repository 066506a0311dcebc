"""Translation of aggregate functions that differ between Spark and DuckDB.

| in Spark                             | in DuckDB                       | translation                            |
|--------------------------------------|---------------------------------|----------------------------------------|
| `count_if`: 0 for no rows            | NULL                            | `count` of the TRUE values             |
| `collect_list`, …: [] for no rows    | NULL                            | `coalesce` with []                     |
| `percentile`: interpolated           | one of the values               | `quantile_cont` of doubles             |
| `percentile_cont(q) WITHIN GROUP (…)`| DESC is lost in a window        | `quantile_cont`; -q for DESC           |
| `kurtosis`: of the population        | estimated from a sample         | `kurtosis_pop`                         |
"""

from __future__ import annotations

from sqlglot import exp

from tamis.scan.spark_calls import make_unsupported_error

TRANSLATED_AGGREGATES = ("count_if", "collect_list", "collect_set", "array_agg", "percentile", "percentile_cont", "percentile_disc",
         "median", "max_by", "min_by", "kurtosis")  # fmt: skip

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

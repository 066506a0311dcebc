"""The number of arguments of Spark's aggregate and window functions. DuckDB accepts others with its own meaning.

In DuckDB `max(x, 2)` is the list of the two largest values, and `count()` a count of rows.
"""

from __future__ import annotations

from sqlglot import exp

from tamis.errors import ParseError, format_count
from tamis.expr.sql_foreign import unsupported_syntax_error

_ANY = 1_000

_ARITIES: dict[str, tuple[int, int]] = {
    **dict.fromkeys((
        "any", "array_agg", "avg", "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or", "collect_list",
        "collect_set", "count_if", "every", "grouping", "kurtosis", "max", "mean", "median", "min", "percentile_cont",
        "percentile_disc", "skewness", "some", "std", "stddev", "stddev_pop", "stddev_samp", "sum", "try_avg",
        "try_sum", "var_pop", "var_samp", "variance",
    ), (1, 1)),
    **dict.fromkeys((
        "corr", "covar_pop", "covar_samp", "histogram_numeric", "regr_avgx", "regr_avgy", "regr_count",
        "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
    ), (2, 2)),
    **dict.fromkeys((
        "any_value", "approx_count_distinct", "first", "first_value", "last", "last_value", "listagg", "string_agg",
    ), (1, 2)),
    **dict.fromkeys(
        ("approx_percentile", "max_by", "min_by", "nth_value", "percentile", "percentile_approx"), (2, 3)
    ),
    "count": (1, _ANY), "mode": (0, 2), "count_min_sketch": (4, 4),
    "row_number": (0, 0), "cume_dist": (0, 0), "ntile": (0, 1), "lag": (0, 4), "lead": (0, 4),
}  # fmt: skip

_FLAGGED = frozenset(("any_value", "first", "first_value", "last", "last_value", "mode"))
"""Functions whose second argument is a flag: whether they ignore NULL, or which value they pick."""


def check_arity(call: exp.Anonymous) -> None:
    """Raise if an aggregate or window function has more or fewer arguments than in Spark."""
    name = call.name.lower()
    fewest, most = _ARITIES.get(name, (0, _ANY))
    args = [each for arg in call.expressions for each in (arg.expressions if isinstance(arg, exp.Distinct) else [arg])]
    if name == "count" and any(isinstance(arg, exp.Column) and isinstance(arg.this, exp.Star) for arg in args):
        raise unsupported_syntax_error(call, "count does not accept t.*", "Write count(*), or name the columns")
    if any(isinstance(arg, exp.Star) or isinstance(arg.this, exp.Star) for arg in args):
        # A star has an unknown number of columns.
        return
    if not fewest <= len(args) <= most:
        raise _make_error(call, fewest, most, len(args))
    if name in _FLAGGED and len(args) == 2 and not isinstance(args[1], exp.Boolean):
        raise unsupported_syntax_error(call, f"the second argument of {call.name} must be TRUE or FALSE")


def _make_error(call: exp.Anonymous, fewest: int, most: int, given: int) -> ParseError:
    if most == _ANY:
        wanted = f"at least {format_count(fewest, 'argument')}"
    elif fewest == most:
        wanted = format_count(fewest, "argument") if fewest else "no arguments"
    else:
        wanted = f"{fewest} to {most} arguments"
    hint = "Write count(*)" if call.name.lower() == "count" else None
    return unsupported_syntax_error(call, f"{call.name} takes {wanted}, not {given}", hint)

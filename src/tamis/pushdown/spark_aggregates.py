"""Functions of groups, and of two moments, of which DuckDB has another idea than Spark, in words that mean the same.

| in Spark                             | DuckDB's own                    | here                                   |
|--------------------------------------|---------------------------------|----------------------------------------|
| `count_if`: 0 of no rows             | NULL                            | `count` of what is TRUE                |
| `collect_list`, …: [] of no rows     | NULL                            | `coalesce` with []                     |
| `percentile`: between two values     | one of the values               | `quantile_cont`                        |
| `kurtosis`: of all there is          | estimated from a sample         | `kurtosis_pop`                         |
| `datediff(MONTH, a, b)`: whole ones  | how often the month changes     | `datesub`, and by the day of the month |
"""

from __future__ import annotations

from sqlglot import exp

NAMES = ("count_if", "collect_list", "collect_set", "array_agg", "percentile", "kurtosis", "datediff", "date_diff",
         "timestampdiff")  # fmt: skip

_LISTS = frozenset(("collect_list", "collect_set", "array_agg"))
_DIFFERENCES = frozenset(("datediff", "date_diff", "timestampdiff"))
_RENAMED = {("percentile", 2): "quantile_cont", ("kurtosis", 1): "kurtosis_pop"}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_AROUND = (exp.Filter, exp.Window, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
"""What stands around a call and belongs to it."""


def put_in_words(tree: exp.Expr) -> None:
    """Change the calls in a tree, whose functions are calls of their own names, to what they mean."""
    for call in list(tree.find_all(exp.Anonymous)):
        name, args = call.name.lower(), call.expressions
        if (renamed := _RENAMED.get((name, len(args)))) is not None:
            call.set("this", renamed)
        elif name == "count_if" and len(args) == 1:
            is_true = exp.Case(ifs=[exp.If(this=args[0], true=exp.Literal.number(1))])
            call.replace(exp.Anonymous(this="count", expressions=[is_true]))
        elif name in _LISTS:
            whole: exp.Expr = call
            while isinstance(whole.parent, _AROUND) and whole.arg_key == "this":
                whole = whole.parent
            whole.replace(exp.Anonymous(this="coalesce", expressions=[whole.copy(), exp.Anonymous(this="array")]))
        elif name in _DIFFERENCES and len(args) == 3 and isinstance(args[0], exp.Column | exp.Var):
            call.replace(_whole_units(args[0].name.lower(), args[1:]))


def _whole_units(unit: str, moments: list[exp.Expr]) -> exp.Expr:
    if (months := _MONTHS.get(unit)) is None:
        return exp.Anonymous(this="datesub", expressions=[exp.Literal.string(unit), *moments])
    # DuckDB takes the last days of two months for the same day.
    found = exp.Anonymous(this="spark_whole_months", expressions=moments)
    return exp.Paren(this=exp.IntDiv(this=found, expression=exp.Literal.number(months)))

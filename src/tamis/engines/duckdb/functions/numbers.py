"""Spark's functions of numbers, aggregate functions, and functions of any type as DuckDB expressions."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tamis.engines.duckdb.macros.define_macros import define_macros
from tamis.engines.duckdb.translate.calls import (
    Build,
    BuildNamed,
    CallMacro,
    Macro,
    Macros,
    Refused,
    Rows,
    Same,
    as_int,
    call_by_type,
    call_duckdb,
    call_macro,
    define_by_type,
    has_null,
    is_null,
    make_unsupported_error,
)
from tamis.engines.duckdb.translate.operators import cast_operands, coerce_texts, read_literal_precision

_ROUND = (
    "CASE WHEN abs(x) < 1e15 THEN CAST({0}(CAST(CAST(CAST(x AS DOUBLE) AS VARCHAR) AS DECIMAL(38, 18)), n) AS {1}) "
    "ELSE {0}(x, n) END"
)


def _define_rounding(name: str, function: str) -> Macros:
    """Return macros that round the decimal digits of a float, not its binary value: 1.005 rounds to 1.01."""
    return define_by_type(
        name,
        {
            "DOUBLE": _ROUND.format(function, "DOUBLE"),
            "FLOAT": _ROUND.format(function, "FLOAT"),
            "VARCHAR": f"spark_{name}_double(spark_double(x), n)",
            "": f"{function}(x, n)",
        },
        "n",
    ) | {f"{name}_double": (("x", "n"), _ROUND.format(function, "DOUBLE"))}


def _define_double_function(function: str) -> list[tuple[tuple[str, ...], str]]:
    """Return overloads for a function of doubles that also takes texts."""
    return [(("y VARCHAR",), function.replace("y", "spark_double(y)")), (("y",), function)]


_INVERSE = "CASE WHEN {0}(CAST(y AS DOUBLE)) = 0 THEN CAST('Infinity' AS DOUBLE) ELSE 1 / {0}(CAST(y AS DOUBLE)) END"


_DAYS_BETWEEN = "to_days(CAST(date_diff('day', y, x) AS INTEGER))"


def _define_shifts() -> Macros:
    """Return macros for bit shifts as in Java: by the count modulo the width, and bits beyond the width are lost."""
    found: Macros = {
        f"low_bits_{name}": (
            ("v",),
            f"CAST((v % {2**width} + {2**width + 2 ** (width - 1)}) % {2**width} - {2 ** (width - 1)} AS {name})",
        )
        for name, width in (("integer", 32), ("bigint", 64))
    }
    moved = {
        "shiftleft": "{v} * {p}",
        "shiftright": "({v} - ({v} % {p} + {p}) % {p}) // {p}",
        "shiftrightunsigned": "(CASE WHEN {v} < 0 THEN {v} + {all} ELSE {v} END) // {p}",
    }
    ints = dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER"), "x")
    cast = dict.fromkeys(("VARCHAR", "DOUBLE", "FLOAT", "DECIMAL(18, 3)"), "spark_integer(x)")
    for name, body in moved.items():
        overloads: list[Macro] = []
        for kind, value in (ints | cast | {"BIGINT": "x"}).items():
            of, wide, width = ("bigint", "HUGEINT", 64) if kind == "BIGINT" else ("integer", "BIGINT", 32)
            power = f"CAST(pow(2, n & {width - 1}) AS {wide})"
            shifted_value = body.format(v=f"CAST({value} AS {wide})", p=power, all=2**width)
            overloads.append(((f"x {kind}", "n"), f"spark_low_bits_{of}({shifted_value})"))
        found[name] = [*overloads, (("x BOOLEAN", "n"), "error('a boolean has no bits: cast it')")]
    return found


MACROS: Macros = define_macros(
    r"""
    hypot(a, b):
        -- Scales the operands, because squares of large numbers overflow.
        CASE WHEN a IS NULL OR b IS NULL THEN NULL
        WHEN isinf(spark_double(a)) OR isinf(spark_double(b)) THEN CAST('Infinity' AS DOUBLE)
        WHEN greatest(abs(spark_double(a)), abs(spark_double(b))) = 0 THEN 0.0
        ELSE greatest(abs(spark_double(a)), abs(spark_double(b))) * sqrt(1 + pow(least(abs(spark_double(a)),
        abs(spark_double(b))) / greatest(abs(spark_double(a)), abs(spark_double(b))), 2)) END
    expm1(y):
        CASE WHEN abs(spark_double(y)) < 1e-5
        THEN spark_double(y) + spark_double(y) * spark_double(y) / 2 ELSE exp(spark_double(y)) - 1 END
    log1p(y):
        CASE WHEN spark_double(y) <= -1 THEN NULL WHEN abs(spark_double(y)) < 1e-5 THEN spark_double(y)
        - spark_double(y) * spark_double(y) / 2 ELSE ln(1 + spark_double(y)) END
    bit_get(x, n):
        CASE WHEN n >= 0 AND n < CASE typeof(x) WHEN 'TINYINT' THEN 8 WHEN 'SMALLINT' THEN 16 WHEN 'INTEGER' THEN 32
        ELSE 64 END THEN CAST((CAST(x AS BIGINT) >> CAST(n AS INTEGER)) & 1 AS TINYINT)
        WHEN x IS NOT NULL AND n IS NOT NULL THEN error('bit_get counts the bits of the value from 0') END
    width_bucket(v, low, high, n):
        CASE WHEN v IS NULL OR low IS NULL OR high IS NULL OR n IS NULL
        OR trunc(spark_double(n)) <= 0 OR CAST(n AS VARCHAR) = '9223372036854775807'
        OR spark_double(low) = spark_double(high)
        OR isnan(spark_double(v)) OR NOT isfinite(spark_double(low)) OR NOT isfinite(spark_double(high)) THEN NULL
        WHEN spark_double(low) < spark_double(high) THEN CASE WHEN spark_double(v) < spark_double(low) THEN 0
        WHEN spark_double(v) >= spark_double(high) THEN CAST(trunc(spark_double(n)) AS BIGINT) + 1
        ELSE CAST(floor(trunc(spark_double(n)) * (spark_double(v) - spark_double(low))
        / (spark_double(high) - spark_double(low))) AS BIGINT) + 1 END
        ELSE CASE WHEN spark_double(v) > spark_double(low) THEN 0
        WHEN spark_double(v) <= spark_double(high) THEN CAST(trunc(spark_double(n)) AS BIGINT) + 1
        ELSE CAST(floor(trunc(spark_double(n)) * (spark_double(low) - spark_double(v))
        / (spark_double(low) - spark_double(high))) AS BIGINT) + 1 END END
    try_mod(x, y): CASE WHEN y <> 0 THEN TRY(x % y) END
    try_divide(x, y): CASE WHEN y <> 0 THEN x / y END
    -- Type names, as Spark writes them
    type_name(name):
        regexp_replace(regexp_replace(CASE name WHEN 'INTEGER' THEN 'int' WHEN 'VARCHAR' THEN 'string'
        WHEN 'FLOAT' THEN 'float' WHEN 'BLOB' THEN 'binary' WHEN 'TIMESTAMP' THEN 'timestamp_ntz'
        WHEN 'TIMESTAMP WITH TIME ZONE' THEN 'timestamp' WHEN '"NULL"' THEN 'void'
        ELSE lower(name) END, '\s', '', 'g'), 'hugeint', 'bigint')
    typeof(x):
        CASE WHEN typeof(x) LIKE '%[]' AND typeof(x) NOT LIKE 'STRUCT%' AND typeof(x) NOT LIKE 'MAP%'
        AND typeof(x) NOT LIKE '%[][]' THEN 'array<' || spark_type_name(typeof(x)[:-3]) || '>'
        WHEN typeof(x) LIKE 'STRUCT%' OR typeof(x) LIKE 'MAP%' OR typeof(x) LIKE '%[][]' OR typeof(x) = 'INTERVAL'
        THEN error('typeof does not support maps, structs, intervals and lists of lists here')
        ELSE spark_type_name(typeof(x)) END
    -- Groups of rows
    skewness(n, low, high, sampled):
        -- DuckDB computes the sample skewness, which is sqrt(n * (n - 1)) / (n - 2) times as large.
        CASE WHEN n = 0 OR low = high THEN NULL WHEN n = 2 THEN 0.0 ELSE sampled * (n - 2) / sqrt(n * (n - 1.0)) END
    -- The average of decimals has four more digits after the point. `one` is any of the values, for its type; `mean` is
    -- their average.
    mean(one, mean):
        CASE WHEN typeof(one) LIKE 'DECIMAL%'
        THEN round(mean, TRY_CAST(regexp_extract(typeof(one), ',(\d+)', 1) AS INTEGER) + 4) ELSE mean END
    try_sum(x BIGINT): TRY_CAST(sum(x) AS BIGINT)
    try_sum(x DOUBLE): sum(x)
    try_sum(x DECIMAL(18, 3)): error('try_sum of decimals: use sum')
    regr_count(a, b): CAST(regr_count(a, b) AS BIGINT)
    -- An argument of `listagg`. It is unchanged where DISTINCT and ORDER BY must see the same value; DuckDB would join
    -- bytes as escaped text.
    listed_text(x VARCHAR | TINYINT | SMALLINT | INTEGER | BIGINT | DATE): x
    listed_text(x BLOB): CAST(error('listagg does not support bytes here: cast them to a text') AS VARCHAR)
    listed_text(x): spark_string(x)
    """
) | {
    **_define_rounding("round", "round"),
    **_define_rounding("bround", "round_even"),
    **define_by_type("absolute", {"VARCHAR": "abs(spark_double(x))", "": "abs(x)"}),
    **define_by_type("negated", {"VARCHAR": "-spark_double(x)", "": "-x"}),
    **define_by_type("positive", {"VARCHAR": "spark_double(x)", "": "+x"}),
    "sec": _define_double_function(_INVERSE.format("cos")),
    "csc": _define_double_function(_INVERSE.format("sin")),
    **_define_shifts(),
    # Arithmetic that gives NULL where it fails
    **{
        f"try_{name}": [
            *coerce_texts(f"TRY(x {sign} y)", "try_"),
            *([(("x DATE", "y DATE"), _DAYS_BETWEEN)] if name == "subtract" else []),
            (("x", "y"), f"TRY(x {sign} y)"),
        ]
        for name, sign in (("add", "+"), ("subtract", "-"), ("multiply", "*"))
    },
    # A macro of one aggregate function may have a window. DuckDB returns NaN for constant columns.
    **{
        name: (("a", "b"), f"nullif({name}(a, b), CAST('NaN' AS DOUBLE))")
        for name in ("corr", "regr_r2", "regr_slope", "regr_intercept")
    },
}  # fmt: skip


def _build_rounding(name: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) == 2 and isinstance(args[1], exp.Null):
        return None
    return call_by_type(name, args[0], args[1] if len(args) == 2 else exp.Literal.number(0))


def _build_abs(args: Sequence[exp.Expr]) -> exp.Expr | None:
    # The module `intervals` translates the absolute value of an interval.
    return call_duckdb("abs", args[0]) if args[0].find(exp.Interval) is not None else call_by_type("absolute", args[0])


def _build_cast(name: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    """Build `double(x)`, which is `CAST(x AS DOUBLE)`, and the like."""
    kind = "decimal(10, 0)" if name == "decimal" else name
    return exp.Cast(this=args[0], to=exp.DataType.build(kind, dialect="spark"))


def _build_skewness(args: Sequence[exp.Expr]) -> exp.Expr | None:
    value = call_by_type("double", args[0])
    return call_macro("skewness", *(call_duckdb(name, value.copy()) for name in ("count", "min", "max", "skewness")))


def _build_percentile(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) != 2:
        raise make_unsupported_error("percentile", "frequencies are not supported here: repeat the rows")
    value = exp.Cast(this=args[0], to=exp.DataType.build("double", dialect="duckdb"))
    return call_duckdb("quantile_cont", value, args[1])


def _build_listagg(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if not args:
        return None
    is_distinct = isinstance(args[0], exp.Distinct)
    value, *delimiter = args[0].expressions if isinstance(args[0], exp.Distinct) else args
    if len(delimiter) > 1:
        return None
    if not delimiter or isinstance(delimiter[0], exp.Null):
        delimiter = [exp.Literal.string("")]
    value = value if isinstance(value, exp.Null) else call_macro("listed_text", value)
    if not isinstance(delimiter[0], exp.Literal):
        raise make_unsupported_error("listagg", "its delimiter must be a constant text, and bytes are not supported")
    delimiter = [exp.Literal.string(delimiter[0].name)]
    return call_duckdb("string_agg", exp.Distinct(expressions=[value]) if is_distinct else value, *delimiter)


def _build_first(name: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    match args:
        case [value]:
            return None
        case [value, exp.Boolean(this=True)]:
            return exp.IgnoreNulls(this=call_duckdb(name, value))
        case [value, exp.Boolean(this=False)]:
            return call_duckdb(name, value)
        case _:
            raise make_unsupported_error(name, "its second argument, whether to ignore NULL, must be TRUE or FALSE")


def _build_try(name: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    """Build `try_add` and the like: operands, and intervals, are typed as those of the operator."""
    operator = name.removeprefix("try_")
    if any(isinstance(arg.unnest(), exp.Interval) for arg in args):
        kind = {"add": exp.Add, "subtract": exp.Sub, "multiply": exp.Mul}[operator]
        return call_duckdb("try", kind(this=args[0], expression=args[1]))
    sides = cast_operands(operator, *args)
    return exp.Null() if has_null(sides) else call_macro(name, *sides)


def _build_try_divide(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if isinstance(args[0].unnest(), exp.Interval):
        return call_macro("try_divide", *args)
    sides = cast_operands("divide", *args)
    return call_macro("try_quotient", *sides, *map(read_literal_precision, sides))


def build_shift(name: str, value: exp.Expr, bits: exp.Expr) -> exp.Expr:
    """Build a call of `shiftleft`, `shiftright` or `shiftrightunsigned`."""
    if isinstance(value, exp.Null):
        return exp.cast(exp.null(), "int")
    return call_macro(name, value, as_int(bits))


def _build_count(args: Sequence[exp.Expr]) -> exp.Expr | None:
    """Build `count(a, b)`, which counts the rows in which no argument is NULL."""
    if len(args) < 2:
        return None
    has_null = exp.or_(*map(is_null, args))
    return exp.Count(this=exp.Case(ifs=[exp.If(this=has_null, true=exp.null())], default=exp.Literal.number(1)))


ROWS: Rows = (
    ("ceil floor", CallMacro(or_same=True)),
    ("ceiling", CallMacro("ceil", or_same=True)),
    (
        "log10 log2 isnan bit_count factorial pmod nanvl rint zeroifnull nullifzero sign sec csc hypot expm1 log1p "
        "bit_get width_bucket try_mod typeof corr regr_r2 regr_slope regr_intercept regr_count try_sum",
        CallMacro(),
    ),
    ("signum", CallMacro("sign")),
    ("getbit", CallMacro("bit_get")),
    ("log ln", Build(lambda args: call_macro("ln" if len(args) == 1 else "log", *args), (1, 2))),
    ("isnull", Build(lambda args: exp.Paren(this=is_null(args[0])), (1,))),
    ("isnotnull", Build(lambda args: exp.Not(this=exp.Paren(this=is_null(args[0]))), (1,))),
    ("e", Build(lambda args: exp.Literal.number("2.718281828459045e0"), (0,))),
    ("try_add try_subtract try_multiply", BuildNamed(_build_try, (2,))),
    ("try_divide", Build(_build_try_divide, (2,))),
    (
        "shiftleft shiftright shiftrightunsigned",
        BuildNamed(lambda name, args: build_shift(name, args[0], args[1]), (2,)),
    ),
    ("round bround", BuildNamed(_build_rounding, (1, 2))),
    ("abs", Build(_build_abs, (1,))),
    ("negative", Build(lambda args: call_by_type("negated", args[0]), (1,))),
    ("positive", Build(lambda args: call_by_type("positive", args[0]), (1,))),
    (
        "bigint int smallint tinyint float double decimal string boolean binary date timestamp timestamp_ntz "
        "timestamp_ltz",
        BuildNamed(_build_cast, (1,)),
    ),
    # --- Aggregates and windows
    ("count", Build(_build_count)),
    # DuckDB's `max_by` and `min_by` ignore rows in which the first argument is NULL.
    ("max_by", Build(lambda args: call_duckdb("arg_max_null", *args) if len(args) == 2 else None, (2, 3))),
    ("min_by", Build(lambda args: call_duckdb("arg_min_null", *args) if len(args) == 2 else None, (2, 3))),
    ("any_value", Build(lambda args: call_duckdb("first", *args) if len(args) == 1 else None, (1, 2))),
    ("skewness", Build(_build_skewness, (1,))),
    ("try_avg", Build(lambda args: exp.Avg(this=args[0]), (1,))),
    ("percentile", Build(_build_percentile)),
    # The result is exact: DuckDB looks at all values.
    ("percentile_approx approx_percentile", Build(lambda args: call_duckdb("quantile_disc", *args[:2]), (2, 3))),
    ("listagg string_agg", Build(_build_listagg)),
    ("first last", BuildNamed(_build_first)),
    (
        "any approx_count_distinct array_agg avg bit_and bit_or bit_xor bool_and bool_or collect_list collect_set "
        "count_if covar_pop covar_samp cume_dist dense_rank every first_value grouping grouping_id kurtosis lag "
        "last_value lead max mean median min mode nth_value ntile percent_rank percentile_cont percentile_disc rank "
        "regr_avgx regr_avgy regr_sxx regr_sxy regr_syy row_number some std stddev stddev_pop stddev_samp "
        "sum var_pop var_samp variance",
        Same(),
    ),
    # --- Other functions
    (
        "acos acosh asin asinh assert_true atan atan2 atanh between case cast cbrt coalesce cos cosh cot degrees div "
        "equal_null exp greatest if least mod nullif nvl2 pi pow power radians rand random sin sinh sqrt tan tanh",
        Same(),
    ),
    ("version", Refused("it would return the version of the embedded engine")),
    (
        "user current_user session_user",
        Refused("a filter does not know the user, only policies and queries of a session do"),
    ),
    ("current_schema current_database current_catalog", Refused("there is no session")),
)

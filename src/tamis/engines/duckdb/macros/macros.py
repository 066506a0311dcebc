"""Macros for numbers, rounding, casts to integers and the texts of values, with their parameters and bodies.

Their parameters have no types. If the result depends on a type, `typeof` tests it, and every branch must be valid for
all types.
"""

from __future__ import annotations

from tamis.engines.duckdb.macros.define_macros import define_macros
from tamis.engines.duckdb.translate.calls import Macros

_FLOATING = "typeof(x) IN ('DOUBLE', 'FLOAT')"
_MAX_BIGINT, _MIN_BIGINT = 2**63 - 1, -(2**63)


def _write_rounding(function: str) -> str:
    """Write SQL that rounds a float to a bigint, as Spark does: NaN is 0, and values out of range are clamped."""
    return (
        f"CASE WHEN {_FLOATING} THEN CASE WHEN isnan(CAST(x AS DOUBLE)) THEN 0 "
        f"WHEN x >= {_MAX_BIGINT} THEN {_MAX_BIGINT} WHEN x <= {_MIN_BIGINT} THEN {_MIN_BIGINT} "
        f"ELSE CAST({function}(x) AS BIGINT) END ELSE {function}(x) END"
    )


def _write_integer_cast(cast: str, target: str, otherwise: str) -> str:
    """Write SQL that casts to an integer type: it truncates fractions, where DuckDB rounds; texts must be integers."""
    return (
        f"CASE WHEN {_FLOATING} THEN {cast}(trunc(TRY_CAST(x AS DOUBLE)) AS {target}) "
        f"WHEN typeof(x) LIKE 'DECIMAL%' THEN {cast}(split_part(CAST(x AS VARCHAR), '.', 1) AS {target}) "
        f"WHEN typeof(x) = 'VARCHAR' AND NOT regexp_full_match(CAST(x AS VARCHAR), '\\s*[+-]?[0-9]+\\s*') "
        f"AND TRY_CAST(x AS {target}) IS NOT NULL THEN {otherwise} ELSE {cast}(x AS {target}) END"
    )


_DIGITS = "replace(ltrim(text, '-'), '.', '')"
_NOT_AN_INTEGER = "error('a text is not a whole number')"

_CAST_TO_TEXT = (
    f"CASE WHEN {_FLOATING} THEN spark_number_text(CAST(x AS VARCHAR)) "
    "WHEN typeof(x) = 'BLOB' THEN decode(CAST(CAST(x AS VARCHAR) AS BLOB)) "
    "WHEN typeof(x) = 'TIMESTAMP WITH TIME ZONE' THEN regexp_replace(CAST(x AS VARCHAR), '\\+00$', '') "
    "WHEN typeof(x) = 'INTERVAL' THEN CASE WHEN x IS NOT NULL THEN error('an interval of unknown "
    "fields cannot be cast to a text') END "
    "WHEN typeof(x) LIKE '%[]' OR typeof(x) LIKE 'STRUCT%' OR typeof(x) LIKE 'MAP%' "
    "THEN CASE WHEN x IS NOT NULL THEN error('lists, maps and structs cannot be cast to a text here') END "
    "ELSE CAST(x AS VARCHAR) END"
)
"""SQL that casts a value to a text as Spark does."""

MACROS: Macros = define_macros(
    rf"""
    ceil(x): {_write_rounding("ceil")}
    floor(x): {_write_rounding("floor")}
    string | plain_string(x): {_CAST_TO_TEXT}
    ln(x): CASE WHEN x <= 0 THEN NULL ELSE ln(x) END
    log10(x): CASE WHEN x <= 0 THEN NULL ELSE log10(x) END
    log2(x): CASE WHEN x <= 0 THEN NULL ELSE log2(x) END
    isnan(x): coalesce(isnan(x), FALSE)
    bit_count(x): bit_count(CAST(x AS BIGINT))
    factorial(x): CASE WHEN x BETWEEN 0 AND 20 THEN CAST(factorial(CAST(x AS INTEGER)) AS BIGINT) END
    pmod(x, n): CASE WHEN x % n < 0 THEN (x % n + n) % n ELSE x % n END
    nanvl(x, y): CASE WHEN isnan(CAST(x AS DOUBLE)) THEN y ELSE x END
    rint(x): round_even(CAST(x AS DOUBLE), 0)
    zeroifnull(x): coalesce(x, 0)
    nullifzero(x): nullif(x, 0)
    sign(x): CASE WHEN isnan(CAST(x AS DOUBLE)) THEN CAST(x AS DOUBLE) ELSE CAST(sign(x) AS DOUBLE) END
    concat_operand(x):
        CASE WHEN typeof(x) IN ('DOUBLE', 'FLOAT', 'BLOB', 'TIMESTAMP WITH TIME ZONE')
        THEN error('write the text of a float, a timestamp or bytes with CAST AS STRING') ELSE x END
    log(base, x): CASE WHEN x <= 0 OR base <= 0 THEN NULL ELSE ln(x) / ln(base) END
    whole_months(a, b):
        -- A month is complete at the same day and time of the next month, whichever day that month ends with.
        -- Both operands are bound once: DuckDB expands macros as text, and the text of a cast is long.
        list_transform([{{'a': CAST(a AS TIMESTAMP), 'b': CAST(b AS TIMESTAMP)}}], lambda pair:
        datediff('month', pair.a, pair.b) + CASE
        WHEN pair.b >= pair.a AND spark_time_of_month(pair.b) < spark_time_of_month(pair.a) THEN -1
        WHEN pair.b < pair.a AND spark_time_of_month(pair.b) > spark_time_of_month(pair.a) THEN 1 ELSE 0 END)[1]
    time_of_month(t): epoch_us(CAST(t AS TIMESTAMP)) - epoch_us(date_trunc('month', CAST(t AS TIMESTAMP)))
    months(a, b):
        list_transform([{{'a': a, 'b': b}}], lambda pair:
        datediff('month', pair.b, pair.a) + CASE WHEN day(pair.a) = day(pair.b)
        OR (pair.a::DATE = last_day(pair.a) AND pair.b::DATE = last_day(pair.b)) THEN 0.0::DOUBLE
        ELSE ((day(pair.a) - day(pair.b)) * 86400
        + (epoch_us(pair.a) - epoch_us(pair.a::DATE::TIMESTAMP)) // 1000000
        - (epoch_us(pair.b) - epoch_us(pair.b::DATE::TIMESTAMP)) // 1000000)::DOUBLE / 2678400::DOUBLE END)[1]
    grouped(text, n):
        format('{{:,}}', CAST(split_part(text, '.', 1) AS HUGEINT))
        || CASE WHEN n > 0 THEN '.' || rpad(split_part(text, '.', 2), CAST(n AS INTEGER), '0') ELSE '' END
    outer_items(x): CASE WHEN len(x) > 0 THEN x ELSE [NULL] END
    replacement(x):
        CASE WHEN contains(x, '$') OR contains(x, '\')
        THEN error('a replacement that is not a constant must not contain $ or backslashes') ELSE x END
    number_text(text):
        -- Java writes 1.0E10 for what DuckDB writes as 10000000000.0, and 1.0E-5 for 1e-05.
        CASE WHEN text = 'nan' OR text = '-nan' THEN 'NaN' WHEN text = 'inf' THEN 'Infinity'
        WHEN text = '-inf' THEN '-Infinity'
        WHEN contains(text, 'e') THEN CASE WHEN contains(text, '.') THEN split_part(text, 'e', 1)
        ELSE split_part(text, 'e', 1) || '.0' END || 'E'
        || CAST(CAST(split_part(text, 'e', 2) AS INTEGER) AS VARCHAR)
        WHEN abs(CAST(text AS DOUBLE)) >= 1e7 THEN
        CASE WHEN text LIKE '-%' THEN '-' ELSE '' END || left({_DIGITS}, 1) || '.' ||
        CASE WHEN rtrim(substring({_DIGITS}, 2), '0') = '' THEN '0' ELSE rtrim(substring({_DIGITS}, 2), '0') END
        || 'E' || CAST(length(split_part(ltrim(text, '-'), '.', 1)) - 1 AS VARCHAR)
        WHEN abs(CAST(text AS DOUBLE)) < 1e-3 AND CAST(text AS DOUBLE) <> 0 THEN
        CASE WHEN text LIKE '-%' THEN '-' ELSE '' END || left(ltrim({_DIGITS}, '0'), 1) || '.' ||
        CASE WHEN substring(ltrim({_DIGITS}, '0'), 2) = '' THEN '0' ELSE substring(ltrim({_DIGITS}, '0'), 2) END
        || 'E' || CAST(length(ltrim({_DIGITS}, '0')) - length({_DIGITS}) AS VARCHAR) ELSE text END
    """
) | {
    **{
        f"{kind}{name}": (("x",), _write_integer_cast("CAST", name, _NOT_AN_INTEGER))
        for name in ("tinyint", "smallint", "integer", "bigint")
        for kind in ("", "plain_")
    },
    **{
        f"try_{name}": (("x",), _write_integer_cast("TRY_CAST", name, "NULL"))
        for name in ("tinyint", "smallint", "integer", "bigint")
    },
}

"""Macros for intervals: constructors, sums with dates and times, multiplication, division and their texts."""

from __future__ import annotations

from tamis.scan.spark_calls import Macros

_NOT_SAME_DAY = "error('a time of day plus an interval is not a time of the same day')"
_TEXT_PLUS_MONTHS = "error('a text and years or months cannot be added: cast the text to a date')"

_TIME_OVERLOADS = [
    (
        ("x TIME", "i INTERVAL"),
        f"CASE WHEN epoch_us(x) + epoch_us(i) BETWEEN 0 AND 86399999999 THEN x + i "
        f"WHEN x IS NOT NULL AND i IS NOT NULL THEN {_NOT_SAME_DAY} END",
    ),
    (("x TIMESTAMP", "i INTERVAL"), "x + i"),
    (("x TIMESTAMPTZ", "i INTERVAL"), "x + i"),
    (("x VARCHAR", "i INTERVAL"), "regexp_replace(CAST(spark_text_timestamp(x) + i AS VARCHAR), '\\+00$', '')"),
    (("x", "i"), "x + i"),
]
_ROUND = (
    "CASE WHEN typeof(n) IN ('DOUBLE', 'FLOAT', 'VARCHAR') "
    "THEN CAST(round(CAST({count} AS DOUBLE) {operator} CAST(n AS DOUBLE)) AS {kind}) "
    "ELSE CAST({exact} AS {kind}) END"
)


def _write_scaling(count: str, kind: str, made: str, *, is_division: bool) -> str:
    """Write SQL that multiplies or divides a count of months or microseconds by `n`, and rounds half up like Spark."""
    if is_division:
        # The remainder decides how a quotient of integers is rounded, so that no digit is lost.
        exact = (
            f"CASE WHEN typeof(n) IN ('TINYINT', 'SMALLINT', 'INTEGER', 'BIGINT') "
            f"THEN {count} // CAST(n AS BIGINT) + CASE WHEN 2 * abs({count} % CAST(n AS BIGINT)) >= "
            f"abs(CAST(n AS HUGEINT)) "
            f"THEN CAST(sign({count}) * sign(n) AS BIGINT) ELSE 0 END "
            f"ELSE round(CAST({count} AS DOUBLE) / CAST(n AS DOUBLE)) END"
        )
        body = _ROUND.format(count=count, operator="/", kind=kind, exact=exact)
        return (
            f"CASE WHEN CAST(n AS DOUBLE) = 0 THEN error('an interval is divided by zero') ELSE {made.format(body)} END"
        )
    exact = f"round(CAST({count} AS DECIMAL(19, 0)) * n)"
    return made.format(_ROUND.format(count=count, operator="*", kind=kind, exact=exact))


def _write_difference(later: str, earlier: str, kind: str) -> str:
    if kind == "DATE":
        return f"to_days(CAST(date_diff('day', {earlier}, {later}) AS INTEGER))"
    return f"spark_span(epoch_us({later}) - epoch_us({earlier}))"


_MONTH_COUNT = "(CAST(datepart('year', i) AS BIGINT) * 12 + datepart('month', i))"
_MICROSECOND_COUNT = "epoch_us(i)"

MACROS: Macros = {
    "plus_months": [
        (("x DATE", "i INTERVAL"), "CAST(x + i AS DATE)"),
        (("x TIME", "i INTERVAL"), "error('a time of day has no months')"),
        (("x TIMESTAMP", "i INTERVAL"), "x + i"),
        (("x TIMESTAMPTZ", "i INTERVAL"), "x + i"),
        (("x VARCHAR", "i INTERVAL"), f"CASE WHEN x IS NOT NULL THEN {_TEXT_PLUS_MONTHS} END"),
        (("x", "i"), "x + i"),
    ],
    "plus_days": [(("x DATE", "i INTERVAL"), "CAST(x + i AS DATE)"), *_TIME_OVERLOADS],
    "plus_times": [(("x DATE", "i INTERVAL"), "CAST(x AS TIMESTAMPTZ) + i"), *_TIME_OVERLOADS],
    "plus_calendar": [
        (
            ("x DATE", "i INTERVAL"),
            "CASE WHEN microsecond(i) <> 0 OR minute(i) <> 0 OR hour(i) <> 0 "
            "THEN error('a date and an interval with a time cannot be added: cast the date to a timestamp') "
            "ELSE CAST(x + i AS DATE) END",
        ),
        *_TIME_OVERLOADS[1:],
    ],
    # Arrow counts the nanoseconds of an interval in 64 bits, which is 292 years: longer intervals count days too.
    "span": (
        ("micros",),
        f"CASE WHEN abs(CAST(micros AS HUGEINT)) <= {2**63 // 1000} THEN to_microseconds(micros) "
        "ELSE to_days(CAST(micros // 86400000000 AS INTEGER)) + to_microseconds(micros % 86400000000) END",
    ),
    "minus": [
        (("a DATE", "b DATE"), "to_days(CAST(date_diff('day', b, a) AS INTEGER))"),
        (("a TIME", "b TIME"), "to_microseconds(epoch_us(a) - epoch_us(b))"),
        (("a DATE", "b TIMESTAMP"), "spark_span(epoch_us(CAST(a AS TIMESTAMP)) - epoch_us(b))"),
        (("a TIMESTAMP", "b DATE"), "spark_span(epoch_us(a) - epoch_us(CAST(b AS TIMESTAMP)))"),
        *(
            overload
            for kind, cast in (("DATE", "date"), ("TIMESTAMP", "timestamp_ntz"), ("TIMESTAMPTZ", "timestamp"))
            for overload in (
                ((f"a {kind}", "b VARCHAR"), _write_difference("a", f"spark_text_{cast}(b)", kind)),
                (("a VARCHAR", f"b {kind}"), _write_difference(f"spark_text_{cast}(a)", "b", kind)),
            )
        ),
        (("a", "b"), "a - b"),
    ],
    "times_months": (("i", "n"), _write_scaling(_MONTH_COUNT, "INTEGER", "to_months({})", is_division=False)),
    "times_times": (("i", "n"), _write_scaling(_MICROSECOND_COUNT, "BIGINT", "spark_span({})", is_division=False)),
    "share_months": (("i", "n"), _write_scaling(_MONTH_COUNT, "INTEGER", "to_months({})", is_division=True)),
    "share_times": (("i", "n"), _write_scaling(_MICROSECOND_COUNT, "BIGINT", "spark_span({})", is_division=True)),
    "interval_months": (("i",), _MONTH_COUNT),
    "interval_micros": (("i",), _MICROSECOND_COUNT),
    "months_text": (
        ("n", "fields"),
        "CASE WHEN n IS NULL THEN NULL ELSE 'INTERVAL ''' || CASE WHEN n < 0 THEN '-' ELSE '' END || "
        "CASE fields WHEN 'YEAR' THEN CAST(abs(n) // 12 AS VARCHAR) WHEN 'MONTH' THEN CAST(abs(n) AS VARCHAR) "
        "ELSE (abs(n) // 12) || '-' || (abs(n) % 12) END || ''' ' || fields END",
    ),
    "two_digits": (("n",), "CASE WHEN n < 10 THEN '0' || n ELSE CAST(n AS VARCHAR) END"),
    "second_text": (
        ("n",),
        "spark_two_digits(n // 1000000) || CASE WHEN n % 1000000 = 0 THEN '' "
        "ELSE '.' || rtrim(lpad(CAST(n % 1000000 AS VARCHAR), 6, '0'), '0') END",
    ),
    "make_dt_interval": (
        ("d", "h", "m", "s"),
        "spark_span(CAST(spark_whole_int(d) AS BIGINT) * 86400000000 + CAST(spark_whole_int(h) AS "
        "BIGINT) * 3600000000 "
        "+ CAST(spark_whole_int(m) AS BIGINT) * 60000000 + CAST(CAST(s AS DECIMAL(18, 6)) * 1000000 AS BIGINT))",
    ),
    "make_ym_interval": (
        ("y", "m"),
        "to_months(CAST(CAST(spark_whole_int(y) AS BIGINT) * 12 + spark_whole_int(m) AS INTEGER))",
    ),
    "make_interval": (
        ("y", "m", "w", "d", "h", "n", "s"),
        "to_months(CAST(CAST(spark_whole_int(y) AS BIGINT) * 12 + spark_whole_int(m) AS INTEGER)) "
        "+ to_days(CAST(CAST(spark_whole_int(w) AS BIGINT) * 7 + spark_whole_int(d) AS INTEGER)) "
        "+ to_microseconds(CAST(spark_whole_int(h) AS BIGINT) * 3600000000 + CAST(spark_whole_int(n) AS "
        "BIGINT) * 60000000 "
        "+ CAST(CAST(s AS DECIMAL(18, 6)) * 1000000 AS BIGINT))",
    ),
    "try_make_interval": (
        ("y", "m", "w", "d", "h", "n", "s"),
        "TRY(to_months(CAST(CAST(y AS BIGINT) * 12 + CAST(m AS BIGINT) AS INTEGER)) "
        "+ to_days(CAST(CAST(w AS BIGINT) * 7 + CAST(d AS BIGINT) AS INTEGER)) "
        "+ to_microseconds(CAST(h AS BIGINT) * 3600000000 + CAST(n AS BIGINT) * 60000000 "
        "+ CAST(CAST(s AS DECIMAL(18, 6)) * 1000000 AS BIGINT)))",
    ),
    "interval_div": (("a", "b"), "CASE WHEN b = 0 THEN error('an interval is divided by zero') ELSE a // b END"),
    "interval_sign": (("i",), "CAST(sign(epoch_us(i)) AS DOUBLE)"),
    "interval_abs": (("i",), "CASE WHEN epoch_us(i) < 0 THEN -i ELSE i END"),
}

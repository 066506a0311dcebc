"""Macros of intervals: their sums with dates and times, their multiples, shares and texts, and what makes them."""

from __future__ import annotations

from tamis.scan.spark_calls import Macros

_LATE = "error('a time of day plus an interval is not a time of the same day')"
_NO_TEXT = "error('a text and years or months cannot be added: cast the text to a date')"

_TIME_OVERLOADS = [
    (
        ("x TIME", "i INTERVAL"),
        f"CASE WHEN epoch_us(x) + epoch_us(i) BETWEEN 0 AND 86399999999 THEN x + i "
        f"WHEN x IS NOT NULL AND i IS NOT NULL THEN {_LATE} END",
    ),
    (("x TIMESTAMP", "i INTERVAL"), "x + i"),
    (("x TIMESTAMPTZ", "i INTERVAL"), "x + i"),
    (("x VARCHAR", "i INTERVAL"), "regexp_replace(CAST(spark_text_timestamp(x) + i AS VARCHAR), '\\+00$', '')"),
    (("x", "i"), "x + i"),
]
_ROUNDED = (
    "CASE WHEN typeof(n) IN ('DOUBLE', 'FLOAT', 'VARCHAR') "
    "THEN CAST(round(CAST({count} AS DOUBLE) {operator} CAST(n AS DOUBLE)) AS {kind}) "
    "ELSE CAST({exact} AS {kind}) END"
)


def _scaled(count: str, kind: str, made: str, *, is_division: bool) -> str:
    """So many times a count of months or microseconds, rounded half up, as Spark does."""
    if is_division:
        # A quotient of whole numbers is rounded by its remainder, so that no digit is lost.
        exact = (
            f"CASE WHEN typeof(n) IN ('TINYINT', 'SMALLINT', 'INTEGER', 'BIGINT') "
            f"THEN {count} // CAST(n AS BIGINT) + CASE WHEN 2 * abs({count} % CAST(n AS BIGINT)) >= "
            f"abs(CAST(n AS HUGEINT)) "
            f"THEN CAST(sign({count}) * sign(n) AS BIGINT) ELSE 0 END "
            f"ELSE round(CAST({count} AS DOUBLE) / CAST(n AS DOUBLE)) END"
        )
        body = _ROUNDED.format(count=count, operator="/", kind=kind, exact=exact)
        return (
            f"CASE WHEN CAST(n AS DOUBLE) = 0 THEN error('an interval is divided by zero') ELSE {made.format(body)} END"
        )
    exact = f"round(CAST({count} AS DECIMAL(19, 0)) * n)"
    return made.format(_ROUNDED.format(count=count, operator="*", kind=kind, exact=exact))


def _between(later: str, earlier: str, kind: str) -> str:
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
        (("x VARCHAR", "i INTERVAL"), f"CASE WHEN x IS NOT NULL THEN {_NO_TEXT} END"),
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
    # Arrow counts the nanoseconds of an interval: of more than 292 years it counts the days apart.
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
                ((f"a {kind}", "b VARCHAR"), _between("a", f"spark_text_{cast}(b)", kind)),
                (("a VARCHAR", f"b {kind}"), _between(f"spark_text_{cast}(a)", "b", kind)),
            )
        ),
        (("a", "b"), "a - b"),
    ],
    "times_months": (("i", "n"), _scaled(_MONTH_COUNT, "INTEGER", "to_months({})", is_division=False)),
    "times_times": (("i", "n"), _scaled(_MICROSECOND_COUNT, "BIGINT", "spark_span({})", is_division=False)),
    "share_months": (("i", "n"), _scaled(_MONTH_COUNT, "INTEGER", "to_months({})", is_division=True)),
    "share_times": (("i", "n"), _scaled(_MICROSECOND_COUNT, "BIGINT", "spark_span({})", is_division=True)),
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

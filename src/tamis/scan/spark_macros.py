"""Macros for the embedded connection that compute what Spark computes: their parameters and their bodies.

A macro has no types. Where the meaning depends on one, `typeof` asks for it, and every branch must be valid for all.
"""

from __future__ import annotations

_FLOATING = "typeof(x) IN ('DOUBLE', 'FLOAT')"
_LARGEST, _SMALLEST = 2**63 - 1, -(2**63)


def _whole(function: str) -> str:
    """Whole numbers of floats are bigint in Spark: NaN is 0 there, and what does not fit is the nearest that does."""
    return (
        f"CASE WHEN {_FLOATING} THEN CASE WHEN isnan(CAST(x AS DOUBLE)) THEN 0 WHEN x >= {_LARGEST} THEN {_LARGEST} "
        f"WHEN x <= {_SMALLEST} THEN {_SMALLEST} ELSE CAST({function}(x) AS BIGINT) END ELSE {function}(x) END"
    )


def _integer(cast: str, target: str, otherwise: str) -> str:
    """Fractions are cut off, where DuckDB rounds; a text must be a whole number."""
    return (
        f"CASE WHEN {_FLOATING} THEN {cast}(trunc(TRY_CAST(x AS DOUBLE)) AS {target}) "
        f"WHEN typeof(x) LIKE 'DECIMAL%' THEN {cast}(split_part(CAST(x AS VARCHAR), '.', 1) AS {target}) "
        f"WHEN typeof(x) = 'VARCHAR' AND NOT regexp_full_match(CAST(x AS VARCHAR), '\\s*[+-]?[0-9]+\\s*') "
        f"AND TRY_CAST(x AS {target}) IS NOT NULL THEN {otherwise} ELSE {cast}(x AS {target}) END"
    )


_MICROSECONDS = "epoch_us(CAST(x AS TIMESTAMP))"


def _since_epoch(divisor: int) -> str:
    """Whole units since 1970, downwards before it too."""
    return f"({_MICROSECONDS} - ({_MICROSECONDS} % {divisor} + {divisor}) % {divisor}) // {divisor}"


FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    # Dates
    "dayofweek": (("x",), "dayofweek(CAST(x AS DATE)) + 1"),
    "weekday": (("x",), "isodow(CAST(x AS DATE)) - 1"),
    "dayname": (("x",), "strftime(CAST(x AS DATE), '%a')"),
    "monthname": (("x",), "strftime(CAST(x AS DATE), '%b')"),
    "add_months": (("x", "n"), "CAST(CAST(x AS DATE) + to_months(CAST(n AS INTEGER)) AS DATE)"),
    "date_add": (("x", "n"), "CAST(x AS DATE) + CAST(n AS INTEGER)"),
    "date_sub": (("x", "n"), "CAST(x AS DATE) - CAST(n AS INTEGER)"),
    "date_from_unix_date": (("n",), "DATE '1970-01-01' + CAST(n AS INTEGER)"),
    "months_between": (
        ("a", "b", "rounded"),
        "CASE WHEN rounded THEN round(spark_months(CAST(a AS TIMESTAMP), CAST(b AS TIMESTAMP)), 8) "
        "ELSE spark_months(CAST(a AS TIMESTAMP), CAST(b AS TIMESTAMP)) END",
    ),
    "unix_seconds": (("x",), _since_epoch(1_000_000)),
    "unix_millis": (("x",), _since_epoch(1_000)),
    "timestamp_seconds": (
        ("x",),
        "CASE WHEN isfinite(CAST(x AS DOUBLE)) THEN make_timestamptz(CAST(trunc(x * 1000000) AS BIGINT)) END",
    ),
    "timestamp_millis": (("x",), "make_timestamptz(CAST(x AS BIGINT) * 1000)"),
    "timestamp_micros": (("x",), "make_timestamptz(CAST(x AS BIGINT))"),
    "from_utc_timestamp": (("x", "zone"), "timezone(zone, CAST(CAST(x AS TIMESTAMP) AS TIMESTAMPTZ))"),
    "to_utc_timestamp": (("x", "zone"), "CAST(timezone(zone, CAST(x AS TIMESTAMP)) AS TIMESTAMP)"),
    # Numbers
    "ceil": (("x",), _whole("ceil")),
    "floor": (("x",), _whole("floor")),
    "ln": (("x",), "CASE WHEN x <= 0 THEN NULL ELSE ln(x) END"),
    "log10": (("x",), "CASE WHEN x <= 0 THEN NULL ELSE log10(x) END"),
    "log2": (("x",), "CASE WHEN x <= 0 THEN NULL ELSE log2(x) END"),
    "isnan": (("x",), "coalesce(isnan(x), FALSE)"),
    "bit_count": (("x",), "bit_count(CAST(x AS BIGINT))"),
    "factorial": (("x",), "CASE WHEN x BETWEEN 0 AND 20 THEN CAST(factorial(CAST(x AS INTEGER)) AS BIGINT) END"),
    "pmod": (("x", "n"), "CASE WHEN x % n < 0 THEN (x % n + n) % n ELSE x % n END"),
    "nanvl": (("x", "y"), "CASE WHEN isnan(CAST(x AS DOUBLE)) THEN y ELSE x END"),
    "rint": (("x",), "round_even(CAST(x AS DOUBLE), 0)"),
    "positive": (("x",), "+x"),
    "zeroifnull": (("x",), "coalesce(x, 0)"),
    "nullifzero": (("x",), "nullif(x, 0)"),
    "try_add": (("x", "y"), "TRY(x + y)"),
    "try_subtract": (("x", "y"), "TRY(x - y)"),
    "try_multiply": (("x", "y"), "TRY(x * y)"),
    "try_mod": (("x", "y"), "TRY(x % y)"),
    "format_number": (
        ("x", "n"),
        f"CASE WHEN x IS NULL OR n IS NULL OR n < 0 THEN NULL WHEN {_FLOATING} THEN "
        "CASE WHEN isnan(CAST(x AS DOUBLE)) THEN 'NaN' WHEN isinf(CAST(x AS DOUBLE)) "
        "THEN CASE WHEN x < 0 THEN '-∞' ELSE '∞' END ELSE format('{:,.' || n || 'f}', CAST(x AS DOUBLE)) END "
        "ELSE CASE WHEN x < 0 THEN '-' ELSE '' END || spark_grouped(CAST(round_even(abs(x), n) AS VARCHAR), n) END",
    ),
    "sign": (("x",), "CASE WHEN isnan(CAST(x AS DOUBLE)) THEN CAST(x AS DOUBLE) ELSE CAST(sign(x) AS DOUBLE) END"),
    # Texts
    **dict.fromkeys(("char", "chr"), (("x",), "CASE WHEN x < 0 THEN '' ELSE chr(CAST(x & 255 AS INTEGER)) END")),
    "split": (("x", "pattern"), "CASE WHEN pattern IS NULL THEN NULL ELSE str_split_regex(x, pattern) END"),
    "json_array_length": (
        ("x",),
        "CASE WHEN spark_is_json(x) AND json_type(x) = 'ARRAY' THEN json_array_length(x) END",
    ),
    "json_object_keys": (("x",), "CASE WHEN spark_is_json(x) AND json_type(x) = 'OBJECT' THEN json_keys(x) END"),
    "octet_length": (
        ("x",),
        "CASE WHEN typeof(x) = 'BLOB' THEN octet_length(TRY_CAST(x AS BLOB)) ELSE strlen(CAST(x AS VARCHAR)) END",
    ),
    "sha2": (
        ("x", "bits"),
        "CASE WHEN bits IN (0, 256) THEN sha256(x) "
        "WHEN x IS NOT NULL AND bits IN (224, 384, 512) THEN error('sha2 has 256 bits here') END",
    ),
    "substring_index": (
        ("x", "delimiter", "n"),
        "CASE WHEN x IS NULL OR delimiter IS NULL OR n IS NULL THEN NULL WHEN delimiter = '' OR n = 0 THEN '' "
        "WHEN n > 0 THEN array_to_string(string_split(x, delimiter)[1:n], delimiter) "
        "ELSE array_to_string(string_split(x, delimiter)[n:], delimiter) END",
    ),
    "find_in_set": (
        ("x", "texts"),
        "CASE WHEN x IS NULL OR texts IS NULL THEN NULL WHEN contains(x, ',') THEN 0 "
        "ELSE coalesce(list_position(string_split(texts, ','), x), 0) END",
    ),
    "regexp_substr": (("x", "pattern"), "nullif(regexp_extract(x, pattern), '')"),
    "left": (("x", "n"), "CASE WHEN n <= 0 THEN left(x, 0) ELSE left(x, n) END"),
    "right": (("x", "n"), "CASE WHEN n <= 0 THEN left(x, 0) ELSE right(x, n) END"),
    "levenshtein": (
        ("a", "b"),
        "CASE WHEN strlen(a) = length(a) AND strlen(b) = length(b) THEN levenshtein(a, b) "
        "WHEN a IS NOT NULL AND b IS NOT NULL THEN error('levenshtein compares ASCII alone here') END",
    ),
    "split_part": (
        ("x", "delimiter", "n"),
        "CASE WHEN delimiter = '' THEN CASE WHEN abs(n) = 1 THEN x ELSE left(x, 0) END "
        "ELSE split_part(x, delimiter, n) END",
    ),
    "to_binary": (("x",), "unhex(x)"),
    "url_decode": (("x",), "url_decode(replace(x, '+', ' '))"),
    "url_encode": (("x",), "replace(replace(replace(url_encode(x), '%20', '+'), '~', '%7E'), '%2A', '*')"),
    # Arrays and maps
    "get": (("x", "n"), "CASE WHEN n >= 0 THEN list_extract(x, n + 1) END"),
    "array_repeat": (("item", "n"), "list_transform(range(CAST(n AS BIGINT)), lambda e: item)"),
    "array_union": (
        ("x", "y"),
        "CASE WHEN x IS NULL OR y IS NULL THEN NULL ELSE spark_array_distinct(list_concat(x, y)) END",
    ),
    "arrays_overlap": (
        ("x", "y"),
        "CASE WHEN x IS NULL OR y IS NULL THEN NULL WHEN list_has_any(x, y) THEN TRUE "
        "WHEN len(x) > 0 AND len(y) > 0 AND (list_position(x, NULL) IS NOT NULL OR list_position(y, NULL) IS NOT NULL) "
        "THEN NULL ELSE FALSE END",
    ),
    "map_contains_key": (("x", "key"), "list_contains(map_keys(x), key)"),
    "array_contains": (
        ("x", "item"),
        "CASE WHEN list_contains(x, item) THEN TRUE WHEN list_position(x, NULL) IS NOT NULL THEN NULL "
        "ELSE list_contains(x, item) END",
    ),
    "array_distinct": (("x",), "list_filter(x, lambda e, i: list_position(x, e) = i)"),
    "array_except": (
        ("x", "y"),
        "CASE WHEN y IS NULL THEN NULL "
        "ELSE list_filter(x, lambda e, i: list_position(x, e) = i AND list_position(y, e) IS NULL) END",
    ),
    "array_intersect": (
        ("x", "y"),
        "CASE WHEN y IS NULL THEN NULL "
        "ELSE list_filter(x, lambda e, i: list_position(x, e) = i AND list_position(y, e) IS NOT NULL) END",
    ),
    "array_insert": (
        ("x", "n", "item"),
        "CASE WHEN x IS NULL OR n IS NULL THEN NULL WHEN n = 0 THEN error('array_insert counts from 1 or from -1') "
        "WHEN n > 0 THEN list_concat(list_resize(x, n - 1), [item], x[n:]) "
        "WHEN len(x) + n + 1 >= 0 THEN list_concat(x[1:len(x) + n + 1], [item], x[len(x) + n + 2:]) "
        "ELSE list_concat([item], list_resize(x[1:0], -(len(x) + n + 1)), x) END",
    ),
    "array_position": (
        ("x", "item"),
        "CASE WHEN x IS NULL OR item IS NULL THEN NULL ELSE coalesce(list_position(x, item), 0) END",
    ),
    "array_remove": (
        ("x", "item"),
        "CASE WHEN item IS NULL THEN NULL ELSE list_filter(x, lambda e: e IS DISTINCT FROM item) END",
    ),
    "flatten": (("x",), "CASE WHEN list_position(x, NULL) IS NOT NULL THEN NULL ELSE flatten(x) END"),
    "sequence": (
        ("first", "last"),
        "CASE WHEN first <= last THEN generate_series(first, last) ELSE generate_series(first, last, -1) END",
    ),
    "map_concat": (
        ("x", "y"),
        "CASE WHEN x IS NULL OR y IS NULL THEN NULL "
        "WHEN list_has_any(map_keys(x), map_keys(y)) THEN error('map_concat finds a key in both maps') "
        "ELSE map_concat(x, y) END",
    ),
}
"""Functions by their name in Spark."""

_PARSED = (
    "CASE WHEN x IS NULL THEN NULL "
    "WHEN regexp_full_match(CAST(x AS VARCHAR), shape) THEN strptime(CAST(x AS VARCHAR), format) "
    "ELSE error('a text is not written as the pattern says') END"
)
_DIGITS = "replace(ltrim(text, '-'), '.', '')"
_NOT_WHOLE = "error('a text is no whole number')"

_TEXT = (
    f"CASE WHEN {_FLOATING} THEN spark_number_text(CAST(x AS VARCHAR)) "
    "WHEN typeof(x) = 'BLOB' THEN decode(CAST(CAST(x AS VARCHAR) AS BLOB)) "
    "WHEN typeof(x) = 'TIMESTAMP WITH TIME ZONE' THEN regexp_replace(CAST(x AS VARCHAR), '\\+00$', '') "
    "WHEN typeof(x) LIKE '%[]' OR typeof(x) LIKE 'STRUCT%' OR typeof(x) LIKE 'MAP%' "
    "THEN CASE WHEN x IS NOT NULL THEN error('lists, maps and structs have no text here') END "
    "ELSE CAST(x AS VARCHAR) END"
)
"""The text of a value, as Spark casts it."""

MACROS = FUNCTIONS | {
    "round_float": (
        ("x", "n"),
        # Halves are those of the number as it is written: 1.005 rounds to 1.01, though the double is a little less.
        "CASE WHEN abs(x) < 1e15 THEN CAST(round(CAST(CAST(x AS VARCHAR) AS DECIMAL(38, 18)), n) AS DOUBLE) "
        "ELSE round(x, n) END",
    ),
    "bround_float": (
        ("x", "n"),
        "CASE WHEN abs(x) < 1e15 THEN CAST(round_even(CAST(CAST(x AS VARCHAR) AS DECIMAL(38, 18)), n) AS DOUBLE) "
        "ELSE round_even(x, n) END",
    ),
    "bround_unknown": (
        ("x", "n"),
        f"CASE WHEN {_FLOATING} THEN error('bround of a computed float: cast it to a decimal first') "
        "ELSE round_even(x, n) END",
    ),
    "round_single": (("x", "n"), "round(x, n)"),
    "round_unknown": (
        ("x", "n"),
        "CASE WHEN typeof(x) IN ('DOUBLE', 'FLOAT') "
        "THEN error('round of a computed double may differ in the last digit: cast it to a decimal first') "
        "ELSE round(x, n) END",
    ),
    "piece": (
        ("x",),
        "CASE WHEN typeof(x) IN ('DOUBLE', 'FLOAT', 'BLOB', 'TIMESTAMP WITH TIME ZONE') "
        "THEN error('write the text of a float, a timestamp or bytes with CAST AS STRING') ELSE x END",
    ),
    "listed": (
        ("x",),
        "CASE WHEN typeof(x) IN ('DOUBLE[]', 'FLOAT[]', 'TIMESTAMP WITH TIME ZONE[]') "
        "THEN error('array_join joins texts: transform its items with CAST AS STRING') ELSE x END",
    ),
    "key": (
        ("x", "k"),
        "CASE WHEN typeof(x) LIKE 'MAP%' THEN k ELSE error('write element_at(list, 1 + index) for list[index]') END",
    ),
    "div": (
        ("x", "y"),
        "CASE WHEN typeof(x) LIKE 'DECIMAL%' OR typeof(y) LIKE 'DECIMAL%' "
        "THEN error('div divides whole numbers alone here: cast the decimal') ELSE x // y END",
    ),
    "found": (("x",), "list_transform(x, lambda e: coalesce(e, ''))"),
    "log": (("base", "x"), "CASE WHEN x <= 0 OR base <= 0 THEN NULL ELSE ln(x) / ln(base) END"),
    "seconds": (("x",), "CAST(microsecond(CAST(x AS TIMESTAMP)) / 1000000.0 AS DECIMAL(8, 6))"),
    "whole_months": (
        ("a", "b"),
        # A month is whole at the same day and time of the next one, whichever day that month ends with.
        "datediff('month', CAST(a AS TIMESTAMP), CAST(b AS TIMESTAMP)) + CASE "
        "WHEN b >= a AND spark_time_of_month(b) < spark_time_of_month(a) THEN -1 "
        "WHEN b < a AND spark_time_of_month(b) > spark_time_of_month(a) THEN 1 ELSE 0 END",
    ),
    "time_of_month": (
        ("t",),
        "epoch_us(CAST(t AS TIMESTAMP)) - epoch_us(date_trunc('month', CAST(t AS TIMESTAMP)))",
    ),
    "months": (
        ("a", "b"),
        "datediff('month', b, a) + CASE WHEN day(a) = day(b) "
        "OR (a::DATE = last_day(a) AND b::DATE = last_day(b)) THEN 0.0::DOUBLE "
        "ELSE ((day(a) - day(b)) * 86400 + (epoch_us(a) - epoch_us(a::DATE::TIMESTAMP)) // 1000000 "
        "- (epoch_us(b) - epoch_us(b::DATE::TIMESTAMP)) // 1000000)::DOUBLE / 2678400::DOUBLE END",
    ),
    "parsed": (("x", "format", "shape"), _PARSED),
    "parsed_date": (("x", "format", "shape"), f"CAST({_PARSED} AS DATE)"),
    "parsed_seconds": (
        ("x", "format", "shape"),
        # A moment has no pattern. Parts of a second before 1970 are cut off upwards.
        f"CASE WHEN typeof(x) = 'VARCHAR' THEN epoch_us({_PARSED}) ELSE epoch_us(CAST(x AS TIMESTAMP)) END // 1000000",
    ),
    "json_value": (("x", "path"), "CASE WHEN spark_is_json(x) THEN json_extract_string(x, path) END"),
    "is_json": (
        ("x",),
        # Spark also reads texts in single quotes, control characters in texts, and what other text follows on.
        "CASE WHEN json_valid(x) THEN TRUE WHEN regexp_matches(x, '[\\x00-\\x1f'']') OR "
        "len(list_filter(range(1, length(x)), lambda i: x[i] IN ('}', ']') AND json_valid(left(x, i)))) > 0 "
        "THEN error('a text is no JSON, and Spark would read some of it') ELSE FALSE END",
    ),
    "grouped": (
        ("text", "n"),
        "format('{:,}', CAST(split_part(text, '.', 1) AS HUGEINT)) "
        "|| CASE WHEN n > 0 THEN '.' || rpad(split_part(text, '.', 2), CAST(n AS INTEGER), '0') ELSE '' END",
    ),
    "any_of": (
        ("x",),
        "CASE WHEN list_contains(x, TRUE) THEN TRUE WHEN list_position(x, NULL) IS NOT NULL THEN NULL "
        "WHEN x IS NOT NULL THEN FALSE END",
    ),
    "all_of": (
        ("x",),
        "CASE WHEN list_contains(x, FALSE) THEN FALSE WHEN list_position(x, NULL) IS NOT NULL THEN NULL "
        "WHEN x IS NOT NULL THEN TRUE END",
    ),
    "signed": (("x",), "CAST(x AS INTEGER)"),
    "outer_items": (("x",), "CASE WHEN len(x) > 0 THEN x ELSE [NULL] END"),
    "day_of_difference": (
        ("x",),
        "CASE WHEN typeof(x) = 'INTERVAL' THEN datepart('day', TRY_CAST(x AS INTERVAL)) "
        "ELSE day(TRY_CAST(CAST(x AS VARCHAR) AS DATE)) END",
    ),
    "replacement": (
        ("x",),
        "CASE WHEN contains(x, '$') OR contains(x, '\\') "
        "THEN error('a replacement that is no constant may not have $ and backslashes') ELSE x END",
    ),
    "locate": (
        ("part", "x", "start"),
        "CASE WHEN start IS NULL THEN 0 WHEN part IS NULL OR x IS NULL THEN NULL WHEN start <= 0 THEN 0 "
        "WHEN part = '' THEN 1 "
        "WHEN strpos(substring(x, start), part) = 0 THEN 0 ELSE strpos(substring(x, start), part) + start - 1 END",
    ),
    "substring": (
        ("x", "start", "size"),
        # What lies before the first character counts too, and nothing is there.
        "CASE WHEN start IS NULL OR size IS NULL THEN NULL ELSE substring(x, greatest(spark_offset(x, start), 0) + 1, "
        "greatest(spark_offset(x, start) + greatest(size, 0) - greatest(spark_offset(x, start), 0), 0)) END",
    ),
    "offset": (
        ("x", "start"),
        "CAST(CASE WHEN start > 0 THEN start - 1 WHEN start < 0 THEN length(x) + start ELSE start END AS BIGINT)",
    ),
    "shift": (
        ("x", "n"),
        "CASE WHEN n BETWEEN 0 AND CASE WHEN typeof(x) = 'BIGINT' THEN 63 ELSE 31 END THEN n "
        "WHEN x IS NOT NULL AND n IS NOT NULL THEN error('a shift by more bits than the value has') END",
    ),
    "shiftleft": (("x", "n"), "x << spark_shift(x, n)"),
    "shiftright": (("x", "n"), "x >> spark_shift(x, n)"),
    "padded": (
        ("x", "width", "flag"),
        "CASE WHEN typeof(x) LIKE 'TIMESTAMP%' OR typeof(x) = 'DATE' THEN error('%s prints no dates and times here') "
        "WHEN flag = '-' THEN rpad(coalesce(spark_string(x), 'null'), "
        "CAST(greatest(width, length(coalesce(spark_string(x), 'null'))) AS INTEGER), ' ') "
        "ELSE lpad(coalesce(spark_string(x), 'null'), "
        "CAST(greatest(width, length(coalesce(spark_string(x), 'null'))) AS INTEGER), ' ') END",
    ),
    "padded_number": (
        ("x", "width", "flag"),
        "CASE WHEN typeof(x) NOT IN ('TINYINT', 'SMALLINT', 'INTEGER', 'BIGINT') "
        "THEN error('%d prints whole numbers') WHEN flag = '0' AND x IS NOT NULL "
        "THEN CASE WHEN x < 0 THEN '-' || lpad(ltrim(CAST(x AS VARCHAR), '-'), "
        "CAST(greatest(width - 1, length(CAST(x AS VARCHAR)) - 1) AS INTEGER), '0') "
        "ELSE lpad(CAST(x AS VARCHAR), CAST(greatest(width, length(CAST(x AS VARCHAR))) AS INTEGER), '0') END "
        "ELSE spark_padded(x, width, flag) END",
    ),
    **dict.fromkeys(("string", "plain_string"), (("x",), _TEXT)),
    "number_text": (
        ("text",),
        # Java writes 1.0E10 for what DuckDB writes as 10000000000.0, and 1.0E-5 for 1e-05.
        "CASE WHEN text = 'nan' OR text = '-nan' THEN 'NaN' WHEN text = 'inf' THEN 'Infinity' "
        "WHEN text = '-inf' THEN '-Infinity' "
        "WHEN contains(text, 'e') THEN CASE WHEN contains(text, '.') THEN split_part(text, 'e', 1) "
        "ELSE split_part(text, 'e', 1) || '.0' END || 'E' "
        "|| CAST(CAST(split_part(text, 'e', 2) AS INTEGER) AS VARCHAR) "
        "WHEN abs(CAST(text AS DOUBLE)) >= 1e7 THEN "
        f"CASE WHEN text LIKE '-%' THEN '-' ELSE '' END || left({_DIGITS}, 1) || '.' || "
        f"CASE WHEN rtrim(substring({_DIGITS}, 2), '0') = '' THEN '0' ELSE rtrim(substring({_DIGITS}, 2), '0') END "
        "|| 'E' || CAST(length(split_part(ltrim(text, '-'), '.', 1)) - 1 AS VARCHAR) "
        "WHEN abs(CAST(text AS DOUBLE)) < 1e-3 AND CAST(text AS DOUBLE) <> 0 THEN "
        f"CASE WHEN text LIKE '-%' THEN '-' ELSE '' END || left(ltrim({_DIGITS}, '0'), 1) || '.' || "
        f"CASE WHEN substring(ltrim({_DIGITS}, '0'), 2) = '' THEN '0' ELSE substring(ltrim({_DIGITS}, '0'), 2) END "
        f"|| 'E' || CAST(length(ltrim({_DIGITS}, '0')) - length({_DIGITS}) AS VARCHAR) ELSE text END",
    ),
    **{
        f"{kind}{name}": (("x",), _integer("CAST", name, _NOT_WHOLE))
        for name in ("tinyint", "smallint", "integer", "bigint")
        for kind in ("", "plain_")
    },
    **{
        f"try_{name}": (("x",), _integer("TRY_CAST", name, "NULL"))
        for name in ("tinyint", "smallint", "integer", "bigint")
    },
}
"""All macros, those that others use and those of syntax included."""

REFUSED = {
    **dict.fromkeys(("hash", "xxhash64"), "the embedded engine hashes differently"),
    **dict.fromkeys(("typeof", "version"), "it would describe the embedded engine"),
    **dict.fromkeys(
        ("user", "current_user", "session_user"),
        "who asks is known to the policies and to the queries of a session, not to a filter",
    ),
    **dict.fromkeys(("current_schema", "current_database", "current_catalog"), "there is no session"),
    "to_json": "the embedded engine writes NULL and numbers differently",
    "arrays_zip": "the embedded engine names the fields differently",
}
"""Functions whose name DuckDB or sqlglot gives another meaning, and why there are no words for Spark's."""

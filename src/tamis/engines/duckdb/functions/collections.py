"""Spark's functions of lists, maps, structs, sequences and vectors as DuckDB expressions.

`MACROS` holds the macros, `BUILDERS` builds a macro call or another DuckDB expression from the arguments of a function,
and `SAME` names the functions that sqlglot's translation, or DuckDB's function of that name, computes as Spark does.

This module includes the entries of `lambdas` (functions that take lambda functions), `json_functions` and `items`
(subscripts).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from tamis.engines.duckdb.functions import items, json_functions, lambdas
from tamis.engines.duckdb.functions.items import IS_LIST, NOT_LIST, SIZE_FUNCTION
from tamis.engines.duckdb.translate.calls import (
    CallBuilder,
    Macros,
    call_duckdb,
    call_macro,
    make_fixed_arity_builder,
    make_macro_builder,
    make_unsupported_error,
    read_string_literal,
)

_SORTABLE = "spark_ordered(x)"
"""A list whose items DuckDB orders as Spark does."""


_CONTAINS = (
    "CASE WHEN list_contains(spark_plain_comparable(x), item) THEN TRUE "
    "WHEN list_position(x, NULL) IS NOT NULL THEN NULL ELSE list_contains(x, item) END"
)
_SUM = "list_reduce({}, lambda total, e: total + e{})"


MACROS: Macros = {
    **lambdas.MACROS,
    **json_functions.MACROS,
    **items.MACROS,
    # --- Lists
    "ordered": (
        ("x",),
        # NULL within structs and lists is the largest value in DuckDB, and the smallest in Spark.
        "CASE WHEN typeof(x) LIKE '%MAP(%' THEN spark_plain_comparable(x) "
        "WHEN (typeof(x) LIKE '%][]' OR typeof(x) LIKE 'STRUCT%[]' OR typeof(x) LIKE '%)[]' "
        "AND typeof(x) NOT LIKE 'DECIMAL%') "
        "AND regexp_matches(array_to_string(list_transform(x, lambda e: coalesce(CAST(e AS VARCHAR), '')), ' '), "
        "'\\bNULL\\b') THEN error('lists and structs that contain NULL are not ordered here as in Spark') "
        "ELSE x END",
    ),
    "whole": (
        ("x",),
        "CASE WHEN regexp_matches(CAST(x AS VARCHAR), '\\bNULL\\b') "
        "THEN error('structs and lists that contain NULL are not ordered here as in Spark') ELSE x END",
    ),
    "array_sort": (("x",), f"list_sort({_SORTABLE}, 'ASC', 'NULLS LAST')"),
    "sort_array": (
        ("x", "is_ascending BOOLEAN"),
        f"CASE WHEN is_ascending THEN list_sort({_SORTABLE}, 'ASC', 'NULLS FIRST') "
        f"WHEN NOT is_ascending THEN list_sort({_SORTABLE}, 'DESC', 'NULLS LAST') END",
    ),
    "array_max": (("x",), f"list_max({_SORTABLE})"),
    "array_min": (("x",), f"list_min({_SORTABLE})"),
    "array_append": (("x", "item"), "CASE WHEN x IS NOT NULL THEN list_append(x, item) END"),
    "array_prepend": (("x", "item"), "CASE WHEN x IS NOT NULL THEN list_prepend(item, x) END"),
    "array_compact": (("x",), "list_filter(x, lambda e: e IS NOT NULL)"),
    "array_size": (("x",), f"CAST(CASE WHEN {IS_LIST} THEN {SIZE_FUNCTION}(x) ELSE {NOT_LIST} END AS INTEGER)"),
    "signed": (("x",), "CAST(x AS INTEGER)"),
    "array_join": [
        (("x", "delimiter"), "spark_texts_joined(list_transform(x, lambda e: spark_string(e)), delimiter)"),
        (
            ("x", "delimiter", "replacement"),
            "CASE WHEN replacement IS NOT NULL THEN "
            "spark_texts_joined(list_transform(x, lambda e: coalesce(spark_string(e), replacement)), delimiter) END",
        ),
    ],
    "texts_joined": (
        ("texts", "d"),
        "CASE WHEN d IS NOT NULL THEN array_to_string(list_filter(texts, lambda e: e IS NOT NULL), d) END",
    ),
    "slice": (
        ("x", "start", "size"),
        "CASE WHEN x IS NULL OR start IS NULL OR size IS NULL THEN NULL "
        "WHEN start = 0 THEN error('slice: the index 0 is invalid, the first item has index 1') "
        "WHEN size < 0 THEN error('slice: the length is negative') "
        "WHEN size = 0 OR (start < 0 AND len(x) + start < 0) THEN x[1:0] "
        "WHEN start > 0 THEN list_slice(x, CAST(start AS BIGINT), CAST(start AS BIGINT) + size - 1) "
        "ELSE list_slice(x, len(x) + start + 1, len(x) + start + size) END",
    ),
    "trim_array": (
        ("x", "n"),
        "CASE WHEN x IS NULL OR n IS NULL THEN NULL "
        "WHEN n < 0 OR n > len(x) THEN error('trim_array: the number of items to remove is out of bounds') "
        "ELSE list_slice(x, 1, len(x) - n) END",
    ),
    "array_repeat": (("item", "n"), "list_transform(range(CAST(n AS BIGINT)), lambda e: item)"),
    "both": (
        ("x", "y"),
        "CASE WHEN regexp_matches(typeof(x) || typeof(y), 'DECIMAL\\([0-9]+,[0-9]{2}\\)') AND typeof(x) <> typeof(y) "
        "AND regexp_matches(typeof(x) || typeof(y), 'INT') "
        "THEN error('decimals with so many digits after the point cannot be combined with whole numbers: cast them') "
        "WHEN x IS NOT NULL AND y IS NOT NULL THEN list_concat(x, y) END",
    ),
    "array_distinct": (("x",), "list_filter(spark_plain_comparable(x), lambda e, i: list_position(x, e) = i)"),
    "array_union": (("a", "b"), "spark_array_distinct(spark_both(a, b))"),
    "arrays_overlap": (
        ("x", "y"),
        "CASE WHEN x IS NULL OR y IS NULL THEN NULL WHEN list_has_any(spark_plain_comparable(x), y) THEN TRUE "
        "WHEN len(x) > 0 AND len(y) > 0 AND (list_position(x, NULL) IS NOT NULL OR list_position(y, NULL) IS NOT NULL) "
        "THEN NULL ELSE FALSE END",
    ),
    "array_contains": [
        (
            ("x", "item VARCHAR"),
            f"CASE WHEN typeof(x) <> 'VARCHAR[]' THEN error('the list does not hold texts') ELSE {_CONTAINS} END",
        ),
        (("x", "item"), _CONTAINS),
    ],
    "array_except": (
        ("a", "b"),
        "list_filter(spark_array_distinct(spark_both(a, b[1:0])), lambda e: list_position(b, e) IS NULL)",
    ),
    "array_intersect": (
        ("a", "b"),
        "list_filter(spark_array_distinct(spark_both(a, b[1:0])), lambda e: list_position(b, e) IS NOT NULL)",
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
        "CASE WHEN x IS NULL OR item IS NULL THEN NULL "
        "ELSE CAST(coalesce(list_position(spark_plain_comparable(x), item), 0) AS BIGINT) END",
    ),
    "array_remove": (
        ("x", "item"),
        "CASE WHEN item IS NULL THEN NULL "
        "ELSE list_filter(spark_plain_comparable(x), lambda e: e IS DISTINCT FROM item) END",
    ),
    "flatten": (("x",), "CASE WHEN list_position(x, NULL) IS NOT NULL THEN NULL ELSE flatten(x) END"),
    # --- Sequences
    "sequence": [
        (
            ("first BIGINT", "last BIGINT"),
            "CASE WHEN first <= last THEN generate_series(first, last) ELSE generate_series(first, last, -1) END",
        ),
        (
            ("first BIGINT", "last BIGINT", "step BIGINT"),
            "CASE WHEN first = last AND step = 0 THEN [first] "
            "WHEN step = 0 OR (step > 0 AND first > last) OR (step < 0 AND first < last) "
            "THEN error('sequence: the step has the wrong direction') ELSE generate_series(first, last, step) END",
        ),
        (
            ("first DATE", "last DATE"),
            "CAST(CASE WHEN first <= last THEN generate_series(CAST(first AS TIMESTAMP), last, INTERVAL 1 DAY) "
            "ELSE generate_series(CAST(first AS TIMESTAMP), last, -INTERVAL 1 DAY) END AS DATE[])",
        ),
        (
            ("first TIMESTAMP", "last TIMESTAMP"),
            "CASE WHEN first <= last THEN generate_series(first, last, INTERVAL 1 DAY) "
            "ELSE generate_series(first, last, -INTERVAL 1 DAY) END",
        ),
        (
            ("first TIMESTAMPTZ", "last TIMESTAMPTZ"),
            "CASE WHEN first <= last THEN generate_series(first, last, INTERVAL 1 DAY) "
            "ELSE generate_series(first, last, -INTERVAL 1 DAY) END",
        ),
        (
            ("first DATE", "last DATE", "step INTERVAL"),
            "CASE WHEN date_trunc('day', first + step) <> first + step "
            "THEN error('sequence: the step between dates must be whole days') "
            "ELSE CAST(spark_times(CAST(first AS TIMESTAMP), CAST(last AS TIMESTAMP), step) AS DATE[]) END",
        ),
        (("first TIMESTAMP", "last TIMESTAMP", "step INTERVAL"), "spark_times(first, last, step)"),
        (
            ("first TIMESTAMPTZ", "last TIMESTAMPTZ", "step INTERVAL"),
            "CAST(spark_times(CAST(first AS TIMESTAMP), CAST(last AS TIMESTAMP), step) AS TIMESTAMPTZ[])",
        ),
    ],
    "times": (
        ("first", "last", "step"),
        # Each value is computed from the first, so that the day of the month is not lost: 31 January, 29 February,
        # 31 March.
        "CASE WHEN first = last AND first + step = first THEN [first] "
        "WHEN first + step = first OR (first + step > first AND first > last) "
        "OR (first + step < first AND first < last) "
        "THEN error('sequence: the step has the wrong direction') "
        "ELSE list_filter(list_transform(range(2 + CAST(abs(epoch(last) - epoch(first)) "
        "/ abs(spark_least_seconds(step)) AS BIGINT)), lambda i: first + spark_multiple(step, i)), "
        "lambda t: CASE WHEN first + step > first THEN t <= last ELSE t >= last END) END",
    ),
    "least_seconds": (
        ("step",),
        "datepart('year', step) * 31536000 + datepart('month', step) * 2419200 + datepart('day', step) * 86400 "
        "+ datepart('hour', step) * 3600 + datepart('minute', step) * 60 + datepart('microsecond', step) / 1000000.0",
    ),
    "multiple": (
        ("step", "i"),
        "to_months(CAST((datepart('year', step) * 12 + datepart('month', step)) * i AS INTEGER)) "
        "+ to_days(CAST(datepart('day', step) * i AS INTEGER)) "
        "+ to_microseconds(CAST((datepart('hour', step) * 3600000000 + datepart('minute', step) * 60000000 "
        "+ datepart('microsecond', step)) * i AS BIGINT))",
    ),
    # --- Maps
    "map_from_entries": (
        ("x",),
        "CASE WHEN list_position(x, NULL) IS NULL THEN map_from_entries(x) END",
    ),
    "str_to_map": (
        ("x", "pairs", "keys"),
        "CASE WHEN x IS NULL OR pairs IS NULL OR keys IS NULL THEN NULL ELSE "
        "MAP(list_transform(string_split(x, pairs), lambda e: string_split(e, keys)[1]), "
        "list_transform(string_split(x, pairs), lambda e: "
        "CASE WHEN contains(e, keys) THEN substring(e, strpos(e, keys) + length(keys)) END)) END",
    ),
    # --- Vectors: Spark computes with floats, and adds the products in order.
    "same_sizes": (
        ("x FLOAT[]", "y FLOAT[]"),
        "CASE WHEN len(x) <> len(y) THEN error('the two vectors have different sizes') "
        "ELSE list_position(x, NULL) IS NULL AND list_position(y, NULL) IS NULL "
        "AND x IS NOT NULL AND y IS NOT NULL END",
    ),
    "vector_total": (
        ("x",),
        # Spark sums up eight items at a time and adds that sum to the total: the order changes the sum of floats.
        _SUM.format(
            "list_concat(list_transform(range(0, len(x) // 8), lambda i: "
            + _SUM.format("x[8 * i + 1:8 * i + 8]", "")
            + "), x[8 * (len(x) // 8) + 1:])",
            ", CAST(0 AS FLOAT)",
        ),
    ),
    "vector_inner_product": (
        ("a FLOAT[]", "b FLOAT[]"),
        "CASE WHEN spark_same_sizes(a, b) THEN spark_vector_total("
        "list_transform(list_zip(a, b), lambda p: p[1] * p[2])) END",
    ),
    "vector_l2_distance": (
        ("a FLOAT[]", "b FLOAT[]"),
        "CASE WHEN spark_same_sizes(a, b) THEN CAST(sqrt(spark_vector_total(list_transform(list_zip(a, b), "
        "lambda p: (p[1] - p[2]) * (p[1] - p[2])))) AS FLOAT) END",
    ),
    "vector_squares": (("v",), "spark_vector_total(list_transform(v, lambda e: e * e))"),
    "vector_cosine_similarity": (
        ("a FLOAT[]", "b FLOAT[]"),
        "CASE WHEN spark_same_sizes(a, b) THEN CAST(spark_vector_inner_product(a, b) "
        "/ nullif(CAST(sqrt(spark_vector_squares(a) * spark_vector_squares(b)) AS FLOAT), 0) AS FLOAT) END",
    ),
    "vector_norm": (
        ("v FLOAT[]", "degree FLOAT"),
        "CASE WHEN list_position(v, NULL) IS NOT NULL OR v IS NULL OR degree IS NULL THEN NULL "
        "WHEN degree = 2 THEN CAST(sqrt(spark_vector_squares(v)) AS FLOAT) "
        "WHEN degree = 1 THEN spark_vector_total(list_transform(v, lambda e: abs(e))) "
        "WHEN degree = CAST('inf' AS FLOAT) "
        "THEN coalesce(list_max(list_transform(v, lambda e: abs(e))), CAST(0 AS FLOAT)) "
        "ELSE error('the degree of a norm must be 1.0, 2.0 or infinity') END",
    ),
    "vector_normalize": (
        ("v FLOAT[]", "degree FLOAT"),
        "CASE WHEN spark_vector_norm(v, degree) IS NULL THEN NULL WHEN len(v) = 0 THEN v "
        "WHEN spark_vector_norm(v, degree) <> 0 THEN "
        "list_transform(v, lambda e: CAST(e / spark_vector_norm(v, degree) AS FLOAT)) END",
    ),
}


def _build_map_concat(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if not args:
        return call_duckdb("map", call_duckdb("list_value"), call_duckdb("list_value"))
    entries: exp.Expr = call_duckdb("map_entries", args[0])
    for each in args[1:]:
        entries = call_macro("both", entries, call_duckdb("map_entries", each))
    return call_duckdb("map_from_entries", entries)


def _build_map(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) % 2:
        raise make_unsupported_error("map", "its last key has no value")
    return call_duckdb("map", call_duckdb("list_value", *args[::2]), call_duckdb("list_value", *args[1::2]))


def _build_str_to_map(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if not 1 <= len(args) <= 3:
        raise make_unsupported_error("str_to_map", "it takes a text and optionally two delimiters")
    delimiters = [*args[1:], *(exp.Literal.string(each) for each in (",", ":")[len(args) - 1 :])]
    for each in delimiters:
        text = read_string_literal(each)
        if not isinstance(each, exp.Null) and (text is None or re.fullmatch(r"[^\\^$.|?*+()\[\]{}]+", text) is None):
            raise make_unsupported_error(
                "str_to_map", "only plain texts are supported as delimiters, not regular expressions"
            )
    return call_macro("str_to_map", args[0], *delimiters)


def _build_sort_array(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) not in (1, 2):
        raise make_unsupported_error("sort_array", "it takes a list, and optionally whether to sort in ascending order")
    return call_macro("sort_array", args[0], args[1] if len(args) == 2 else exp.true())


def _build_array_join(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) not in (2, 3):
        raise make_unsupported_error("array_join", "it takes a list, a delimiter, and optionally a text for NULL")
    return call_macro("array_join", *args)


def _build_named_struct(args: Sequence[exp.Expr]) -> exp.Expr | None:
    names = [read_string_literal(each) for each in args[::2]]
    if not args or len(args) % 2 or None in names:
        raise make_unsupported_error("named_struct", "it takes pairs of a constant name and a value")
    fields = [
        exp.PropertyEQ(this=exp.Literal.string(name), expression=value)
        for name, value in zip(names, args[1::2], strict=True)
    ]
    return exp.Struct(expressions=fields)


def _make_norm_builder(name: str) -> CallBuilder:
    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        degree = [exp.cast(exp.Literal.number(2), "float")] if len(args) == 1 else []
        return make_fixed_arity_builder(name, 2)([*args, *degree])

    return build


def _build_size(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) == 1 and isinstance(args[0], exp.Null):
        return exp.cast(exp.null(), "int")
    if len(args) != 1:
        raise make_unsupported_error("size", f"it takes 1 argument, not {len(args)}")
    return call_macro("signed", call_duckdb(SIZE_FUNCTION, *args))


def _build_array_size(args: Sequence[exp.Expr]) -> exp.Expr | None:
    is_null = len(args) == 1 and isinstance(args[0], exp.Null)
    return exp.cast(exp.null(), "int") if is_null else make_fixed_arity_builder("array_size", 1)(args)


BUILDERS: dict[str, CallBuilder] = {
    **lambdas.BUILDERS,
    **json_functions.BUILDERS,
    **items.BUILDERS,
    **{
        name: make_fixed_arity_builder(name, 1)
        for name in (
            "array_compact", "array_distinct", "array_max", "array_min", "flatten",
            "map_from_entries",
        )
    },
    **{
        name: make_fixed_arity_builder(name, 2)
        for name in (
            "array_append", "array_except", "array_intersect", "array_position", "array_prepend",
            "array_remove", "array_repeat", "array_union", "arrays_overlap", "trim_array",
            "vector_cosine_similarity", "vector_inner_product", "vector_l2_distance",
        )
    },
    **dict.fromkeys(("size", "cardinality"), _build_size),
    "array_size": _build_array_size,
    "sequence": make_macro_builder("sequence", MACROS),
    "array_insert": make_fixed_arity_builder("array_insert", 3),
    "slice": make_fixed_arity_builder("slice", 3),
    "array_join": _build_array_join,
    "sort_array": _build_sort_array,
    "map_concat": _build_map_concat,
    "map": _build_map,
    "str_to_map": _build_str_to_map,
    "named_struct": _build_named_struct,
    **{name: _make_norm_builder(name) for name in ("vector_norm", "vector_normalize")},
}  # fmt: skip

SAME = frozenset({
    "array", "explode", "explode_outer", "map_entries", "map_from_arrays", "map_keys", "map_values", "posexplode",
    "posexplode_outer", "range", "struct",
})  # fmt: skip

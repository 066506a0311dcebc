"""Spark's functions of lists, maps, structs, sequences, vectors and JSON as DuckDB expressions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from tamis.engines.duckdb.functions.items import IS_LIST, NOT_LIST, SIZE_FUNCTION
from tamis.engines.duckdb.functions.lambdas import let
from tamis.engines.duckdb.macros.define_macros import define_macros
from tamis.engines.duckdb.translate.calls import (
    Build,
    BuildNamed,
    CallMacro,
    Macros,
    Rows,
    Same,
    call_duckdb,
    call_macro,
    has_null,
    is_null,
    make_struct,
    make_unsupported_error,
    null_if,
    read_constant,
    read_string_literal,
)

# --- Json functions -------------------------------------------------------------------------------------------------
#
# Spark's JSON functions as DuckDB expressions, where both read and write a text alike; other cases are rejected.


def _write_json_cast(target: str, *kinds: str) -> str:
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    return f"CASE WHEN json_type(j) IN ({listed}) THEN TRY_CAST(json_extract_string(j, '$') AS {target}) END"


JSON_MACROS: Macros = define_macros(
    rf"""
    json_array_length(x):
        CASE WHEN spark_is_json(x) AND json_type(x) = 'ARRAY' THEN CAST(json_array_length(x) AS INTEGER) END
    json_object_keys(x): CASE WHEN spark_is_json(x) AND json_type(x) = 'OBJECT' THEN json_keys(x) END
    json_value(x, path): CASE WHEN spark_is_json(x) THEN spark_json_text(json_extract(CAST(x AS JSON), path)) END
    json_text(x):
        -- Spark reads a number with a fraction or an exponent as a double and writes that.
        CASE json_type(x) WHEN 'DOUBLE' THEN spark_string(CAST(x AS DOUBLE)) WHEN 'OBJECT' THEN spark_json_nested(x)
        WHEN 'ARRAY' THEN spark_json_nested(x) ELSE json_extract_string(x, '$') END
    json_nested(x):
        CASE WHEN regexp_matches(CAST(x AS VARCHAR), '[0-9][eE][-+0-9]|\.[0-9]+0[^0-9]|[0-9.]{{17,}}')
        THEN error('Spark writes a number within the JSON differently') ELSE CAST(x AS VARCHAR) END
    json_as_double(j):
        CASE WHEN json_type(j) = 'VARCHAR' AND regexp_matches(CAST(j AS VARCHAR), '(?i)nan|inf')
        THEN error('from_json: NaN and Infinity are not supported here')
        ELSE {_write_json_cast("DOUBLE", "BIGINT", "UBIGINT", "DOUBLE")} END
    json_as_string(j):
        CASE WHEN json_type(j) IN ('DOUBLE', 'OBJECT', 'ARRAY')
        THEN error('from_json: Spark writes a number with a fraction, an object or a list differently')
        ELSE json_extract_string(j, '$') END
    json_object(x):
        CASE WHEN x IS NULL OR trim(x) = '' THEN NULL WHEN NOT spark_is_json(x) THEN CAST('{{}}' AS JSON)
        WHEN json_type(x) = 'OBJECT' AND len(json_keys(x)) = len(list_distinct(json_keys(x))) THEN CAST(x AS JSON)
        ELSE error('from_json: the text must be a JSON object without duplicate names') END
    to_json(x):
        CASE WHEN regexp_matches(typeof(x),
        '(DOUBLE|FLOAT|DECIMAL|TIME|BLOB|INTERVAL|HUGEINT|NULL|MAP\((STRUCT|MAP)|STRUCT\([A-Z]+[^A-Z ])')
        OR NOT regexp_matches(typeof(x), '^(STRUCT|MAP)|\]$')
        THEN error('to_json: the embedded engine writes values of this type differently')
        WHEN contains(typeof(x), 'MAP(') OR contains(typeof(x), '[]')
        THEN CASE WHEN regexp_matches(CAST(to_json(x) AS VARCHAR), '\bnull\b')
        THEN error('to_json: NULL within lists and maps is not supported here') ELSE CAST(to_json(x) AS VARCHAR) END
        WHEN x IS NOT NULL THEN CAST(json_merge_patch('{{}}', to_json(x)) AS VARCHAR) END
    is_json(x):
        -- Spark also accepts single quotes, control characters in strings, and JSON that other text follows.
        CASE WHEN json_valid(x) THEN TRUE WHEN regexp_matches(x, '[\x00-\x1f'']') OR
        len(list_filter(range(1, length(x)), lambda i: x[i] IN ('}}', ']') AND json_valid(left(x, i)))) > 0
        THEN error('a text is not valid JSON, and Spark would read some of it') ELSE FALSE END
    """
) | {
    **{
        f"json_as_{name}": (("j",), _write_json_cast(name, "BIGINT", "UBIGINT"))
        for name in ("tinyint", "smallint", "int", "bigint")
    },
    "json_as_boolean": (("j",), _write_json_cast("BOOLEAN", "BOOLEAN")),
}


def _build_get_json_object(args: Sequence[exp.Expr]) -> exp.Expr | None:
    path = read_constant("get_json_object", "path", args[1])
    if not path.startswith("$"):
        return exp.cast(exp.null(), "string")
    if re.fullmatch(r"\$(\.[A-Za-z_]\w*|\[\d+\]|\['[^'*\"\\]+'\])*", path) is None:
        raise make_unsupported_error("get_json_object", f"the path {path!r} has more than names and indexes")
    named = re.sub(r"\['([^']+)'\]", r'."\1"', path)
    return call_macro("json_value", args[0], exp.Literal.string(named))


_SIMPLE_TYPES = {
    **{name: name for name in ("tinyint", "smallint", "int", "bigint", "double", "boolean", "string")},
    "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint",
}  # fmt: skip
_FIELD = re.compile(r"\s*(?:`(?P<quoted>[^`]+)`|(?P<name>\w+))\s*(?:\s|:)\s*(?P<type>\w+)\s*(?:,|$)")


def _build_from_json(args: Sequence[exp.Expr]) -> exp.Expr | None:
    """Build a struct of the fields of a text. A field without the type of the schema is NULL, as in Spark."""
    schema = read_string_literal(args[1]) if len(args) == 2 else None
    if schema is None:
        raise make_unsupported_error("from_json", "it takes a text and a constant schema here, without options")
    inner = re.fullmatch(r"\s*struct\s*<(.*)>\s*", schema, re.IGNORECASE | re.DOTALL)
    text = inner[1] if inner else schema
    names: list[str] = []
    values: list[exp.Expr] = []
    offset = 0
    while offset < len(text):
        found = _FIELD.match(text, offset)
        kind = _SIMPLE_TYPES.get(found["type"].lower()) if found else None
        if found is None or kind is None:
            raise make_unsupported_error("from_json", f"the schema {schema!r} has more than fields of plain types")
        name = found["quoted"] or found["name"]
        if '"' in name:
            raise make_unsupported_error("from_json", "a field name contains a quote")
        value = call_duckdb("json_extract", exp.to_identifier("_object"), exp.Literal.string(f'$."{name}"'))
        names.append(name)
        values.append(call_macro(f"json_as_{kind}", value))
        offset = found.end()
    if not names:
        raise make_unsupported_error("from_json", "the schema is empty")
    made = null_if(is_null(exp.to_identifier("_object")), make_struct(names, values))
    return let("_object", call_macro("json_object", args[0]), made)


_SORTABLE = "spark_ordered(x)"
"""A list whose items DuckDB orders as Spark does."""


_CONTAINS = (
    "CASE WHEN list_contains(spark_plain_comparable(x), item) THEN TRUE "
    "WHEN list_position(x, NULL) IS NOT NULL THEN NULL ELSE list_contains(x, item) END"
)
_DAYS = (
    "CASE WHEN first <= last THEN generate_series(first, last, INTERVAL 1 DAY) "
    "ELSE generate_series(first, last, -INTERVAL 1 DAY) END"
)
_SUM = "list_reduce({}, lambda total, e: total + e{})"


MACROS: Macros = define_macros(
    rf"""
    -- Lists
    ordered(x):
        -- NULL within structs and lists is the largest value in DuckDB, and the smallest in Spark.
        CASE WHEN typeof(x) LIKE '%MAP(%' THEN spark_plain_comparable(x)
        WHEN (typeof(x) LIKE '%][]' OR typeof(x) LIKE 'STRUCT%[]' OR typeof(x) LIKE '%)[]'
        AND typeof(x) NOT LIKE 'DECIMAL%')
        AND regexp_matches(array_to_string(list_transform(x, lambda e: coalesce(CAST(e AS VARCHAR), '')), ' '),
        '\bNULL\b') THEN error('lists and structs that contain NULL are not ordered here as in Spark')
        ELSE x END
    whole(x):
        CASE WHEN regexp_matches(CAST(x AS VARCHAR), '\bNULL\b')
        THEN error('structs and lists that contain NULL are not ordered here as in Spark') ELSE x END
    array_sort(x): list_sort({_SORTABLE}, 'ASC', 'NULLS LAST')
    sort_array(x, is_ascending BOOLEAN):
        CASE WHEN is_ascending THEN list_sort({_SORTABLE}, 'ASC', 'NULLS FIRST')
        WHEN NOT is_ascending THEN list_sort({_SORTABLE}, 'DESC', 'NULLS LAST') END
    array_max(x): list_max({_SORTABLE})
    array_min(x): list_min({_SORTABLE})
    array_append(x, item): CASE WHEN x IS NOT NULL THEN list_append(x, item) END
    array_prepend(x, item): CASE WHEN x IS NOT NULL THEN list_prepend(item, x) END
    array_compact(x): list_filter(x, lambda e: e IS NOT NULL)
    array_size(x): CAST(CASE WHEN {IS_LIST} THEN {SIZE_FUNCTION}(x) ELSE {NOT_LIST} END AS INTEGER)
    signed(x): CAST(x AS INTEGER)
    array_join(x, delimiter): spark_texts_joined(list_transform(x, lambda e: spark_string(e)), delimiter)
    array_join(x, delimiter, replacement):
        CASE WHEN replacement IS NOT NULL THEN
        spark_texts_joined(list_transform(x, lambda e: coalesce(spark_string(e), replacement)), delimiter) END
    texts_joined(texts, d):
        CASE WHEN d IS NOT NULL THEN array_to_string(list_filter(texts, lambda e: e IS NOT NULL), d) END
    slice(x, start, size):
        CASE WHEN x IS NULL OR start IS NULL OR size IS NULL THEN NULL
        WHEN start = 0 THEN error('slice: the index 0 is invalid, the first item has index 1')
        WHEN size < 0 THEN error('slice: the length is negative')
        WHEN size = 0 OR (start < 0 AND len(x) + start < 0) THEN x[1:0]
        WHEN start > 0 THEN list_slice(x, CAST(start AS BIGINT), CAST(start AS BIGINT) + size - 1)
        ELSE list_slice(x, len(x) + start + 1, len(x) + start + size) END
    trim_array(x, n):
        CASE WHEN x IS NULL OR n IS NULL THEN NULL
        WHEN n < 0 OR n > len(x) THEN error('trim_array: the number of items to remove is out of bounds')
        ELSE list_slice(x, 1, len(x) - n) END
    array_repeat(item, n): list_transform(range(CAST(n AS BIGINT)), lambda e: item)
    both(x, y):
        CASE WHEN regexp_matches(typeof(x) || typeof(y), 'DECIMAL\([0-9]+,[0-9]{{2}}\)') AND typeof(x) <> typeof(y)
        AND regexp_matches(typeof(x) || typeof(y), 'INT')
        THEN error('decimals with so many digits after the point cannot be combined with whole numbers: cast them')
        WHEN x IS NOT NULL AND y IS NOT NULL THEN list_concat(x, y) END
    array_distinct(x): list_filter(spark_plain_comparable(x), lambda e, i: list_position(x, e) = i)
    array_union(a, b): spark_array_distinct(spark_both(a, b))
    arrays_overlap(x, y):
        CASE WHEN x IS NULL OR y IS NULL THEN NULL WHEN list_has_any(spark_plain_comparable(x), y) THEN TRUE
        WHEN len(x) > 0 AND len(y) > 0 AND (list_position(x, NULL) IS NOT NULL OR list_position(y, NULL) IS NOT NULL)
        THEN NULL ELSE FALSE END
    array_except(a, b):
        list_filter(spark_array_distinct(spark_both(a, b[1:0])), lambda e: list_position(b, e) IS NULL)
    array_intersect(a, b):
        list_filter(spark_array_distinct(spark_both(a, b[1:0])), lambda e: list_position(b, e) IS NOT NULL)
    array_insert(x, n, item):
        CASE WHEN x IS NULL OR n IS NULL THEN NULL WHEN n = 0 THEN error('array_insert counts from 1 or from -1')
        WHEN n > 0 THEN list_concat(list_resize(x, n - 1), [item], x[n:])
        WHEN len(x) + n + 1 >= 0 THEN list_concat(x[1:len(x) + n + 1], [item], x[len(x) + n + 2:])
        ELSE list_concat([item], list_resize(x[1:0], -(len(x) + n + 1)), x) END
    array_position(x, item):
        CASE WHEN x IS NULL OR item IS NULL THEN NULL
        ELSE CAST(coalesce(list_position(spark_plain_comparable(x), item), 0) AS BIGINT) END
    array_remove(x, item):
        CASE WHEN item IS NULL THEN NULL
        ELSE list_filter(spark_plain_comparable(x), lambda e: e IS DISTINCT FROM item) END
    array_contains(x, item VARCHAR):
        CASE WHEN typeof(x) <> 'VARCHAR[]' THEN error('the list does not hold texts') ELSE {_CONTAINS} END
    array_contains(x, item): {_CONTAINS}
    flatten(x): CASE WHEN list_position(x, NULL) IS NOT NULL THEN NULL ELSE flatten(x) END
    -- Sequences
    sequence(first BIGINT, last BIGINT):
        CASE WHEN first <= last THEN generate_series(first, last) ELSE generate_series(first, last, -1) END
    sequence(first BIGINT, last BIGINT, step BIGINT):
        CASE WHEN first = last AND step = 0 THEN [first]
        WHEN step = 0 OR (step > 0 AND first > last) OR (step < 0 AND first < last)
        THEN error('sequence: the step has the wrong direction') ELSE generate_series(first, last, step) END
    sequence(first DATE, last DATE):
        CAST(CASE WHEN first <= last THEN generate_series(CAST(first AS TIMESTAMP), last, INTERVAL 1 DAY)
        ELSE generate_series(CAST(first AS TIMESTAMP), last, -INTERVAL 1 DAY) END AS DATE[])
    sequence(first TIMESTAMP, last TIMESTAMP): {_DAYS}
    sequence(first TIMESTAMPTZ, last TIMESTAMPTZ): {_DAYS}
    sequence(first DATE, last DATE, step INTERVAL):
        CASE WHEN date_trunc('day', first + step) <> first + step
        THEN error('sequence: the step between dates must be whole days')
        ELSE CAST(spark_times(CAST(first AS TIMESTAMP), CAST(last AS TIMESTAMP), step) AS DATE[]) END
    sequence(first TIMESTAMP, last TIMESTAMP, step INTERVAL): spark_times(first, last, step)
    sequence(first TIMESTAMPTZ, last TIMESTAMPTZ, step INTERVAL):
        CAST(spark_times(CAST(first AS TIMESTAMP), CAST(last AS TIMESTAMP), step) AS TIMESTAMPTZ[])
    times(first, last, step):
        -- Each value is computed from the first, so that the day of the month is not lost: 31 January, 29 February,
        -- 31 March.
        CASE WHEN first = last AND first + step = first THEN [first]
        WHEN first + step = first OR (first + step > first AND first > last)
        OR (first + step < first AND first < last)
        THEN error('sequence: the step has the wrong direction')
        ELSE list_filter(list_transform(range(2 + CAST(abs(epoch(last) - epoch(first))
        / abs(spark_least_seconds(step)) AS BIGINT)), lambda i: first + spark_multiple(step, i)),
        lambda t: CASE WHEN first + step > first THEN t <= last ELSE t >= last END) END
    least_seconds(step):
        datepart('year', step) * 31536000 + datepart('month', step) * 2419200 + datepart('day', step) * 86400
        + datepart('hour', step) * 3600 + datepart('minute', step) * 60 + datepart('microsecond', step) / 1000000.0
    multiple(step, i):
        to_months(CAST((datepart('year', step) * 12 + datepart('month', step)) * i AS INTEGER))
        + to_days(CAST(datepart('day', step) * i AS INTEGER))
        + to_microseconds(CAST((datepart('hour', step) * 3600000000 + datepart('minute', step) * 60000000
        + datepart('microsecond', step)) * i AS BIGINT))
    -- Maps
    map_from_entries(x): CASE WHEN list_position(x, NULL) IS NULL THEN map_from_entries(x) END
    str_to_map(x, pairs, keys):
        CASE WHEN x IS NULL OR pairs IS NULL OR keys IS NULL THEN NULL ELSE
        MAP(list_transform(string_split(x, pairs), lambda e: string_split(e, keys)[1]),
        list_transform(string_split(x, pairs), lambda e:
        CASE WHEN contains(e, keys) THEN substring(e, strpos(e, keys) + length(keys)) END)) END
    -- Vectors: Spark computes with floats, and adds the products in order.
    same_sizes(x FLOAT[], y FLOAT[]):
        CASE WHEN len(x) <> len(y) THEN error('the two vectors have different sizes')
        ELSE list_position(x, NULL) IS NULL AND list_position(y, NULL) IS NULL
        AND x IS NOT NULL AND y IS NOT NULL END
    vector_inner_product(a FLOAT[], b FLOAT[]):
        CASE WHEN spark_same_sizes(a, b)
        THEN spark_vector_total(list_transform(list_zip(a, b), lambda p: p[1] * p[2])) END
    vector_l2_distance(a FLOAT[], b FLOAT[]):
        CASE WHEN spark_same_sizes(a, b) THEN CAST(sqrt(spark_vector_total(list_transform(list_zip(a, b),
        lambda p: (p[1] - p[2]) * (p[1] - p[2])))) AS FLOAT) END
    vector_squares(v): spark_vector_total(list_transform(v, lambda e: e * e))
    vector_cosine_similarity(a FLOAT[], b FLOAT[]):
        CASE WHEN spark_same_sizes(a, b) THEN CAST(spark_vector_inner_product(a, b)
        / nullif(CAST(sqrt(spark_vector_squares(a) * spark_vector_squares(b)) AS FLOAT), 0) AS FLOAT) END
    vector_norm(v FLOAT[], degree FLOAT):
        CASE WHEN list_position(v, NULL) IS NOT NULL OR v IS NULL OR degree IS NULL THEN NULL
        WHEN degree = 2 THEN CAST(sqrt(spark_vector_squares(v)) AS FLOAT)
        WHEN degree = 1 THEN spark_vector_total(list_transform(v, lambda e: abs(e)))
        WHEN degree = CAST('inf' AS FLOAT)
        THEN coalesce(list_max(list_transform(v, lambda e: abs(e))), CAST(0 AS FLOAT))
        ELSE error('the degree of a norm must be 1.0, 2.0 or infinity') END
    vector_normalize(v FLOAT[], degree FLOAT):
        CASE WHEN spark_vector_norm(v, degree) IS NULL THEN NULL WHEN len(v) = 0 THEN v
        WHEN spark_vector_norm(v, degree) <> 0 THEN
        list_transform(v, lambda e: CAST(e / spark_vector_norm(v, degree) AS FLOAT)) END
    """
) | {
    **JSON_MACROS,
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
    delimiters = [*args[1:], *(exp.Literal.string(each) for each in (",", ":")[len(args) - 1 :])]
    for each in delimiters:
        text = read_string_literal(each)
        if not isinstance(each, exp.Null) and (text is None or re.fullmatch(r"[^\\^$.|?*+()\[\]{}]+", text) is None):
            raise make_unsupported_error(
                "str_to_map", "only plain texts are supported as delimiters, not regular expressions"
            )
    return call_macro("str_to_map", args[0], *delimiters)


def _build_named_struct(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if not args or len(args) % 2:
        raise make_unsupported_error("named_struct", "it takes pairs of a constant name and a value")
    return make_struct([read_constant("named_struct", "name", each) for each in args[::2]], args[1::2])


def _build_size(name: str, args: Sequence[exp.Expr]) -> exp.Expr:
    if has_null(args):
        return exp.cast(exp.null(), "int")
    return call_macro(name, *args) if name == "array_size" else call_macro("signed", call_duckdb(SIZE_FUNCTION, *args))


ROWS: Rows = (
    (
        "array_append array_compact array_distinct array_except array_insert array_intersect array_max array_min "
        "array_position array_prepend array_remove array_repeat array_union arrays_overlap flatten json_array_length "
        "json_object_keys map_from_entries sequence slice to_json trim_array vector_cosine_similarity "
        "vector_inner_product vector_l2_distance",
        CallMacro(),
    ),
    ("get_json_object", Build(_build_get_json_object, (2,))),
    ("from_json", Build(_build_from_json)),
    ("size cardinality array_size", BuildNamed(_build_size, (1,))),
    ("array_join", Build(lambda args: call_macro("array_join", *args), (2, 3))),
    ("sort_array", Build(lambda args: call_macro("sort_array", *(*args, exp.true())[:2]), (1, 2))),
    ("map_concat", Build(_build_map_concat)),
    ("map", Build(_build_map)),
    ("str_to_map", Build(_build_str_to_map, (1, 2, 3))),
    ("named_struct", Build(_build_named_struct)),
    (
        "vector_norm vector_normalize",
        BuildNamed(lambda name, args: call_macro(name, *(*args, exp.cast("2", "float"))[:2]), (1, 2)),
    ),
    (
        "array explode explode_outer map_entries map_from_arrays map_keys map_values posexplode posexplode_outer range "
        "struct",
        Same(),
    ),
)

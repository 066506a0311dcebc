"""Spark's JSON functions as DuckDB expressions, where both read and write a text alike; other cases are rejected."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from tamis.engines.duckdb.functions.lambdas import let
from tamis.engines.duckdb.translate.calls import (
    CallBuilder,
    Macros,
    call_duckdb,
    call_macro,
    make_fixed_arity_builder,
    make_unsupported_error,
    read_string_literal,
)


def _write_json_cast(target: str, *kinds: str) -> str:
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    return f"CASE WHEN json_type(j) IN ({listed}) THEN TRY_CAST(json_extract_string(j, '$') AS {target}) END"


MACROS: Macros = {
    "json_array_length": (
        ("x",),
        "CASE WHEN spark_is_json(x) AND json_type(x) = 'ARRAY' THEN CAST(json_array_length(x) AS INTEGER) END",
    ),
    "json_object_keys": (("x",), "CASE WHEN spark_is_json(x) AND json_type(x) = 'OBJECT' THEN json_keys(x) END"),
    "json_value": (
        ("x", "path"),
        "CASE WHEN spark_is_json(x) THEN spark_json_text(json_extract(CAST(x AS JSON), path)) END",
    ),
    "json_text": (
        ("x",),
        # Spark reads a number with a fraction or an exponent as a double and writes that.
        "CASE json_type(x) WHEN 'DOUBLE' THEN spark_string(CAST(x AS DOUBLE)) WHEN 'OBJECT' THEN spark_json_nested(x) "
        "WHEN 'ARRAY' THEN spark_json_nested(x) ELSE json_extract_string(x, '$') END",
    ),
    "json_nested": (
        ("x",),
        "CASE WHEN regexp_matches(CAST(x AS VARCHAR), '[0-9][eE][-+0-9]|\\.[0-9]+0[^0-9]|[0-9.]{17,}') "
        "THEN error('Spark writes a number within the JSON differently') ELSE CAST(x AS VARCHAR) END",
    ),
    "json_as_tinyint": (("j",), _write_json_cast("TINYINT", "BIGINT", "UBIGINT")),
    "json_as_smallint": (("j",), _write_json_cast("SMALLINT", "BIGINT", "UBIGINT")),
    "json_as_int": (("j",), _write_json_cast("INTEGER", "BIGINT", "UBIGINT")),
    "json_as_bigint": (("j",), _write_json_cast("BIGINT", "BIGINT", "UBIGINT")),
    "json_as_double": (
        ("j",),
        "CASE WHEN json_type(j) = 'VARCHAR' AND regexp_matches(CAST(j AS VARCHAR), '(?i)nan|inf') "
        "THEN error('from_json: NaN and Infinity are not supported here') "
        f"ELSE {_write_json_cast('DOUBLE', 'BIGINT', 'UBIGINT', 'DOUBLE')} END",
    ),
    "json_as_boolean": (("j",), _write_json_cast("BOOLEAN", "BOOLEAN")),
    "json_as_string": (
        ("j",),
        "CASE WHEN json_type(j) IN ('DOUBLE', 'OBJECT', 'ARRAY') "
        "THEN error('from_json: Spark writes a number with a fraction, an object or a list differently') "
        "ELSE json_extract_string(j, '$') END",
    ),
    "json_object": (
        ("x",),
        "CASE WHEN x IS NULL OR trim(x) = '' THEN NULL WHEN NOT spark_is_json(x) THEN CAST('{}' AS JSON) "
        "WHEN json_type(x) = 'OBJECT' AND len(json_keys(x)) = len(list_distinct(json_keys(x))) THEN CAST(x AS JSON) "
        "ELSE error('from_json: the text must be a JSON object without duplicate names') END",
    ),
    "to_json": (
        ("x",),
        "CASE WHEN regexp_matches(typeof(x), "
        "'(DOUBLE|FLOAT|DECIMAL|TIME|BLOB|INTERVAL|HUGEINT|NULL|MAP\\((STRUCT|MAP)|STRUCT\\([A-Z]+[^A-Z ])') "
        "OR NOT regexp_matches(typeof(x), '^(STRUCT|MAP)|\\]$') "
        "THEN error('to_json: the embedded engine writes values of this type differently') "
        "WHEN contains(typeof(x), 'MAP(') OR contains(typeof(x), '[]') "
        "THEN CASE WHEN regexp_matches(CAST(to_json(x) AS VARCHAR), '\\bnull\\b') "
        "THEN error('to_json: NULL within lists and maps is not supported here') ELSE CAST(to_json(x) AS VARCHAR) END "
        "WHEN x IS NOT NULL THEN CAST(json_merge_patch('{}', to_json(x)) AS VARCHAR) END",
    ),
    "is_json": (
        ("x",),
        # Spark also accepts single quotes, control characters in strings, and JSON that other text follows.
        "CASE WHEN json_valid(x) THEN TRUE WHEN regexp_matches(x, '[\\x00-\\x1f'']') OR "
        "len(list_filter(range(1, length(x)), lambda i: x[i] IN ('}', ']') AND json_valid(left(x, i)))) > 0 "
        "THEN error('a text is not valid JSON, and Spark would read some of it') ELSE FALSE END",
    ),
}


def _build_get_json_object(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) != 2:
        return None
    path = read_string_literal(args[1])
    if path is None:
        raise make_unsupported_error("get_json_object", "its path must be a constant")
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
    fields: list[exp.Expr] = []
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
        fields.append(exp.PropertyEQ(this=exp.Literal.string(name), expression=call_macro(f"json_as_{kind}", value)))
        offset = found.end()
    if not fields:
        raise make_unsupported_error("from_json", "the schema is empty")
    is_null = exp.Is(this=exp.to_identifier("_object"), expression=exp.null())
    case = exp.Case(ifs=[exp.If(this=is_null, true=exp.null())], default=exp.Struct(expressions=fields))
    return let("_object", call_macro("json_object", args[0]), case)


BUILDERS: dict[str, CallBuilder] = {
    **{name: make_fixed_arity_builder(name, 1) for name in ("json_array_length", "json_object_keys", "to_json")},
    "get_json_object": _build_get_json_object,
    "from_json": _build_from_json,
}

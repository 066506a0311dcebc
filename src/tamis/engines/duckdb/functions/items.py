"""Items of lists and values of maps as DuckDB expressions: `x[k]`, `element_at`, `get` and `map_contains_key`.

DuckDB distinguishes maps, lists and types of keys when it picks an overload: each overload is written for one of them.

| Spark                                                        | DuckDB                                |
|--------------------------------------------------------------|---------------------------------------|
| `m[k]` casts k to the type of the keys: `m[1.7]` is `m[1]`   | compares them: NULL                   |
| `m[k]` of a key that is out of range of that type: an error  | NULL                                  |
| `element_at(m, k)` takes a key of a similar type             | compares all it can cast              |
| `x[i]` counts from 0 and fails beyond the list               | counts from 1, NULL beyond the list   |
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import duckdb
from sqlglot import exp

from tamis.engines.duckdb.macros.define_macros import define_macros
from tamis.engines.duckdb.translate import calls

# From DuckDB 2 on, `cardinality` counts the items of lists as well as the entries of maps.
SIZE_FUNCTION = "cardinality" if int(duckdb.__version__.split(".", 1)[0]) >= 2 else "len"

ANY_MAP_TYPE = "MAP(VARCHAR, VARCHAR)"
"""The type of a parameter that takes all maps and nothing else: DuckDB casts keys and values of any map to texts."""

NOT_LIST = "error('a subscript needs a list or a map')"
_OUT_OF_BOUNDS = "error('the index is out of bounds of the list: get and try_element_at return NULL there')"
_INDEX_ZERO = "error('the index 0 is invalid: the first item has index 1')"
_KEY_NOT_CASTABLE = (
    "error(lower(typeof(k)) || ' cannot be cast to the type of the keys of the map, ' || lower(typeof(key)))"
)

_INTEGERS = {"TINYINT": "tinyint", "SMALLINT": "smallint", "INTEGER": "integer", "BIGINT": "bigint"}
_A_DECIMAL = "DECIMAL(18, 3)"
_NOT_NUMBERS = ("BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "BLOB", "INTERVAL", "TIME")


def _make_key_overloads(bodies: dict[tuple[str, str], str]) -> list[calls.Macro]:
    """Return overloads by the types of the map's keys and of the given key; `key` and `given` are both not cast."""
    return [((f"kind {kind}".strip(), f"k {of}".strip(), "key", "given"), body) for (kind, of), body in bodies.items()]


def _list_subscript_casts() -> dict[tuple[str, str], str]:
    """Return the casts of k in `map[k]`: between numbers, between dates and timestamps, and from and to texts."""
    found: dict[tuple[str, str], str] = {}
    for kind, cast in _INTEGERS.items():
        found |= {(kind, "BIGINT"): f"CAST(k AS {kind})", (kind, ""): f"spark_{cast}(given)"}
    found |= {("DOUBLE", ""): "spark_double(given)", ("FLOAT", ""): "spark_float(given)"}
    found[_A_DECIMAL, ""] = "cast_to_type(spark_exact_number(given), key)"
    numbers = (*_INTEGERS, "DOUBLE", "FLOAT", _A_DECIMAL)
    found |= {(kind, other): _KEY_NOT_CASTABLE for kind in numbers for other in _NOT_NUMBERS}
    found |= {("VARCHAR", "VARCHAR"): "k", ("VARCHAR", ""): "spark_string(given)"}
    for kind, read in (
        ("DATE", "text_date"), ("TIMESTAMP", "text_timestamp_ntz"), ("TIMESTAMPTZ", "text_timestamp"),
    ):  # fmt: skip
        found |= {(kind, "VARCHAR"): f"spark_{read}(k)", (kind, ""): f"CAST(given AS {kind})"}
    found |= {
        ("BOOLEAN", "BOOLEAN"): "k",
        ("BOOLEAN", "VARCHAR"): "spark_boolean(k)",
        ("BOOLEAN", ""): _KEY_NOT_CASTABLE,
    }
    return found | {("BLOB", "VARCHAR"): "encode(k)", ("", ""): "given"}


def _list_similar_keys() -> dict[tuple[str, str], str]:
    """Return the keys of `element_at(map, k)`: they have the same type, or both are integers or floats."""
    same = f"CASE WHEN typeof(key) = typeof(given) THEN given ELSE {_KEY_NOT_CASTABLE} END"
    numbers = ("BIGINT", "DOUBLE", "FLOAT")
    others = ("VARCHAR", *_NOT_NUMBERS)
    found = {(kind, other): "given" for kind in numbers for other in numbers}
    found |= {pair: _KEY_NOT_CASTABLE for kind in numbers for pair in ((kind, _A_DECIMAL), (_A_DECIMAL, kind))}
    found |= {(kind, other): _KEY_NOT_CASTABLE for kind in (*numbers, _A_DECIMAL) for other in others}
    found |= {(kind, other): _KEY_NOT_CASTABLE for kind in others for other in (*numbers, _A_DECIMAL)}
    found |= {pair: _KEY_NOT_CASTABLE for each in _NOT_NUMBERS for pair in ((each, "VARCHAR"), ("VARCHAR", each))}
    return found | {("VARCHAR", "VARCHAR"): "k", (_A_DECIMAL, _A_DECIMAL): same, ("", ""): same}


def _define_for_map_or_list(name: str, of_map: str, of_list: str) -> calls.Macros:
    return calls.define_by_type(name, {ANY_MAP_TYPE: of_map, "": of_list}, "k")


IS_LIST = "typeof(x) LIKE '%]'"
_VALUE = "map_extract_value(x, {}(map_keys(x)[1], k, map_keys(x)[1], k))"


def _write_item(index: str) -> str:
    """Write SQL for the item of a list at a 1-based index."""
    return f"x[CASE WHEN {IS_LIST} THEN {index} ELSE {NOT_LIST} END]"


MACROS: calls.Macros = define_macros(
    r"""
    key_of_text(x, k VARCHAR): x[k]
    of_fields(x, n, made):
        -- Spark casts a struct only to a struct with as many fields.
        CASE WHEN len(json_keys(to_json(x))) <> n
        THEN error('a struct is cast only to a struct with as many fields') ELSE made END
    get(x, n): list_extract(x, CASE WHEN CAST(n AS BIGINT) >= 0 THEN CAST(n AS BIGINT) + 1 END)
    map_contains_key(x, key VARCHAR):
        CASE WHEN typeof(map_keys(x)) <> 'VARCHAR[]' THEN error('the keys of the map are not texts')
        ELSE map_contains(x, key) END
    map_contains_key(x, key): map_contains(x, key)
    index(k BIGINT): k
    index(k BOOLEAN | VARCHAR): CAST(error('the index of a list must be a whole number') AS BIGINT)
    """
) | {
    "key": _make_key_overloads(_list_subscript_casts()),
    "like_key": _make_key_overloads(_list_similar_keys()),
    **_define_for_map_or_list(
        "item",
        _VALUE.format("spark_key"),
        _write_item(f"CASE WHEN spark_index(k) < 0 OR spark_index(k) >= {SIZE_FUNCTION}(x) THEN {_OUT_OF_BOUNDS} "
              "ELSE spark_index(k) + 1 END"),
    ),
    **_define_for_map_or_list("field", _VALUE.format("spark_key"), "x[k]"),
    **_define_for_map_or_list("field_of_digits", _VALUE.format("spark_key"), "spark_key_of_text(x, k)"),
    **_define_for_map_or_list(
        "element_at",
        _VALUE.format("spark_like_key"),
        _write_item(f"CASE WHEN spark_index(k) = 0 THEN {_INDEX_ZERO} "
              f"WHEN abs(spark_index(k)) > {SIZE_FUNCTION}(x) THEN {_OUT_OF_BOUNDS} ELSE spark_index(k) END"),
    ),
    **_define_for_map_or_list(
        "try_element_at",
        _VALUE.format("spark_like_key"),
        _write_item(f"CASE WHEN spark_index(k) = 0 THEN {_INDEX_ZERO} ELSE spark_index(k) END"),
    ),
}  # fmt: skip


def build_subscript(value: exp.Expr, key: exp.Expr) -> exp.Expr:
    """Build `value[key]`: the item of a list at a 0-based index, the value of a map's key, or a field of a struct."""
    if isinstance(key, exp.Null):
        return exp.Bracket(this=value, expressions=[key], offset=1)
    text = calls.read_string_literal(key)
    if text is None:
        return calls.call_by_type("item", value, key)
    # DuckDB would read a text of digits as the index of a list.
    return calls.call_by_type("field_of_digits" if re.fullmatch(r"\s*[+-]?\d+\s*", text) else "field", value, key)


def _build_for_key(name: str, args: Sequence[exp.Expr]) -> exp.Expr:
    """Build a call with the key of a map, which must not be a literal NULL: it has no type."""
    if calls.has_null(args):
        raise calls.make_unsupported_error(name, "a key must not be NULL without a type: cast it")
    return (calls.call_by_type if name.endswith("element_at") else calls.call_macro)(name, *args)


ROWS: calls.Rows = (
    ("element_at try_element_at array_contains map_contains_key", calls.BuildNamed(_build_for_key, (2,))),
    ("get", calls.CallMacro()),
)

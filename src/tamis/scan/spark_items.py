"""Items of lists and values of maps: `x[k]`, `element_at`, `get` and `map_contains_key` in DuckDB's words.

DuckDB tells a map from a list, and the keys of one map from those of another, when it picks an overload: each overload
sees a value of the kind that is asked for, and is written for that kind alone.

| in Spark                                                     | DuckDB's own                          |
|--------------------------------------------------------------|---------------------------------------|
| `m[k]` casts k to the type of the keys: `m[1.7]` is `m[1]`   | compares them: NULL                   |
| `m[k]` of a key that does not fit into that type is an error | NULL                                  |
| `element_at(m, k)` takes a key of a type that is like theirs | compares all it can cast              |
| `x[i]` counts from 0 and fails beyond the list               | counts from 1, NULL beyond the list   |
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import duckdb
from sqlglot import exp

from tamis.scan.spark_calls import Build, Macro, Macros, by_kind, counted, kind_call, refusal, text_of

# What counts the entries of maps counts the items of lists too, but not before DuckDB 2.
SIZE = "cardinality" if int(duckdb.__version__.split(".", 1)[0]) >= 2 else "len"

A_MAP = "MAP(VARCHAR, VARCHAR)"
"""The type of a parameter that takes all maps, and nothing else: DuckDB casts the keys and values of any to texts."""

_NOT_LIST = "error('a subscript needs a list or a map')"
_OUT_OF_BOUNDS = "error('the index is out of bounds of the list: get and try_element_at return NULL there')"
_INDEX_ZERO = "error('the index 0 is invalid: the first item has index 1')"
_NO_KEY = "error(lower(typeof(k)) || ' is not cast to the keys of the map, which are ' || lower(typeof(key)))"

_WHOLE = {"TINYINT": "tinyint", "SMALLINT": "smallint", "INTEGER": "integer", "BIGINT": "bigint"}
_A_DECIMAL = "DECIMAL(18, 3)"
_NOT_NUMBERS = ("BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "BLOB", "INTERVAL", "TIME")


def _overloads(bodies: dict[tuple[str, str], str]) -> list[Macro]:
    """Overloads by the type of the keys and that of a given key; `key` and `given` are both as they are."""
    return [((f"kind {kind}".strip(), f"k {of}".strip(), "key", "given"), body) for (kind, of), body in bodies.items()]


def _casts() -> dict[tuple[str, str], str]:
    """What `map[k]` casts k to: numbers to numbers, dates to timestamps and back, texts to all, and all to texts."""
    found: dict[tuple[str, str], str] = {}
    for kind, cast in _WHOLE.items():
        found |= {(kind, "BIGINT"): f"CAST(k AS {kind})", (kind, ""): f"spark_{cast}(given)"}
    found |= {("DOUBLE", ""): "spark_double(given)", ("FLOAT", ""): "spark_float(given)"}
    found[_A_DECIMAL, ""] = "cast_to_type(spark_exact_number(given), key)"
    numbers = (*_WHOLE, "DOUBLE", "FLOAT", _A_DECIMAL)
    found |= {(kind, other): _NO_KEY for kind in numbers for other in _NOT_NUMBERS}
    found |= {("VARCHAR", "VARCHAR"): "k", ("VARCHAR", ""): "spark_string(given)"}
    for kind, read in (
        ("DATE", "text_date"), ("TIMESTAMP", "text_timestamp_ntz"), ("TIMESTAMPTZ", "text_timestamp"),
    ):  # fmt: skip
        found |= {(kind, "VARCHAR"): f"spark_{read}(k)", (kind, ""): f"CAST(given AS {kind})"}
    found |= {("BOOLEAN", "BOOLEAN"): "k", ("BOOLEAN", "VARCHAR"): "spark_boolean(k)", ("BOOLEAN", ""): _NO_KEY}
    return found | {("BLOB", "VARCHAR"): "encode(k)", ("", ""): "given"}


def _likes() -> dict[tuple[str, str], str]:
    """What `element_at(map, k)` takes: keys of the same type, and whole numbers and floats for one another."""
    same = f"CASE WHEN typeof(key) = typeof(given) THEN given ELSE {_NO_KEY} END"
    numbers = ("BIGINT", "DOUBLE", "FLOAT")
    others = ("VARCHAR", *_NOT_NUMBERS)
    found = {(kind, other): "given" for kind in numbers for other in numbers}
    found |= {pair: _NO_KEY for kind in numbers for pair in ((kind, _A_DECIMAL), (_A_DECIMAL, kind))}
    found |= {(kind, other): _NO_KEY for kind in (*numbers, _A_DECIMAL) for other in others}
    found |= {(kind, other): _NO_KEY for kind in others for other in (*numbers, _A_DECIMAL)}
    found |= {pair: _NO_KEY for each in _NOT_NUMBERS for pair in ((each, "VARCHAR"), ("VARCHAR", each))}
    return found | {("VARCHAR", "VARCHAR"): "k", (_A_DECIMAL, _A_DECIMAL): same, ("", ""): same}


def _of_map_or_list(name: str, of_map: str, of_list: str) -> Macros:
    return by_kind(name, {A_MAP: of_map, "": of_list}, "k")


_IS_LIST = "typeof(x) LIKE '%]'"
_VALUE = "map_extract_value(x, {}(map_keys(x)[1], k, map_keys(x)[1], k))"


def _item(index: str) -> str:
    """The item of a list by its index from 1."""
    return f"x[CASE WHEN {_IS_LIST} THEN {index} ELSE {_NOT_LIST} END]"


MACROS: Macros = {
    "key": _overloads(_casts()),
    "like_key": _overloads(_likes()),
    "index": [
        (("k BIGINT",), "k"),
        *(
            ((f"k {kind}",), "CAST(error('the index of a list is a whole number') AS BIGINT)")
            for kind in ("BOOLEAN", "VARCHAR")
        ),
    ],
    **_of_map_or_list(
        "item",
        _VALUE.format("spark_key"),
        _item(f"CASE WHEN spark_index(k) < 0 OR spark_index(k) >= {SIZE}(x) THEN {_OUT_OF_BOUNDS} "
              "ELSE spark_index(k) + 1 END"),
    ),
    **_of_map_or_list("field", _VALUE.format("spark_key"), "x[k]"),
    **_of_map_or_list("field_of_digits", _VALUE.format("spark_key"), "spark_key_of_text(x, k)"),
    "key_of_text": (("x", "k VARCHAR"), "x[k]"),
    **_of_map_or_list(
        "element_at",
        _VALUE.format("spark_like_key"),
        _item(f"CASE WHEN spark_index(k) = 0 THEN {_INDEX_ZERO} "
              f"WHEN abs(spark_index(k)) > {SIZE}(x) THEN {_OUT_OF_BOUNDS} ELSE spark_index(k) END"),
    ),
    **_of_map_or_list(
        "try_element_at",
        _VALUE.format("spark_like_key"),
        _item(f"CASE WHEN spark_index(k) = 0 THEN {_INDEX_ZERO} ELSE spark_index(k) END"),
    ),
    "of_fields": (
        ("x", "n", "made"),
        # What makes a struct of a struct takes as many fields as that one has.
        "CASE WHEN len(json_keys(to_json(x))) <> n "
        "THEN error('a struct is cast to one with as many fields') ELSE made END",
    ),
    "get": (("x", "n"), "list_extract(x, CASE WHEN CAST(n AS BIGINT) >= 0 THEN CAST(n AS BIGINT) + 1 END)"),
    "map_contains_key": [
        (
            ("x", "key VARCHAR"),
            "CASE WHEN typeof(map_keys(x)) <> 'VARCHAR[]' THEN error('a map with keys of another type has no text') "
            "ELSE map_contains(x, key) END",
        ),
        (("x", "key"), "map_contains(x, key)"),
    ],
}  # fmt: skip


def subscript(value: exp.Expr, key: exp.Expr) -> exp.Expr:
    """`value[key]`: the item of a list by an index from 0, the value of a key of a map, or a field of a struct."""
    if isinstance(key, exp.Null):
        return exp.Bracket(this=value, expressions=[key], offset=1)
    text = text_of(key)
    if text is None:
        return kind_call("item", value, key)
    # The engine would take a text of digits as the index of a list.
    return kind_call("field_of_digits" if re.fullmatch(r"\s*[+-]?\d+\s*", text) else "field", value, key)


def _keyed(name: str, make: Build) -> Build:
    """A function of a list or map and a key, which is not the plain NULL: that has no type."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if any(isinstance(each, exp.Null) for each in args):
            raise refusal(name, "NULL without a type is no key")
        if len(args) != 2:
            raise refusal(name, f"it takes 2 arguments, not {len(args)}")
        return make(args)

    return build


def _by_kind(name: str) -> Build:
    return _keyed(name, lambda args: kind_call(name, *args))


BUILDERS: dict[str, Build] = {
    **{name: _by_kind(name) for name in ("element_at", "try_element_at")},
    **{name: _keyed(name, counted(name, 2)) for name in ("array_contains", "map_contains_key")},
    "get": counted("get", 2),
}

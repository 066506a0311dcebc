"""Binding: names resolve to columns of a schema, and operands get a common type."""

from __future__ import annotations

import math
import pickle
import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tamis import types
from tamis.errors import AmbiguousColumn, ExpressionError, TypeMismatch, UnknownColumn
from tamis.expr.bind import bind, find_common_type
from tamis.expr.builder import col
from tamis.expr.functions.table import type_of
from tamis.expr.interop.from_pyarrow import from_pyarrow
from tamis.expr.nodes import Call, Column, Literal, Name, find_columns
from tamis.expr.normalise import normalise
from tamis.expr.sql.parse import parse_sql
from tamis.expr.sql.printer import to_sql

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("Amount", pa.decimal128(10, 2)),
        ("address", pa.struct([("City", pa.string()), ("geo", pa.struct([("lat", pa.float64())]))])),
        ("a.b", pa.int32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("order", pa.int32()),
    ]
)


def find_column(where: str, schema: pa.Schema = SCHEMA) -> Column:
    (found,) = find_columns(bind(parse_sql(where), schema, "orders"))
    return found


# --- Names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "path", "data_type"),
    [
        ("id = 1", ("id",), pa.int64()),
        ("ID = 1", ("id",), pa.int64()),
        ("amount = 1", ("Amount",), pa.decimal128(10, 2)),
        ("`AMOUNT` = 1", ("Amount",), pa.decimal128(10, 2)),
        ("address.city = 'x'", ("address", "City"), pa.string()),
        ("ADDRESS.CITY = 'x'", ("address", "City"), pa.string()),
        ("address.geo.LAT = 1", ("address", "geo", "lat"), pa.float64()),
        ("address IS NULL", ("address",), SCHEMA.field("address").type),
        ("`a.b` = 1", ("a.b",), pa.int32()),
        ("a.b = 1", ("a.b",), pa.int32()),  # there is no column a, so the whole text may be the name
        ("A.B = 1", ("a.b",), pa.int32()),
        ("`order` = 1", ("order",), pa.int32()),
        ("tags IS NULL", ("tags",), pa.list_(pa.string())),
    ],
)
def test_a_name_is_found_without_regard_to_case(where, path, data_type):
    found = find_column(where)
    assert (found.path, found.type) == (path, data_type)


def test_a_field_goes_before_a_column_with_a_dot_in_its_name():
    schema = pa.schema([("a", pa.struct([("b", pa.string())])), ("a.b", pa.int32())])
    assert find_column("a.b = 'x'", schema).path == ("a", "b")
    assert find_column("`a.b` = 1", schema).path == ("a.b",)


def test_a_dotted_name_is_tried_whole_where_the_field_does_not_exist():
    schema = pa.schema([("a", pa.struct([("c", pa.string())])), ("a.b", pa.int32())])
    assert find_column("a.b = 1", schema).path == ("a.b",)


@pytest.mark.parametrize("name", ["straße", "STRASSE"])
def test_names_match_by_unicode_case_folding(name):
    assert find_column(f"`{name}` = 1", pa.schema([("Straße", pa.int64())])).path == ("Straße",)


TWO_CASES = pa.schema([("x", pa.int64()), ("X", pa.int64()), ("s", pa.struct([("f", pa.int64()), ("F", pa.int64())]))])


def test_a_quoted_name_selects_one_of_two_columns_that_differ_only_by_case():
    assert find_column("`x` = 1", TWO_CASES).path == ("x",)
    assert find_column("`X` = 1", TWO_CASES).path == ("X",)
    assert find_column("s.`F` = 1", TWO_CASES).path == ("s", "F")
    assert find_column("S.`f` = 1", TWO_CASES).path == ("s", "f")
    assert bind((col("`X`") == 1).node, TWO_CASES).args[0].path == ("X",)
    assert bind(from_pyarrow(pc.field("X") == 1), TWO_CASES).args[0].path == ("X",)


@pytest.mark.parametrize("where", ["x = 1", "X = 1", "s.f = 1", "s.F = 1"])
def test_an_unquoted_name_of_columns_that_differ_only_by_case_is_an_error(where):
    with pytest.raises(AmbiguousColumn, match=r"matches several columns .*Quote the exact name with back-ticks"):
        bind(parse_sql(where), TWO_CASES)


def test_a_column_selected_by_case_round_trips_through_sql():
    bound = bind(parse_sql("`X` = 1"), TWO_CASES)
    assert to_sql(bound) == "`X` = 1"
    assert bind(parse_sql(to_sql(bound)), TWO_CASES).args[0].path == ("X",)
    assert to_sql(bind(parse_sql("`id` = 1"), SCHEMA)) == "id = 1"


def test_an_ambiguous_name_is_an_error_that_lists_the_columns():
    schema = pa.schema([("Ab", pa.int64()), ("aB", pa.int64())])
    with pytest.raises(AmbiguousColumn, match=r"'ab' matches several columns \(at: where, character 5\): 'Ab', 'aB'"):
        bind(parse_sql("1 < ab"), schema)


@pytest.mark.parametrize(
    ("where", "parts"),
    [
        ("ammount > 5", ["no column 'ammount' in orders", "character 1)", "Did you mean 'Amount'?", "Columns: id,"]),
        ("id = 1 AND ammount > 5", ["character 12)"]),
        ("zzz = 1", ["no column 'zzz' in orders", "Columns: id"]),
        ("address.cit = 'x'", ["no field 'cit' in struct 'address' of orders", "Did you mean 'City'?", "Fields: City"]),
        ("address.geo.lon = 1", ["no field 'lon' in struct 'address.geo' of orders", "Fields: lat"]),
        ("id.x = 1", ["no field 'x' in column 'id' of orders", "it is a bigint, not a struct"]),
        ("tags.x = 1", ["no field 'x' in column 'tags' of orders", "not a struct", "array_contains(tags, 'x')"]),
        ("id = 1_000", ["no column '1_000'", "write 1000."]),
        ("orders.id = 5", ["no column 'orders'", "Leave the name of the table out: id."]),
        ("id = 1 AND\n  ammount > 5", ["line 2, character 3)"]),
    ],
)  # fmt: skip
def test_an_unknown_name_is_an_error_with_the_nearest_ones(where, parts):
    with pytest.raises(UnknownColumn) as caught:
        bind(parse_sql(where), SCHEMA, "orders")
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message
    if "zzz" in where:
        assert "Did you mean" not in message


def test_an_unknown_name_among_many_columns_shows_some_of_them():
    schema = pa.schema([(f"column_{index}", pa.int64()) for index in range(40)])
    with pytest.raises(UnknownColumn, match=r"column_11, … 28 more"):
        bind(parse_sql("nothing_like_it = 1"), schema)


def test_an_unknown_name_in_a_table_without_columns():
    with pytest.raises(UnknownColumn, match="Columns: none"):
        bind(parse_sql("a = 1"), pa.schema([]))


def test_unused_columns_may_be_ambiguous():
    assert find_column("s IS NULL", TWO_CASES).path == ("s",)


# --- Types ----------------------------------------------------------------------------------------------------------

TYPES = pa.schema(
    [
        ("i8", pa.int8()), ("i32", pa.int32()), ("i64", pa.int64()), ("u64", pa.uint64()), ("f32", pa.float32()),
        ("f64", pa.float64()), ("money", pa.decimal128(5, 2)), ("wide", pa.decimal128(38, 10)), ("s", pa.string()),
        ("ls", pa.large_string()), ("b", pa.binary()), ("fb", pa.binary(2)), ("flag", pa.bool_()),
        ("d", pa.date32()), ("ts", pa.timestamp("us", "UTC")), ("ntz", pa.timestamp("us")), ("ns", pa.timestamp("ns")),
        ("sec", pa.timestamp("s")), ("tags", pa.list_(pa.int8())), ("cat", pa.dictionary(pa.int32(), pa.string())),
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("i8 = i8", "i8 = i8"),
        ("i8 < i64", "CAST(i8 AS BIGINT) < i64"),
        ("i8 < i32", "CAST(i8 AS BIGINT) < CAST(i32 AS BIGINT)"),
        ("u64 < i64", "CAST(u64 AS DECIMAL(20,0)) < CAST(i64 AS DECIMAL(20,0))"),
        ("i32 = f32", "CAST(i32 AS DOUBLE) = CAST(f32 AS DOUBLE)"),
        ("money = i32", "CAST(money AS DECIMAL(12,2)) = CAST(i32 AS DECIMAL(12,2))"),
        ("money = wide", "CAST(money AS DECIMAL(38,10)) = wide"),
        ("money = f64", "CAST(money AS DOUBLE) = f64"),
        ("d < ntz", "CAST(d AS TIMESTAMP_NTZ) < ntz"),
        ("sec = ns", "CAST(sec AS TIMESTAMP_NS) = ns"),
        ("s = ls", "s = CAST(ls AS STRING)"),
        ("s = i32", "TRY_CAST(s AS BIGINT) = CAST(i32 AS BIGINT)"),
        ("s < f32", "TRY_CAST(s AS DOUBLE) < CAST(f32 AS DOUBLE)"),
        ("s = d", "TRY_CAST(s AS DATE) = d"),
        # A text that is compared with a number is cast to a number.
        ("s = 5", "TRY_CAST(s AS BIGINT) = 5"),
        ("s > 5.5", "TRY_CAST(s AS DOUBLE) > 5.5D"),
        ("5 < s", "TRY_CAST(s AS BIGINT) > 5"),
        ("s IN (1, 2)", "TRY_CAST(s AS BIGINT) IN (1, 2)"),
        ("s IN (1, 2.5)", "TRY_CAST(s AS DOUBLE) IN (1.0D, 2.5D)"),
        # Operands that stay unchanged.
        ("s = '5'", "s = '5'"),
        ("my_own(s) = 5", "my_own(s) = 5"),
        ("tags = tags", "tags = tags"),
        ("flag AND s = 'x'", "flag AND s = 'x'"),
        ("NOT flag", "NOT flag"),
        ("i8 IN (i32, 5)", "CAST(i8 AS BIGINT) = CAST(i32 AS BIGINT) OR i8 = CAST(5 AS TINYINT)"),
        ("i32 + 1 > 5", "i32 + 1 > 5"),
    ],
)
def test_operands_get_one_type(where, expected):
    bound = bind(parse_sql(where), TYPES)
    assert to_sql(bound) == expected
    assert type_of(bound) == types.BOOLEAN or "my_own" in where


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("d = flag", "cannot compare date with boolean"),
        ("i32 = b", "cannot compare int with binary"),
        ("i32 = d", "cannot compare int with date"),
        ("flag = i32", "cannot compare boolean with int"),
        ("s = flag", "cannot compare string with boolean"),
        ("i32 AND flag", "AND takes predicates, but i32 is an int"),
        ("NOT s", "NOT takes predicates, but s is a string"),
        ("flag OR i32 + 1", r"OR takes predicates, but i32 \+ 1 is a bigint"),
    ],
)
def test_incompatible_operands_are_an_error_that_names_both(where, message):
    with pytest.raises(TypeMismatch, match=message):
        bind(parse_sql(where), TYPES)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (pa.int8(), pa.uint32(), pa.int64()),
        (pa.int64(), pa.uint64(), pa.decimal128(20, 0)),
        (pa.float32(), pa.float16(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(7, 4), pa.decimal128(7, 4)),
        (pa.decimal128(5, 2), pa.decimal128(7, 1), pa.decimal128(8, 2)),
        (pa.decimal128(38, 0), pa.decimal128(38, 10), None),
        (pa.date32(), pa.date64(), pa.date32()),
        (pa.date32(), pa.timestamp("ms", "UTC"), pa.timestamp("ms")),
        (pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.timestamp("ns")),
        (pa.string(), pa.large_string(), pa.string()),
        (pa.binary(), pa.binary(4), pa.binary()),
        (pa.string(), pa.binary(), None),
        (pa.bool_(), pa.int8(), None),
    ],
)
def test_the_common_type_keeps_the_order_of_both(left, right, expected):
    assert find_common_type(left, right) == expected
    assert find_common_type(right, left) == expected


@pytest.mark.parametrize(
    "where", ["i64 = 5 AND NOT s LIKE 'a%'", "i64 + i32 IN (1, i8)", "s[0] = 'x'", "f64 > i32 + 0.5"]
)
def test_a_bound_expression_has_no_names(where):
    unbound = parse_sql(where)
    names = find_columns(unbound)
    assert all(isinstance(name, Name) for name in names)
    bound = find_columns(bind(unbound, TYPES))
    assert bound == [Column(name.path, TYPES.field(name.name).type) for name in names]
    # The columns of a bound expression count as their names.
    assert bind(bind(unbound, TYPES), TYPES) == bind(unbound, TYPES)


def test_a_column_without_a_type_is_bound_too():
    bound = bind(parse_sql("i64 > 5 AND s = 'x'"), TYPES, typed=["s"])
    assert find_columns(bound) == [Column(("i64",), None), Column(("s",), pa.string())]


def test_a_dictionary_is_compared_by_its_values():
    bound = bind(parse_sql("cat >= 'x' OR cat = s OR cat IN ('y', 'z')"), TYPES)
    assert {column.name: column.type for column in find_columns(bound)} == {"cat": pa.string(), "s": pa.string()}
    assert to_sql(bound) == "cat >= 'x' OR cat = s OR cat IN ('y', 'z')"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            "id > 0 AND `order` = 'x'",
            r"cannot compare in order = 'x' \(at: where, character 12\): 'x' is not a valid int",
        ),
        ("id IN (1, 'x')", r"in id IN \('x'\) \(at: where, character 1\): 'x' is not a valid bigint"),
        (
            "1 = 1 OR ts = 5",
            r"cannot compare timestamp with bigint in ts = 5 \(at: where, character 10\). Compare it with TIMESTAMP",
        ),
        ("5 = ts", r"in 5 = ts \(at: where, character 5\)"),
        ("id > 0 AND `order`", r"AND takes predicates, but order is an int \(at: where, character 12\). Compare it"),
        ("NOT id", r"NOT takes predicates, but id is a bigint \(at: where, character 5\). Compare it"),
    ],
)
def test_a_mismatch_reports_the_position_of_the_column(where, message):
    with pytest.raises(TypeMismatch, match=message):
        bind(parse_sql(where), SCHEMA)


def test_a_mismatch_of_a_built_expression_has_no_position():
    with pytest.raises(TypeMismatch, match=r"with boolean in id = TRUE\. Cast one side"):
        bind((col("id") == True).node, SCHEMA)  # noqa: E712  # it builds a comparison


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ('"id" = 5', "id"),
        ('5 < "ID"', "id"),
        ("\"amount\" = 'x'", "Amount"),
        ("\"ts\" >= DATE '2024-01-01'", "ts"),
        ('"id" IN (1, 2)', "id"),
        ('"id" BETWEEN 1 AND 2', "id"),
        ("\"address\" LIKE 'a%'", "address"),
        ('"id" IS NOT NULL', "id"),
        ('id = 5 AND NOT ("order" = 7)', "order"),
        ('length("order") = 1', "order"),
        ('address.city = "id"', "id"),
        ("address.city IN ('x', \"id\")", "id"),
        ("CAST(\"id\" AS STRING) = 'x'", "id"),
        ("\"id\" || 'x' = 'y'", "id"),
        ("\"id\" RLIKE '^a'", "id"),
    ],
)
def test_a_name_in_double_quotes_is_an_error_with_a_hint(where, name):
    found = re.search(f'"{name}"', where, re.IGNORECASE)
    message = (
        f"{found[0]} is a text, not the column of that name (at: where, character {found.start() + 1}): in Spark's SQL "
        f"double quotes delimit a text. Write `{name}` for the column, or '{found[0][1:-1]}' for the text"
    )
    with pytest.raises(ExpressionError, match=f"^{re.escape(message)}$"):
        bind(parse_sql(where), SCHEMA)
    with pytest.raises(ExpressionError, match="is a text, not the column"):
        bind(pickle.loads(pickle.dumps(parse_sql(where))), SCHEMA)


@pytest.mark.parametrize(
    "where",
    ["\"x\" = 'y'", "address.city = 'id'", "'id' = 'x'", "\"lat\" = 'x'", "address.city IN ('id', 'ts')"],
)
def test_other_texts_are_texts(where):
    bound = bind(parse_sql(where), SCHEMA)
    bind(bound, pa.schema([*SCHEMA, ("x", pa.string()), ("lat", pa.string())]))


def test_binding_twice_changes_nothing():
    for where in ("i8 < 5.5", "u64 IN (1, 2.5)", "s = 5", "d < ntz", "i8 < i64", "f32 > 0.1", "money <> 1.505"):
        once = bind(parse_sql(where), TYPES)
        assert bind(once, TYPES) == once


# --- X11 ------------------------------------------------------------------------------------------------------------


def test_X11_a_predicate_of_ten_thousand_levels_binds():
    deep = Call("=", (Name(("i64",)), Literal(1, types.LONG)))
    for level in range(10_000):
        other = Call(">", (Name(("i32",)), Literal(level + 0.5, types.DOUBLE)))
        deep = Call("not", (Call("or" if level % 2 else "and", (deep, other)),))
    bound = bind(deep, TYPES)
    assert type_of(bound) == types.BOOLEAN
    assert normalise(bound) != bound


def test_X11_a_hundred_thousand_items_bind_and_sort():
    items = tuple(Literal(float(value % 60_000) / 2, types.DOUBLE) for value in range(100_000))
    bound = normalise(bind(Call("in", (Name(("i32",)), *items)), TYPES))
    assert isinstance(bound, Call)
    assert [item.value for item in bound.args[1:]] == list(range(30_000))


def test_X11_sums_of_ten_thousand_terms_have_a_type():
    deep = Name(("i64",))
    for _ in range(10_000):
        deep = Call("+", (deep, Literal(1, types.LONG)))
    assert type_of(bind(Call(">", (deep, Literal(math.pi, types.DOUBLE))), TYPES)) == types.BOOLEAN


MIXED = pa.schema(
    [
        ("k", pa.int64()),
        ("region", pa.string()),
        ("d", pa.date32()),
        ("clock", pa.time32("s")),
        ("fine", pa.time64("ns")),
        ("place", pa.struct([("city", pa.string())])),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("items", pa.list_(pa.struct([("sku", pa.int64())]))),
    ]
)


@pytest.mark.parametrize("where", ["region = eu", "eu <> region", "region IN ('us', eu)"])
def test_a_text_without_quotes_is_an_error_with_a_hint(where):
    with pytest.raises(UnknownColumn, match=r"no column 'eu' .* Quote a text with single quotes: 'eu'\."):
        bind(parse_sql(where), MIXED)


def test_an_unknown_name_compared_with_a_number_gets_no_text_hint():
    with pytest.raises(UnknownColumn) as caught:
        bind(parse_sql("k = eu"), MIXED)
    assert "quotes" not in str(caught.value)


def test_a_field_of_a_list_of_structs_is_an_error_with_a_hint():
    with pytest.raises(UnknownColumn, match=r"array_contains\(transform\(items, x -> x\.sku\), 5\)"):
        bind(parse_sql("items.sku = 5"), MIXED)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("k LIKE 'a%'", r"LIKE takes a text, but k is a bigint \(at: where, character 1\)\. .*CAST\(k AS STRING\)"),
        ("startswith(d, '2024')", r"startswith takes a text, but d is a date .*CAST\(d AS STRING\)"),
        ("1 = 1 AND place = 'x'", r"a struct<city: string> with a string .*character 11\)\. .*place\.city"),
        ("place IN ('x', 'y')", r"a struct<city: string> with a string .*place\.city"),
        ("tags = 'x'", r"an array<string> with a string .*array_contains\(tags, 'x'\)"),
        ("5 = counts", r"a map<string, bigint> with a bigint .*element_at\(counts, 'key'\)"),
        ("d = 5", r"cannot compare date with bigint .*DATE '2024-01-31'"),
        ("clock > 5", r"cannot compare time_s with bigint .*TIME '10:30:00'"),
        ("clock = '25:00'", r"'25:00' is not a valid time_s\. Write a value such as TIME '10:30:00'"),
    ],
)
def test_a_mismatch_has_a_hint(where, message):
    with pytest.raises(TypeMismatch, match=message):
        bind(parse_sql(where), MIXED)


def test_structs_and_lists_may_be_compared_with_unknown_types():
    for where in ("place = struct('x')", "tags = array('x')", "tags = tags"):
        bind(parse_sql(where), MIXED)


@pytest.mark.parametrize(
    ("where", "bound"),
    [
        ("clock = '03:03:00'", "clock = CAST('03:03:00' AS TIME_S)"),
        ("clock = TIME '03:03:00'", "clock = CAST('03:03:00' AS TIME_S)"),
        ("CAST('03:03:00' AS time) <= fine", "fine >= TIME '03:03:00.000000000'"),
        ("clock < TIME '03:03:00.5'", "clock <= CAST('03:03:00' AS TIME_S)"),
        ("clock IN ('03:03', '03:04:00.5')", "clock IN (CAST('03:03:00' AS TIME_S))"),
        ("clock = fine", "CAST(clock AS TIME_NS) = fine"),
    ],
)
def test_T4_times_of_day_are_compared_exactly_in_the_unit_of_the_column(where, bound):
    found = bind(parse_sql(where), MIXED)
    assert to_sql(found) == bound
    assert bind(parse_sql(bound), MIXED) == found

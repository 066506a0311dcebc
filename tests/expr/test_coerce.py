"""T4: the neighbours of a literal among the values of a column's type, and the comparisons with it."""

from __future__ import annotations

import math
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.values.nodes import number, text
from tamis import types
from tamis.errors import TypeMismatch
from tamis.expr.bind import Neighbours, bind, find_neighbours
from tamis.expr.evaluate import Evaluator
from tamis.expr.nodes import FALSE, NULL, Call, Column, Expr, Literal, Name, Unbound, replace_columns
from tamis.expr.sql.parse import parse_sql

TINY, INT, BIG = pa.int8(), pa.int32(), pa.int64()
SINGLE, DOUBLE = pa.float32(), pa.float64()
MONEY = pa.decimal128(5, 2)
DAY = 86_400
LARGEST = 2**63 - 1


def decimal(text: str) -> Literal:
    value = Decimal(text)
    digits, exponent = value.as_tuple().digits, value.as_tuple().exponent
    return Literal(value, pa.decimal128(max(len(digits), -exponent), -exponent))


def double(value: float) -> Literal:
    return Literal(value, DOUBLE)


def at(count: int, unit: str, zone: str | None = None) -> Literal:
    return Literal(count, pa.timestamp(unit, zone))


def exact(value: Any) -> Neighbours:
    return Neighbours(value, value)


def single(value: float) -> float:
    return float(np.float32(value))


@pytest.mark.parametrize(
    ("literal", "target", "expected"),
    [
        # --- Integers
        (number(5), INT, exact(5)),
        (number(300), TINY, Neighbours(127, None)),
        (number(-300), TINY, Neighbours(None, -128)),
        (number(127), TINY, exact(127)),
        (number(128), TINY, Neighbours(127, None)),
        (number(-1), pa.uint64(), Neighbours(None, 0)),
        (number(2**63), pa.uint64(), exact(2**63)),
        (number(2**63), BIG, Neighbours(LARGEST, None)),
        (number(2**64), pa.uint64(), Neighbours(2**64 - 1, None)),
        (decimal("5.5"), INT, Neighbours(5, 6)),
        (decimal("-5.5"), INT, Neighbours(-6, -5)),
        (decimal("5.0"), INT, exact(5)),
        (decimal("127.5"), TINY, Neighbours(127, None)),
        (decimal("-128.5"), TINY, Neighbours(None, -128)),
        (double(5.5), INT, Neighbours(5, 6)),
        (double(-0.0), INT, exact(0)),
        (double(1e300), INT, Neighbours(2**31 - 1, None)),
        (double(math.inf), INT, Neighbours(2**31 - 1, None)),
        (double(-math.inf), INT, Neighbours(None, -(2**31))),
        (double(math.nan), INT, Neighbours(2**31 - 1, None)),  # larger than every number
        (double(2.0**53 - 1), BIG, exact(2**53 - 1)),
        # A double that is nearest to several integers equals all of them.
        (double(2.0**53), BIG, Neighbours(2**53 + 1, 2**53)),
        (double(2.0**63), BIG, Neighbours(LARGEST, 2**63 - 512)),
        (double(2.0**64), BIG, Neighbours(LARGEST, None)),
        # --- Decimals
        (decimal("1.5"), MONEY, exact(Decimal("1.50"))),
        (decimal("1.505"), MONEY, Neighbours(Decimal("1.50"), Decimal("1.51"))),
        (decimal("-1.505"), MONEY, Neighbours(Decimal("-1.51"), Decimal("-1.50"))),
        (number(1000), MONEY, Neighbours(Decimal("999.99"), None)),
        (decimal("999.995"), MONEY, Neighbours(Decimal("999.99"), None)),
        (decimal("-999.995"), MONEY, Neighbours(None, Decimal("-999.99"))),
        (double(0.5), MONEY, exact(Decimal("0.50"))),
        (double(0.1), MONEY, exact(Decimal("0.10"))),  # the decimal's nearest double
        (double(0.105), MONEY, Neighbours(Decimal("0.10"), Decimal("0.11"))),
        (text("0.10000000000000000001"), MONEY, exact(Decimal("0.10"))),  # texts are doubles for decimals
        (double(1e17), pa.decimal128(20, 1),
         Neighbours(Decimal("100000000000000008.0"), Decimal("99999999999999992.0"))),
        (double(math.nan), MONEY, Neighbours(Decimal("999.99"), None)),
        (number(10**37), pa.decimal128(38, 0), exact(Decimal(10**37))),
        # --- Floats: numbers mean the nearest double, which a 32-bit float may not have
        (decimal("0.1"), DOUBLE, exact(0.1)),
        (number(2**53 + 1), DOUBLE, exact(2.0**53)),
        (number(2**24), SINGLE, exact(2.0**24)),
        (number(2**24 + 1), SINGLE, Neighbours(2.0**24, 2.0**24 + 2)),
        (decimal("0.1"), SINGLE, Neighbours(float(np.nextafter(np.float32(0.1), np.float32(0))), single(0.1))),
        (double(1e39), SINGLE, Neighbours(float(np.finfo(np.float32).max), math.inf)),
        (double(-1e39), SINGLE, Neighbours(-math.inf, float(np.finfo(np.float32).min))),
        (double(math.inf), SINGLE, exact(math.inf)),
        (double(0.5), pa.float16(), exact(0.5)),
        # --- Types without an order
        (Literal((1, 2, 3), types.INTERVAL), types.INTERVAL, exact((1, 2, 3))),
        # --- Time
        (text("2024-03-03"), pa.date32(), exact(19785)),
        (text("2024-03-03 12:00:00"), pa.date32(), Neighbours(19785, 19786)),
        (at(0, "us"), pa.date32(), exact(0)),
        (at(-1, "us"), pa.date32(), Neighbours(-1, 0)),
        (at(1, "ns"), pa.date32(), Neighbours(0, 1)),
        (Literal(1, types.DATE), pa.timestamp("s"), exact(DAY)),
        (Literal(1, types.DATE), pa.timestamp("ns"), exact(DAY * 10**9)),
        (Literal(-1, types.DATE), pa.timestamp("ms"), exact(-DAY * 1000)),
        (at(1500, "us"), pa.timestamp("ms"), Neighbours(1, 2)),
        (at(-1500, "us"), pa.timestamp("ms"), Neighbours(-2, -1)),
        (at(2000, "us"), pa.timestamp("ms"), exact(2)),
        (at(5, "us"), pa.timestamp("ns"), exact(5000)),
        (at(5, "us", "UTC"), pa.timestamp("us"), exact(5)),
        (at(5, "us"), pa.timestamp("us", "America/New_York"), exact(5)),
        (at(10**12, "s"), pa.timestamp("ns"), Neighbours(LARGEST, None)),
        (at(-(10**12), "s"), pa.timestamp("ns"), Neighbours(None, -(2**63))),
        (Literal(2932896, types.DATE), pa.timestamp("ns"), Neighbours(LARGEST, None)),  # the 31st of December 9999
        (text("1970-01-01T00:00:01Z"), pa.timestamp("s"), exact(1)),
        (text("1970-01-01 01:00:01+01:00"), pa.timestamp("s", "UTC"), exact(1)),
        (text("1970-01-01 00:00:00.5"), pa.timestamp("s"), Neighbours(0, 1)),
        (text("00:00:01.5"), pa.time32("ms"), exact(1500)),
        (text("00:00:01.5"), pa.time32("s"), Neighbours(1, 2)),
        (Literal(1_500_000, pa.time64("us")), pa.time64("ns"), exact(1_500_000_000)),
        (Literal(1_500_000, pa.time64("us")), pa.time32("s"), Neighbours(1, 2)),
        # --- Texts as numbers, and other texts
        (text("5"), INT, exact(5)),
        (text(" 5 "), INT, exact(5)),
        (text("5.5"), INT, Neighbours(5, 6)),
        (text("1e2"), INT, exact(100)),
        (text("NaN"), DOUBLE, exact(math.nan)),
        (text("-Infinity"), DOUBLE, exact(-math.inf)),
        (text(" nan "), INT, Neighbours(2**31 - 1, None)),
        (text("+.5e1"), INT, exact(5)),
        (text("0e999999999"), INT, exact(0)),
        (text("1e999999999"), INT, Neighbours(2**31 - 1, None)),
        (text("1e-999999999"), INT, exact(0)),
        (text("true"), pa.bool_(), exact(True)),
        (text("FALSE"), pa.bool_(), exact(False)),
        (text("a"), pa.large_string(), exact("a")),
        (text("é"), pa.binary(), exact("é".encode())),
        (Literal(b"a", types.BINARY), pa.binary(2), exact(b"a")),
    ],
)  # fmt: skip
def test_T4_a_literal_has_neighbours(literal, target, expected):
    found = find_neighbours(literal, target)
    assert repr(found) == repr(expected)


@pytest.mark.parametrize(
    ("literal", "target"),
    [
        (text("abc"), INT),
        (text(""), INT),
        (text("0x10"), INT),
        # Python parses all of these as numbers.
        (text("1_0"), INT),
        (text("1_0"), DOUBLE),
        (text("snan"), DOUBLE),
        (text("-sNaN1"), INT),
        (text("nan12"), DOUBLE),
        (text("٣"), INT),
        (text("1e99999999999999999999"), DOUBLE),
        (text("2024-02-30"), pa.date32()),
        (text("yesterday"), pa.timestamp("us")),
        (text("yes"), pa.bool_()),
        (number(1), pa.bool_()),
        (Literal(True, types.BOOLEAN), INT),
        (number(1), pa.date32()),
        (number(1), pa.timestamp("us")),
        (Literal(1, types.DATE), INT),
        (number(1), types.STRING),
        (Literal(b"a", types.BINARY), types.STRING),
        (text("00:00:01Z"), pa.time64("us")),
    ],
)
def test_incomparable_literals_have_no_neighbours(literal, target):
    assert find_neighbours(literal, target) is None


OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
X = Name(("x",))
NEVER = Call("and", (Call("is_null", (X,)), NULL))
UNLESS_NULL = Call("or", (Call("is_not_null", (X,)), NULL))


def compare(function: str, value: Any, data_type: pa.DataType) -> Unbound:
    return Call(function, (X, Literal(value, data_type)))


def with_type(expr: Unbound, data_type: pa.DataType) -> Expr:
    return replace_columns(expr, lambda name: Column(name.path, data_type))


@pytest.mark.parametrize(
    ("data_type", "literal", "expected"),
    [
        (INT, "5", [compare(each, 5, INT) for each in OPERATORS]),
        (INT, "5.5", [NEVER, UNLESS_NULL, compare("<=", 5, INT), compare("<=", 5, INT),
                      compare(">=", 6, INT), compare(">=", 6, INT), FALSE]),
        (INT, "-5.5", [NEVER, UNLESS_NULL, compare("<=", -6, INT), compare("<=", -6, INT),
                       compare(">=", -5, INT), compare(">=", -5, INT), FALSE]),
        (TINY, "300", [NEVER, UNLESS_NULL, UNLESS_NULL, UNLESS_NULL, NEVER, NEVER, FALSE]),
        (TINY, "-300", [NEVER, UNLESS_NULL, NEVER, NEVER, UNLESS_NULL, UNLESS_NULL, FALSE]),
        (INT, "9223372036854775807", [NEVER, UNLESS_NULL, UNLESS_NULL, UNLESS_NULL, NEVER, NEVER, FALSE]),
        (INT, "double('NaN')", [NEVER, UNLESS_NULL, UNLESS_NULL, UNLESS_NULL, NEVER, NEVER, FALSE]),
        (DOUBLE, "double('NaN')", [compare(each, math.nan, DOUBLE) for each in OPERATORS]),
        # Beyond the largest float come infinity and NaN, so that nothing folds away.
        (SINGLE, "1e39", [NEVER, UNLESS_NULL,
                          compare("<=", float(np.finfo(np.float32).max), SINGLE),
                          compare("<=", float(np.finfo(np.float32).max), SINGLE),
                          compare(">=", math.inf, SINGLE), compare(">=", math.inf, SINGLE), FALSE]),
        (MONEY, "1.505", [NEVER, UNLESS_NULL,
                          compare("<=", Decimal("1.50"), MONEY), compare("<=", Decimal("1.50"), MONEY),
                          compare(">=", Decimal("1.51"), MONEY), compare(">=", Decimal("1.51"), MONEY), FALSE]),
        (pa.date32(), "TIMESTAMP_NTZ '1970-01-01 12:00:00'",
         [NEVER, UNLESS_NULL, compare("<=", 0, pa.date32()), compare("<=", 0, pa.date32()),
          compare(">=", 1, pa.date32()), compare(">=", 1, pa.date32()), FALSE]),
        (pa.timestamp("ms"), "'1970-01-01 00:00:00.0015'",
         [NEVER, UNLESS_NULL, compare("<=", 1, pa.timestamp("ms")), compare("<=", 1, pa.timestamp("ms")),
          compare(">=", 2, pa.timestamp("ms")), compare(">=", 2, pa.timestamp("ms")), FALSE]),
    ],
)  # fmt: skip
def test_T4_every_comparison_keeps_its_exact_meaning(data_type, literal, expected):
    schema = pa.schema([("x", data_type)])
    mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
    for operator, unbound in zip(OPERATORS, expected, strict=True):
        bound = with_type(unbound, data_type)
        assert bind(parse_sql(f"x {operator} {literal}"), schema) == bound, operator
        assert bind(parse_sql(f"{literal} {mirrored.get(operator, operator)} x"), schema) == bound, operator


@pytest.mark.parametrize(
    ("data_type", "items", "expected"),
    [
        (INT, "1, 5.5, 2", [1, 2]),
        (INT, "5.5", None),
        (TINY, "1, 300, NULL", [1, None]),
        (TINY, "300, 400", None),
        (INT, "'1', '2.0'", [1, 2]),
        (MONEY, "1.5, 1.505, 2", [Decimal("1.50"), Decimal("2.00")]),
        (DOUBLE, "1, 2.5, double('NaN')", [1.0, 2.5, math.nan]),
        (pa.date32(), "'1970-01-02', DATE '1970-01-03'", [1, 2]),
        (pa.timestamp("s"), "'1970-01-01 00:00:01', '1970-01-01 00:00:01.5'", [1]),
        (types.STRING, "'a', 'b'", ["a", "b"]),
    ],
)
def test_T4_items_that_are_not_values_of_the_type_never_match(data_type, items, expected):
    bound = bind(parse_sql(f"x IN ({items})"), pa.schema([("x", data_type)]))
    if expected is None:
        assert bound == with_type(NEVER, data_type)
    else:
        listed = Call("in", (X, *(Literal(value, data_type) for value in expected)))
        assert bound == with_type(listed, data_type)


@pytest.mark.parametrize(
    ("data_type", "where", "message"),
    [
        (INT, "x = 'abc'", "'abc' .*int"),
        (INT, "x IN (1, 'abc')", "'abc' .*int"),
        (INT, "x = '1_0'", "'1_0' is not a valid int"),
        (INT, "x IN ('1', '1_0')", "'1_0' is not a valid int"),
        (DOUBLE, "x > 'snan'", "'snan' is not a valid double"),
        (MONEY, "x <> 'snan'", "'snan' is not a valid decimal"),
        (pa.date32(), "x > '2024-02-30'", "'2024-02-30' .*date"),
        (pa.timestamp("us"), "x > 'noon'", "'noon' .*timestamp_ntz"),
        (pa.bool_(), "x = 'yes'", "'yes' .*boolean"),
        (pa.bool_(), "x = 1", "cannot compare boolean with bigint"),
        (pa.date32(), "x = 19785", "cannot compare date with bigint"),
        (INT, "x = DATE '2024-01-01'", "cannot compare int with date"),
        (INT, "x = true", "cannot compare int with boolean"),
        (INT, "x = X'01'", "cannot compare int with binary"),
    ],
)  # fmt: skip
def test_an_incompatible_literal_is_an_error_that_names_both(data_type, where, message):
    with pytest.raises(TypeMismatch, match=message):
        bind(parse_sql(where), pa.schema([("x", data_type)]))


def test_a_typed_null_compares_with_everything():
    bound = bind(parse_sql("x = CAST(NULL AS STRING)"), pa.schema([("x", INT)]))
    assert isinstance(bound, Call)
    assert bound.function == "="


def test_S6_a_uuid_text_is_a_uuid_for_16_byte_binary():
    spelled = "00010203-0405-0607-0809-0a0B0c0D0e0F"
    assert find_neighbours(text(spelled), pa.binary(16)) == exact(bytes(range(16)))
    for other in (spelled.replace("-", ""), f"{{{spelled}}}", f" {spelled}", "0123456789abcdef"):
        assert find_neighbours(text(other), pa.binary(16)) == exact(other.encode())
    for target in (pa.binary(), pa.binary(36), pa.large_binary()):
        assert find_neighbours(text(spelled), target) == exact(spelled.encode())


NUMBERS = {
    "bigint": (BIG, st.integers(-(2**63), LARGEST)),
    "ubigint": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "decimal(5,2)": (MONEY, st.decimals("-999.99", "999.99", places=2)),
    "decimal(38,4)": (pa.decimal128(38, 4), st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: scale_decimal(n, 4))),
    "decimal(18,18)": (
        pa.decimal128(18, 18),
        st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: scale_decimal(n, 18)),
    ),
}
OPERATORS = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge, "<=>": eq}


def scale_decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


@pytest.mark.parametrize("name", NUMBERS)
@given(data=st.data())
def test_a_number_is_compared_with_a_double_as_its_nearest_double(name: str, data: st.DataObject) -> None:
    data_type, values = NUMBERS[name]
    value = data.draw(values)
    nearest = float(value)
    near = st.sampled_from([nearest, math.nextafter(nearest, math.inf), math.nextafter(nearest, -math.inf)])
    other = data.draw(near | st.floats(allow_nan=False, allow_infinity=False))
    batch = pa.record_batch({"c": pa.array([value, None], data_type)})
    for function, compare in OPERATORS.items():
        bound = bind(Call(function, (Name(("c",)), double(other))), batch.schema)
        expected = [compare(nearest, other), False if function == "<=>" else None]
        assert Evaluator(bound)(batch).to_pylist() == expected, (function, value, other)
    listed = bind(Call("in", (Name(("c",)), double(other), double(0.5))), batch.schema)
    assert Evaluator(listed)(batch).to_pylist() == [nearest in (other, 0.5), None]

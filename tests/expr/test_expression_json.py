"""Expressions round-trip through JSON exactly, for all literals and any depth."""

from __future__ import annotations

import json
import math
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from tamis.errors import InvalidArgument
from tamis.expr.bind import bind
from tamis.expr.literals import literal
from tamis.expr.nodes import Call, Column, Expr, Literal, Name, Unbound, find_columns, not_, to_steps
from tamis.expr.sql.parse import parse_sql
from tamis.expr.wire.expression_json import bound_from_json, expression_from_json, expression_to_json
from tamis.expr.wire.partition_filter import PartitionFilter
from tamis.skipping.predicate import Predicate, make_predicate, predicate_from_json, predicate_to_json


def round_trip(expr: Expr) -> Expr:
    return expression_from_json(json.loads(json.dumps(expression_to_json(expr), allow_nan=False)))


@pytest.mark.parametrize(
    "value",
    [
        Literal(None),
        Literal(None, pa.timestamp("ns", "UTC")),
        Literal(2**64 - 1, pa.uint64()),
        Literal(-128, pa.int8()),
        Literal(True, pa.bool_()),
        Literal(0.1 + 0.2, pa.float64()),
        Literal(math.nan, pa.float32()),
        Literal(-math.inf, pa.float64()),
        Literal(5e-324, pa.float64()),
        Literal(Decimal("-12345678901234567890.1234567890"), pa.decimal128(38, 10)),
        Literal(Decimal("1E+5"), pa.decimal256(60, 0)),
        Literal(b"\x00\xff'", pa.binary()),
        Literal("é \ud800 \0 '", pa.large_string()),
        Literal((1, -2, 3), pa.month_day_nano_interval()),
        Literal(86_400_000_000_001, pa.duration("ns")),
        literal(date(1, 1, 1)),
    ],
    ids=repr,
)
def test_literals_keep_value_and_type(value: Literal) -> None:
    back = round_trip(value)
    assert isinstance(back, Literal)
    assert back == value
    assert back.type == value.type
    assert type(back.value) is type(value.value)


def test_negative_zero_keeps_its_sign() -> None:
    back = round_trip(Literal(-0.0, pa.float64()))
    assert isinstance(back, Literal)
    assert math.copysign(1, back.value) == -1


def test_columns_keep_their_type_position_and_quoting() -> None:
    column = Column(("a.b", "`"), pa.struct([("x", pa.int8())]), 14, exact=True)
    back, untyped = find_columns(round_trip(Call("is_null", (column, Column(("plain",), None)))))
    assert (back, back.position, back.exact) == (column, 14, True)
    assert untyped == Column(("plain",), None)


def test_names_and_columns_are_kept_apart() -> None:
    name, column = Name(("a", "b"), 14, exact=True), Column(("a", "b"), pa.int64())
    back = find_columns(round_trip(Call("=", (name, column))))
    assert back == [name, column]
    assert (back[0].position, back[0].exact) == (14, True)


def test_what_must_be_bound_is_not_read_as_a_name() -> None:
    bound = bind(parse_sql("a > 5"), pa.schema([("a", pa.int32())]))
    assert bound_from_json(expression_to_json(bound)) == bound
    with pytest.raises(InvalidArgument, match=r"expected a bound expression as JSON, found the unbound name .a.b."):
        bound_from_json(expression_to_json(parse_sql("a.b > 5")))


def test_X11_depth_and_length_do_not_matter() -> None:
    deep: Expr = Column(("a",), type=pa.bool_())
    for _ in range(10_000):
        deep = not_(deep)
    assert round_trip(deep) == deep
    long = Call("in", (Name(("a",)), *(Literal(number, pa.int64()) for number in range(10_000))))
    assert round_trip(long) == long


def test_a_repeated_sub_expression_is_written_once() -> None:
    part: Unbound = Name(("a",))
    for _ in range(60):
        part = Call("+", (part, part))
    assert len(json.dumps(expression_to_json(part))) < 5000
    assert to_steps(round_trip(part)) == to_steps(part)


def test_an_unsupported_literal_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="a literal of object cannot be sent to another process"):
        expression_to_json(Literal(object(), pa.null()))


@pytest.mark.parametrize(
    "where",
    [
        None,
        "id = 5",
        "id > 3000000000 AND day = '2024-01-01'",
        "UPPER(s) = 'X' OR id IS NULL",
        PartitionFilter.eq("day", "x"),
    ],
)
def test_predicates_round_trip_with_types(where: object) -> None:
    schema = pa.schema([("id", pa.int32()), ("s", pa.string()), ("day", pa.date32())])
    predicate = make_predicate(where, schema, "t", ("day",))
    back = predicate_from_json(json.loads(json.dumps(predicate_to_json(predicate))))
    assert isinstance(back, Predicate)
    assert back == predicate
    assert [column.type for column in back.mentioned] == [column.type for column in predicate.mentioned]
    assert [each.text for each in back.conjuncts] == [each.text for each in predicate.conjuncts]
    assert [each.text for each in back.partition_conjuncts] == [each.text for each in predicate.partition_conjuncts]
    # The metrics of another process have these texts, and reports are made here.
    assert {each.text for each in (*back.conjuncts, *back.partition_conjuncts)} == predicate.labels.keys()

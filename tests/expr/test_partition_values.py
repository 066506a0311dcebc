"""`partition_value(text, type)`: parsing of partition values by Delta's protocol."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tamis import types
from tamis.errors import EvaluationError
from tamis.expr.evaluate import Evaluator, evaluate_constant
from tamis.expr.functions.partition_values import InvalidPartitionValue, parse_partition_values
from tamis.expr.nodes import Call, Column, Literal

DAY = datetime.date(2024, 3, 1)
TIMESTAMP = datetime.datetime(2024, 3, 1, 10, 0, 0, 500_000)


def evaluate_texts(texts: pa.Array, data_type: str) -> pa.Array:
    call = Call("partition_value", (Column(("p",), None), Literal(data_type, types.STRING)))
    return Evaluator(call)(pa.record_batch({"p": texts}))


@pytest.mark.parametrize(
    ("data_type", "text", "expected"),
    [
        ("boolean", "true", True),
        ("boolean", "FALSE", False),
        ("tinyint", "-128", -128),
        ("int", "+7", 7),
        ("int", "007", 7),
        ("bigint", "-9223372036854775808", -(2**63)),
        ("ubigint", "18446744073709551615", 2**64 - 1),
        ("float", "0.5", 0.5),
        ("double", "1.0E10", 1e10),
        ("double", "-Infinity", -math.inf),
        ("decimal(5,2)", "1.5", Decimal("1.50")),
        ("decimal(5,2)", "1E+2", Decimal("100.00")),
        ("date", "2024-03-01", DAY),
        ("timestamp", "2024-03-01 10:00:00.5", TIMESTAMP),
        ("timestamp", "2024-03-01T10:00:00.5Z", TIMESTAMP),
        ("timestamp", "2024-03-01 12:00:00.5+02:00", TIMESTAMP),
        ("timestamp_ntz", "2024-03-01 10:00:00.5", TIMESTAMP),
        ("timestamp_ntz", "2024-03-01T10:00:00.5Z", TIMESTAMP),
        ("timestamp_ntz", "2024-03-01", datetime.datetime(2024, 3, 1)),
        ("string", "null", "null"),
        ("string", " ", " "),
        ("binary", "\u0001é", b"\x01\xc3\xa9"),
        ("timestamp_ms", "2024-03-01 10:00:00.5", TIMESTAMP),
    ],
)
def test_D3_D5_texts_of_every_type(data_type: str, text: str, expected: Any) -> None:
    found = evaluate_texts(pa.array([text, "", None, text]), data_type)
    assert found.to_pylist() == [expected, None, None, expected]
    assert evaluate_texts(pa.array(["", None]), data_type).to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("data_type", "text"),
    [
        # Arrow would take the first three.
        ("boolean", "1"),
        ("int", "0x10"),
        ("timestamp_ntz", "2024-03-01 10:00:00+01:00"),
        ("boolean", "yes"),
        ("tinyint", "128"),
        ("int", "1.0"),
        ("int", " 1"),
        ("bigint", "9" * 39),
        ("double", "1,5"),
        ("decimal(5,2)", "1.505"),
        ("decimal(5,2)", "1000"),
        ("date", "2024-02-30"),
        ("timestamp", "2024-01-01 25:00:00"),
        ("void", "x"),
        ("timestamp_ms", "2024-03-01 25:00:00"),
    ],
)
def test_an_invalid_text_is_an_error_that_names_it(data_type: str, text: str) -> None:
    with pytest.raises(EvaluationError, match=r"partition_value.*: ") as caught:
        evaluate_texts(pa.array([None, text]), data_type)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_cause_of_the_error_has_the_text() -> None:
    with pytest.raises(InvalidPartitionValue, match="the partition value 'soon' is not a valid date") as caught:
        parse_partition_values(pa.array(["2024-03-01", "soon", "never"]), types.DATE)
    assert caught.value.text == "soon"


@pytest.mark.parametrize(
    "texts",
    [
        pa.array(["1", "", "1", None]).dictionary_encode(),
        pa.array(["1", "", "1", None], pa.large_string()),
        pa.array(["1", "", "1", None], pa.string_view()),
        pa.array(["x", "1", "", "1", None, "x"]).slice(1, 4),
    ],
    ids=["dictionary", "large", "view", "slice"],
)
def test_texts_in_every_form(texts: pa.Array) -> None:
    assert evaluate_texts(texts, "int").to_pylist() == [1, None, 1, None]
    assert evaluate_texts(texts, "string").to_pylist() == ["1", None, "1", None]


def test_a_constant() -> None:
    def evaluate_literal(text: str | None) -> Literal:
        value = Literal(text, types.STRING)
        return evaluate_constant(Call("partition_value", (value, Literal("date", types.STRING))))

    assert evaluate_literal("1970-01-02") == Literal(1, types.DATE)
    assert evaluate_literal("").is_null
    assert evaluate_literal(None).is_null


def test_a_batch_without_rows() -> None:
    assert evaluate_texts(pa.array([], pa.string()), "timestamp").to_pylist() == []

"""A property of both handlers: for any predicate over any batch, Spark's selection is Arrow's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.values.by_type import PRIMITIVES, list_values, make_array
from builders.values.choices import Choices
from builders.values.predicates import draw_predicate
from builders.values.random_rows import draw_column, make_subject
from tamis import types
from tamis.engines.spark.handler import SparkExpressionHandler
from tamis.errors import EvaluationError
from tamis.expr.bind import bind
from tamis.expr.evaluate import can_evaluate
from tamis.expr.nodes import Call, Column, Expr, Literal
from tamis.skipping.handler import ArrowExpressionHandler

TEXT_MAP = pa.map_(pa.string(), pa.string())
PARTITIONS: dict[str, tuple[pa.DataType, tuple[str, ...], tuple[Any, ...]]] = {
    "tinyint": (pa.int8(), ("1", "-128", "+7", "128"), (1, -128)),
    "int": (pa.int32(), ("1", "007", "1.0", "x"), (1, 7)),
    "bigint": (pa.int64(), ("1", "9223372036854775807"), (1, 2**63 - 1)),
    "float": (pa.float32(), ("0.5", "NaN", "1e3"), (0.5, 1000.0)),
    "double": (pa.float64(), ("0.1", "Infinity", "-0.0", "1.0E10"), (0.1, 0.0)),
    "decimal(5,2)": (pa.decimal128(5, 2), ("1.50", "1", "999.999"), ("1.50", "1.00")),
    "boolean": (pa.bool_(), ("true", "FALSE", "1"), (True, False)),
    "date": (pa.date32(), ("2024-02-29", "1969-12-31", "2024-2-9", "2023-02-29"), (19782, -1)),
    "timestamp": (types.TIMESTAMP, ("2024-03-01 10:00:00.5", "2024-03-01T10:00:00Z"), (1709287200500000, 0)),
    "timestamp_ntz": (types.TIMESTAMP_NTZ, ("2024-03-01 10:00:00", "1969-12-31 23:59:59.999999"), (-1, 0)),
    "string": (pa.string(), ("a", "é", "null"), ("a", "null")),
    "binary": (pa.binary(), ("a", "é"), (b"a", b"\xc3\xa9")),
}


def draw_partition_test(choices: Choices, name: str) -> Expr:
    """Return a comparison of the partition value of a type."""
    data_type, _, values = PARTITIONS[name]
    value = choices.one_of(values)
    literal = Literal(pa.scalar(value).cast(data_type).as_py() if pa.types.is_decimal(data_type) else value, data_type)
    text = Call("element_at", (Column(("add", "partitionValues"), type=TEXT_MAP), Literal("p", types.STRING)))
    typed = Call("partition_value", (text, Literal(name, types.STRING)))
    if choices.flag(6):
        return Call(choices.one_of(["is_null", "is_not_null"]), (typed,))
    return Call(choices.one_of(["=", "<>", "<", "<=", ">", ">=", "<=>"]), (typed, literal))


def draw_batch(choices: Choices, data_types: list[pa.DataType], texts: tuple[str, ...], rows: int) -> pa.RecordBatch:
    """Return a batch in the shape of the log: a struct with fields of some types, and a map of partition values."""
    arrays = [make_array(each, draw_column(choices, list(list_values(each)), rows)) for each in data_types]
    maps: list[Any] = [
        choices.one_of(
            [[("p", choices.one_of(texts))], [("p", choices.one_of(texts))], [("p", None)], [("q", "1")], None]
        )
        for _ in range(rows)
    ]
    names = [f"x{number}" for number in range(len(arrays))]
    add = pa.StructArray.from_arrays([pa.array(maps, TEXT_MAP), *arrays], names=["partitionValues", *names])
    return pa.record_batch({"add": add, "flat": arrays[0]})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@settings(max_examples=max(settings.default.max_examples // 5, 1))
@given(data=st.data())
def test_spark_selects_what_arrow_selects(connect_spark: Any, data: st.DataObject) -> None:
    choices = Choices(data.draw)
    arrow, spark = ArrowExpressionHandler(), SparkExpressionHandler(connect_spark)
    name = choices.one_of(list(PARTITIONS))
    # Values that are invalid for the type make both fail: rarely, or nothing else would be compared.
    texts = PARTITIONS[name][1] if choices.flag(4) else PARTITIONS[name][1][:1]
    data_types = [choices.one_of(PRIMITIVES), choices.one_of(PRIMITIVES)]
    batch = draw_batch(choices, data_types, texts, choices.number(1, 6))
    selection = pa.array([choices.flag(2) or choices.flag(2) for _ in range(batch.num_rows)], pa.bool_())
    subjects = [
        make_subject(path, data_type, list_values(data_type))
        for path, data_type in (
            (("add", "x0"), data_types[0]),
            (("add", "x1"), data_types[1]),
            (("flat",), data_types[0]),
        )
    ]
    predicates = [
        draw_partition_test(choices, name),
        *(bind(draw_predicate(choices, subjects, depth=2).expr, batch.schema) for _ in range(2)),
    ]
    predicates.append(Call(choices.one_of(["and", "or"]), tuple(predicates)))
    for predicate in predicates:
        if not can_evaluate(predicate):
            continue
        evaluator = spark.predicate_evaluator(batch.schema, predicate)
        try:
            expected = arrow.predicate_evaluator(batch.schema, predicate).eval(batch, selection)
        except EvaluationError:
            with pytest.raises(EvaluationError):
                evaluator.eval(batch, selection)
            continue
        assert evaluator.eval(batch, selection).to_pylist() == expected.to_pylist(), predicate

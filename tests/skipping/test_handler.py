"""The contract between the rewrite and its evaluators: selection vectors, NULL, missing columns."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from builders.skipping.units import ALL_NULL, DOUBLE, INT, Unit, make_batch
from tamis import types
from tamis.errors import EvaluationError, InvalidArgument
from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Column, Expr, Literal, fold
from tamis.skipping.handler import ArrowExpressionHandler, ExpressionHandler, PredicateEvaluator
from tamis.skipping.predicate import make_predicate

HANDLER: ExpressionHandler = ArrowExpressionHandler()
SCHEMA = pa.schema([("a", pa.int64()), ("s", pa.string())])
BATCH = pa.record_batch([pa.array([1, 2, None, 4]), pa.array(["x", None, "z", ""])], schema=SCHEMA)
ABOVE_ONE = Call(">", (Column(("a",), type=types.LONG), Literal(1, types.LONG)))


def text(value: str) -> Literal:
    return Literal(value, types.STRING)


def evaluate(predicate: Expr, batch: pa.RecordBatch = BATCH, selection: list[bool] | None = None) -> list[bool]:
    given = None if selection is None else HANDLER.create_selection_vector(selection)
    found = HANDLER.predicate_evaluator(batch.schema, predicate).eval(batch, given)
    assert isinstance(found, pa.BooleanArray)
    assert found.null_count == 0
    return found.to_pylist()


# --- Selection vectors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("booleans", [[True, False], (True, False), pa.array([True, False])])
def test_a_selection_vector_is_one_boolean_a_row(booleans):
    vector = HANDLER.create_selection_vector(booleans)
    assert vector.type == pa.bool_()
    assert vector.to_pylist() == [True, False]


def test_an_empty_selection_vector():
    assert HANDLER.create_selection_vector([]).to_pylist() == []


@pytest.mark.parametrize("booleans", [[True, None], pa.array([True, None]), [1, 0], ["true"]])
def test_an_invalid_selection_vector_is_rejected(booleans):
    with pytest.raises(InvalidArgument, match="selection vector"):
        HANDLER.create_selection_vector(booleans)


def test_only_rows_for_which_the_predicate_is_true_are_selected():
    assert evaluate(ABOVE_ONE) == [False, True, False, True]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ([True, True, True, True], [False, True, False, True]),
        ([True, False, True, False], [False, False, False, False]),
        ([False, False, False, True], [False, False, False, True]),
        ([False, False, False, False], [False, False, False, False]),
    ],
)
def test_an_existing_selection_is_narrowed_and_never_widened(selection, expected):
    assert evaluate(ABOVE_ONE, selection=selection) == expected


@pytest.mark.parametrize(
    ("predicate", "expected"), [(TRUE, True), (FALSE, False), (NULL, False), (Literal(None, types.BOOLEAN), False)]
)
def test_a_constant_predicate_selects_all_rows_or_none(predicate, expected):
    assert evaluate(predicate) == [expected] * 4
    assert evaluate(predicate, selection=[True, False, True, False]) == [expected, False, expected, False]


def test_a_batch_without_rows():
    assert evaluate(ABOVE_ONE, BATCH.slice(0, 0), []) == []


def test_slices_are_evaluated_by_their_own_rows():
    assert evaluate(ABOVE_ONE, BATCH.slice(1, 2)) == [True, False]


@pytest.mark.parametrize("length", [0, 3, 5])
def test_a_selection_of_another_length_is_rejected(length):
    with pytest.raises(InvalidArgument, match=f"{length} entries, the batch 4 rows"):
        evaluate(ABOVE_ONE, selection=[True] * length)


def test_a_selection_with_nulls_is_rejected():
    evaluator = HANDLER.predicate_evaluator(SCHEMA, ABOVE_ONE)
    with pytest.raises(InvalidArgument, match="nulls"):
        evaluator.eval(BATCH, pa.array([True, None, True, True]))


def test_a_batch_of_another_schema_is_rejected():
    evaluator = HANDLER.predicate_evaluator(SCHEMA, ABOVE_ONE)
    with pytest.raises(InvalidArgument, match="expects batches with"):
        evaluator.eval(pa.record_batch({"a": pa.array([1])}))


def test_a_column_that_the_batch_lacks_is_null():
    absent = Column(("b",), type=types.LONG)
    assert evaluate(Call(">", (absent, Literal(1, types.LONG)))) == [False] * 4
    assert evaluate(Call("is_null", (absent,))) == [True] * 4
    assert evaluate(Call("coalesce", (Call(">", (absent, Literal(1, types.LONG))), TRUE))) == [True] * 4


def test_an_unknown_function_is_an_error_that_names_it():
    with pytest.raises(EvaluationError, match="my_own"):
        HANDLER.predicate_evaluator(SCHEMA, Call("my_own", (Column(("a",), None),)))


def test_a_value_is_not_a_predicate():
    with pytest.raises(InvalidArgument, match="not a predicate"):
        evaluate(Column(("a",), type=types.LONG))


def test_one_evaluator_serves_many_batches():
    evaluator = HANDLER.predicate_evaluator(SCHEMA, ABOVE_ONE)
    for start in range(4):
        assert evaluator.eval(BATCH.slice(start, 1)).to_pylist() == [[False, True, False, True][start]]


# --- Maps of partition values ---------------------------------------------------------------------------------------

DAY = types.DATE

MAPS = pa.record_batch(
    {
        "values": pa.array(
            [
                [("day", "2024-03-03"), ("n", "7")],
                [("day", "2024-03-04"), ("n", "70")],
                [("day", ""), ("n", None)],
                [("other", "2024-03-03")],
                None,
                [],
            ],
            pa.map_(pa.string(), pa.string()),
        )
    }
)


def element_at(name: str) -> Call:
    return Call("element_at", (Column(("values",), MAPS.schema.field("values").type), text(name)))


def read_partition(name: str, data_type: str) -> Call:
    return Call("partition_value", (element_at(name), text(data_type)))


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Call("=", (element_at("day"), text("2024-03-03"))), [1, 0, 0, 0, 0, 0]),
        (Call("is_null", (element_at("day"),)), [0, 0, 0, 1, 1, 1]),
        # The empty text is NULL for every type.
        (Call("is_null", (read_partition("day", "date"),)), [0, 0, 1, 1, 1, 1]),
        (Call("is_null", (read_partition("day", "string"),)), [0, 0, 1, 1, 1, 1]),
        (Call("=", (read_partition("day", "date"), Literal(19785, types.DATE))), [1, 0, 0, 0, 0, 0]),
        (Call("<>", (read_partition("day", "date"), Literal(19785, types.DATE))), [0, 1, 0, 0, 0, 0]),
        (Call("in", (read_partition("day", "date"), Literal(19786, types.DATE), Literal(9, DAY))), [0, 1, 0, 0, 0, 0]),
        # As texts 7 comes after 70, as numbers before it.
        (Call("<", (read_partition("n", "bigint"), Literal(70, types.LONG))), [1, 0, 0, 0, 0, 0]),
        (Call("<", (read_partition("n", "string"), text("7"))), [0, 0, 0, 0, 0, 0]),
        (Call("=", (Call("year", (read_partition("day", "date"),)), Literal(2024, types.LONG))), [1, 1, 0, 0, 0, 0]),
    ],
)  # fmt: skip
def test_element_at_and_partition_value_are_ordinary_calls(predicate, expected):
    assert evaluate(predicate, MAPS) == [bool(each) for each in expected]


@pytest.mark.parametrize(
    ("value", "data_type", "expected"),
    [
        ("1", "int", 1),
        ("-1", "tinyint", -1),
        ("1.50", "decimal(10,2)", Decimal("1.5")),
        ("1.5", "double", 1.5),
        ("true", "boolean", True),
        ("2024-03-03", "date", date(2024, 3, 3)),
        ("a=b", "string", "a=b"),
        ("null", "string", "null"),
        ("", "string", None),
        ("", "int", None),
    ],
)
def test_partition_value_parses_the_text_as_the_type(value, data_type, expected):
    batch = pa.record_batch({"values": pa.array([[("p", value)]], pa.map_(pa.string(), pa.string()))})
    target = types.type_from_name(data_type)
    physical = (expected - date(1970, 1, 1)).days if isinstance(expected, date) else expected
    assert evaluate(Call("<=>", (read_partition("p", data_type), Literal(physical, target))), batch) == [True]


def test_partition_value_of_an_invalid_text_is_an_error_that_names_it():
    with pytest.raises(EvaluationError, match="the partition value '2024-03-03' is not a valid int"):
        evaluate(Call("=", (read_partition("day", "int"), Literal(1, pa.int32()))), MAPS)


# --- Another handler ------------------------------------------------------------------------------------------------


class RowByRowHandler:
    """The same contract, unit by unit in plain Python: slow, and independent of the Arrow handler."""

    def create_selection_vector(self, booleans: Sequence[bool] | pa.BooleanArray) -> pa.BooleanArray:
        return pa.array([bool(each) for each in booleans], pa.bool_())

    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> PredicateEvaluator:
        return RowByRowEvaluator(predicate)


class RowByRowEvaluator:
    def __init__(self, predicate: Expr) -> None:
        self._predicate = predicate

    def eval(self, batch: pa.RecordBatch, selection: pa.BooleanArray | None = None) -> pa.BooleanArray:
        before = [True] * batch.num_rows if selection is None else selection.to_pylist()
        rows = batch.to_pylist()
        return pa.array([was and self._value(row) is True for was, row in zip(before, rows, strict=True)], pa.bool_())

    def _value(self, row: dict[str, Any]) -> Any:
        def combine(node: Expr, args: tuple[Any, ...]) -> Any:
            match node:
                case Column(path=path):
                    return row.get(path[0])
                case Literal(value=value):
                    return value
                case Call(function):
                    return self._call(function, args)

        return fold(self._predicate, combine, lambda node: node.args if isinstance(node, Call) else ())

    def _call(self, function: str, args: tuple[Any, ...]) -> Any:
        match function:
            case "and":
                return False if False in args else None if None in args else True
            case "or":
                return True if True in args else None if None in args else False
            case "coalesce":
                return next((arg for arg in args if arg is not None), None)
            case "case":
                return args[1] if args[0] is True else args[2]
            case "is_null":
                return args[0] is None
            case "in":
                return None if args[0] is None else args[0] in args[1:]
            case "any_between":
                return None if None in args[:2] else any(args[0] <= item <= args[1] for item in args[2:])
        if None in args:
            return None
        if function == "not":
            return not args[0]
        assert not any(isinstance(arg, float) and math.isnan(arg) for arg in args)
        return _OPERATORS[function](*args)


_OPERATORS = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "+": operator.add, "-": operator.sub, "*": operator.mul, "negate": operator.neg,
}  # fmt: skip

UNITS = [
    Unit(1, 4), Unit(5, 5), Unit(6, 9), Unit(1, 9, 3), ALL_NULL, Unit(None, None, None), Unit(5, None, 0),
    Unit(None, 5, 1), Unit(1, 9, None), Unit(None, None, 0, None, 0), Unit(5, 5, 3), Unit(-9, -1),
]  # fmt: skip


@pytest.mark.parametrize(
    "where",
    [
        "x = 5", "x <> 5", "x < 5", "x >= 5", "x IN (1, 5, 9)", "x NOT IN (5, 6)", "x IS NULL", "x IS NOT NULL",
        "x <=> 5", "x IS DISTINCT FROM 5", "x + 1 = 6", "10 - x > 5", "-x < -5", "x * 2 IN (10, 12)",
        "x = 5 OR x IS NULL", "NOT (x BETWEEN 3 AND 7)", "(x > 5) IS NULL", "x < 5.5", "x = 7 OR (x < 3 AND x <> 1)",
    ],
)  # fmt: skip
@pytest.mark.parametrize("data_type", [INT, DOUBLE])
def test_another_handler_evaluates_the_same_rewrite_to_the_same_selection(where, data_type):
    units = [each if data_type == INT else each._replace(nan_count=0) for each in UNITS]
    batch = make_batch({"x": (data_type, units)})
    (conjunct,) = make_predicate(where, pa.schema([("x", data_type)]), "t").conjuncts[:1]
    other: ExpressionHandler = RowByRowHandler()
    for expr in (conjunct.keeps, conjunct.fully_matches):
        by_arrow = HANDLER.predicate_evaluator(batch.schema, expr).eval(batch)
        assert other.predicate_evaluator(batch.schema, expr).eval(batch).to_pylist() == by_arrow.to_pylist()

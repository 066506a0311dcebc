"""The Spark handler against the Arrow handler: both return the same results for the same predicates and metadata."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from builders.skipping.units import BIG, DOUBLE, Unit, make_batch
from builders.values.by_type import PRIMITIVES, list_values, make_array
from builders.values.choices import SeededChoices
from builders.values.predicates import draw_predicate
from builders.values.random_rows import draw_column, make_subject
from tamis import types
from tamis.engines.spark.handler import SparkExpressionHandler
from tamis.engines.spark.spark_types import convert_metadata, to_spark_schema
from tamis.errors import EvaluationError, InvalidArgument
from tamis.expr.bind import bind
from tamis.expr.evaluate import Evaluator
from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Column, Expr, Literal
from tamis.expr.normalise import normalise, sort_key
from tamis.skipping.handler import ArrowExpressionHandler, ExpressionHandler
from tamis.skipping.metadata import metadata_name
from tamis.skipping.predicate import make_predicate
from tamis.skipping.rewrite import rewrite

PER_JOB = 200
"""How many Columns Spark computes at once: one is as much work to plan as a thousand units to compute."""


def evaluate_with_spark(spark: Any, batch: pa.RecordBatch, predicates: list[Expr]) -> list[list[bool] | None]:
    """Return the units that each predicate keeps, with unknown and failed ones; None if Spark has no equivalent."""
    handler = SparkExpressionHandler(spark)
    fitted = convert_metadata(batch)
    names = {name: f"c{number}" for number, name in enumerate(fitted.schema.names)}
    rows = pa.array(range(batch.num_rows), pa.int64())
    table = pa.table({"row": rows} | {names[name]: fitted.column(name) for name in fitted.schema.names})
    frame = spark.createDataFrame(table, to_spark_schema(table.schema)).coalesce(1)
    columns: dict[int, Any] = {}
    for number, predicate in enumerate(predicates):
        try:
            columns[number] = handler.compile_keep(predicate, names).alias(f"p{number}")
        except EvaluationError as error:
            assert "Spark" in str(error)  # noqa: PT017 - a refusal is an outcome here
    found: dict[str, list[bool]] = {}
    wanted = list(columns.values())
    for start in range(0, len(wanted), PER_JOB):
        answers = frame.select("row", *wanted[start : start + PER_JOB]).toArrow().sort_by("row")
        found |= answers.to_pydict()
    return [found.get(f"p{number}") for number in range(len(predicates))]


def evaluate_with_arrow(batch: pa.RecordBatch, predicate: Expr) -> list[bool]:
    """Return the units that Arrow keeps. If a batch fails, each unit is evaluated alone; a failing unit is kept."""
    evaluate = Evaluator(Call("coalesce", (predicate, TRUE)), absent_as_null=True)
    try:
        return evaluate(batch).to_pylist()
    except EvaluationError:
        return [
            evaluate_with_arrow(batch.slice(row, 1), predicate)[0] if batch.num_rows > 1 else True
            for row in range(len(batch))
        ]


def list_near_values(data_type: pa.DataType) -> list[Any]:
    """Return values in the range of microseconds: beyond it Spark has no bounds and keeps units that Arrow may skip."""
    per_second = types.UNITS_PER_SECOND.get(getattr(data_type, "unit", ""), 1_000_000)
    most = (2**63 - 1) * per_second // 1_000_000 if per_second < 1_000_000 else 2**64
    return [value for value in list_values(data_type) if not isinstance(value, int) or abs(value) <= most]


def make_random_units(choices: SeededChoices, schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Return metadata of units of a few rows each, some of it missing."""
    units = []
    for _ in range(count):
        rows = choices.one_of([1, 1, 2, 3, 0])
        units.append({field.name: draw_column(choices, list_near_values(field.type), rows) for field in schema})

    def make_gappy(data_type: pa.DataType, values: list[Any]) -> pa.Array:
        return make_array(data_type, [None if choices.flag(8) else value for value in values])

    arrays = {"row_count": make_gappy(BIG, [len(next(iter(unit.values()))) for unit in units])}
    for field in schema:
        path = (field.name,)
        cells = [unit[field.name] for unit in units]
        plain = [sorted((v for v in each if v is not None and v == v), key=sort_key) for each in cells]
        arrays[metadata_name("lower", path)] = make_gappy(field.type, [each[0] if each else None for each in plain])
        arrays[metadata_name("upper", path)] = make_gappy(field.type, [each[-1] if each else None for each in plain])
        arrays[metadata_name("null_count", path)] = make_gappy(BIG, [sum(v is None for v in each) for each in cells])
        if pa.types.is_floating(field.type) and choices.flag():
            nans = [sum(isinstance(v, float) and math.isnan(v) for v in each) for each in cells]
            arrays[metadata_name("nan_count", path)] = make_gappy(BIG, nans)
    return pa.record_batch(arrays)


def compare_handlers(spark: Any, seed: int, predicates: int, units: int) -> tuple[int, int]:
    """Return how many results were compared, and how many predicates Spark refused."""
    choices = SeededChoices(seed)
    schema = pa.schema([(f"x{number}", data_type) for number, data_type in enumerate(PRIMITIVES)])
    batch = make_random_units(choices, schema, units)
    subjects = [make_subject((field.name,), field.type, list_near_values(field.type)) for field in schema]
    asked: list[Expr] = []
    for number in range(predicates):
        some = [subjects[number % len(subjects)], choices.one_of(subjects)]
        said = draw_predicate(choices, some, depth=2)
        for conjunct in rewrite(normalise(bind(said.expr, schema))):
            asked += [conjunct.may_be_true, conjunct.fully_matches]
    asked = list(dict.fromkeys(asked))
    # Types that Spark lacks, such as nanoseconds, have unknown metadata there.
    known = batch.select(convert_metadata(batch).schema.names)
    wrong = []
    refused = compared = 0
    for predicate, found in zip(asked, evaluate_with_spark(spark, batch, asked), strict=True):
        if found is None:
            refused += 1
            continue
        compared += len(found)
        expected = evaluate_with_arrow(known, predicate)
        if found != expected:
            rows = [row for row in range(len(found)) if found[row] != expected[row]]
            wrong.append((predicate, batch.slice(rows[0], 1).to_pylist(), found[rows[0]], expected[rows[0]]))
    assert not wrong, wrong[:3]
    return compared, refused


def test_random_predicates_have_the_results_of_arrow(connect_spark: Any) -> None:
    compared, refused = compare_handlers(connect_spark, seed=7, predicates=26, units=60)
    assert compared > 60 * 25
    # What Spark computes differently is computed with Arrow's kernels.
    assert refused == 0


UNITS = make_batch(
    {
        "a": (BIG, [Unit(1, 5), Unit(7, 7), Unit(None, None, 10), Unit(2**63 - 1, 2**63 - 1), Unit(-3, 900_000)]),
        "f": (
            DOUBLE,
            [Unit(-0.0, 0.0, 0, 0), Unit(1.0, 2.0), Unit(None, None, 0, 10), Unit(0.5, 0.5), Unit(-1e308, 1)],
        ),
        "s": (types.STRING, [Unit("a", "b"), Unit("é", "é"), Unit("", ""), Unit("\U0010ffff", None), Unit("m", "z")]),
        "b": (types.BINARY, [Unit(b"\x00", b"\x7f"), Unit(b"\xff", b"\xff"), Unit(), Unit(b"", b""), Unit(b"a", b"b")]),
    }
)
SCHEMA = pa.schema([("a", BIG), ("f", DOUBLE), ("s", types.STRING), ("b", types.BINARY)])


def test_chosen_predicates_have_the_results_of_arrow(any_spark: Any) -> None:
    many = ", ".join(str(7 * number) for number in range(1000))
    texts = ", ".join(f"'t{number:04d}'" for number in range(1000))
    wheres = [
        f"a IN ({many})", f"a NOT IN ({many})", f"s IN ({texts}, 'a')", f"f IN ({many}, 0.5D)", "a IN (5, NULL)",
        "f IN (DOUBLE('NaN'), 3)", "f = -0.0D", "f > 0.0D", "f = DOUBLE('NaN')", "f < DOUBLE('NaN')", "b > X'7F'",
        "b = X'FF'", "b IN (X'', X'6162')", "a + 1 > 5", "a * 9223372036854775807 > 3", "NOT (a = 7)", "a <=> NULL",
        "s LIKE 'é%'", "s LIKE '%b'", "s LIKE 'm!%_' ESCAPE '!'", "s LIKE '%\\\\m'", "startswith(s, '')",
        "s >= 'é' AND a > 3", "a % 2 = 1", "length(s) = 1",
        "substring(s, 1, 1) = 'm'", "CAST(a AS INT) = 7", "abs(a) < 3", "upper(s) = 'A'", "absent(a) = 1",
        "CASE WHEN a > 3 THEN s = 'é' ELSE false END",
    ]  # fmt: skip
    conjuncts = [each for where in wheres for each in make_predicate(where, SCHEMA, "t").conjuncts]
    asked = [answer for each in conjuncts for answer in (each.may_be_true, each.fully_matches)]
    answers = evaluate_with_spark(any_spark, UNITS, asked)
    known = [(predicate, found) for predicate, found in zip(asked, answers, strict=True) if found is not None]
    wrong = [
        (each, found, evaluate_with_arrow(UNITS, each))
        for each, found in known
        if found != evaluate_with_arrow(UNITS, each)
    ]
    assert wrong == []
    assert len(known) >= len(asked) - 4


A = Column(("a",), type=types.LONG)
ABOVE_ONE = Call(">", (A, Literal(1, types.LONG)))
BATCH = pa.record_batch({"a": pa.array([1, 2, None, 4]), "A": pa.array([9, 9, 9, 9])})


def test_both_handlers_keep_the_contract(connect_spark: Any) -> None:
    doubled = Call(">", (Call("*", (A, Literal(2**62, types.LONG))), Literal(1, types.LONG)))
    for handler in (SparkExpressionHandler(connect_spark), ArrowExpressionHandler()):
        of: ExpressionHandler = handler
        evaluator = of.predicate_evaluator(BATCH.schema, ABOVE_ONE)
        assert evaluator.eval(BATCH).to_pylist() == [False, True, False, True]
        selection = of.create_selection_vector([True, False, True, True])
        assert evaluator.eval(BATCH, selection).to_pylist() == [False, False, False, True]
        assert evaluator.eval(BATCH.slice(0, 0)).to_pylist() == []
        for constant, expected in ((TRUE, True), (FALSE, False), (NULL, False)):
            assert of.predicate_evaluator(BATCH.schema, constant).eval(BATCH).to_pylist() == [expected] * 4
        absent = Column(("lower:x",), type=types.DATE)
        unknown = Call("is_null", (Call("=", (absent, Literal(date(2024, 1, 1).toordinal(), types.DATE))),))
        assert of.predicate_evaluator(BATCH.schema, unknown).eval(BATCH).to_pylist() == [True] * 4
        with pytest.raises(EvaluationError, match="cannot evaluate"):
            of.predicate_evaluator(BATCH.schema, doubled).eval(BATCH)
        with pytest.raises(InvalidArgument, match="nulls"):
            evaluator.eval(BATCH, pa.array([True, None, True, True]))
        with pytest.raises(InvalidArgument, match="entries"):
            evaluator.eval(BATCH, pa.array([True]))
        with pytest.raises(InvalidArgument, match="expects batches"):
            evaluator.eval(BATCH.select(["a"]))
        with pytest.raises(EvaluationError, match="frobnicate"):
            of.predicate_evaluator(BATCH.schema, Call("frobnicate", (A,)))
    with pytest.raises(InvalidArgument, match="not a predicate"):
        SparkExpressionHandler(connect_spark).predicate_evaluator(BATCH.schema, A)


def test_a_session_is_needed() -> None:
    with pytest.raises(InvalidArgument, match="spark must be a SparkSession, found an int"):
        SparkExpressionHandler(5)


# --- Columns inside of structs, maps, partition values ----------------------------------------------------------------

TEXTS = pa.map_(pa.string(), pa.string())
ADD = pa.struct(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("partitionValues", TEXTS),
        ("dataChange", pa.bool_()),
        ("at", pa.timestamp("ns")),
        ("tags", pa.struct([("Level", pa.int32()), ("level", pa.float64())])),
    ]
)
ACTIONS = pa.record_batch(
    {
        "add": pa.array(
            [
                {
                    "path": "a.parquet",
                    "size": 10,
                    "partitionValues": [("p1", "1"), ("p2", "x")],
                    "dataChange": True,
                    "at": 1,
                    "tags": {"Level": 1, "level": float("nan")},
                },
                {
                    "path": "é/b.parquet",
                    "size": -(2**63),
                    "partitionValues": [("p1", "2"), ("p1", "3"), ("p2", "")],
                    "dataChange": False,
                    "at": 2,
                    "tags": {"Level": None, "level": -0.0},
                },
                {"path": None, "size": None, "partitionValues": None, "dataChange": None, "at": None, "tags": None},
                None,
                {"path": "", "size": 0, "partitionValues": [], "dataChange": True, "at": -1, "tags": {"level": 2.5}},
            ],
            ADD,
        ),
        "top": pa.array([1, 2, 3, 4, None]),
    }
)

FIELDS = {
    ("add", "path"): pa.string(),
    ("add", "size"): pa.int64(),
    ("add", "dataChange"): pa.bool_(),
    ("add", "at"): pa.timestamp("ns"),
    ("add", "tags", "Level"): pa.int32(),
    ("add", "tags", "level"): pa.float64(),
    ("top",): pa.int64(),
    ("absent",): pa.int64(),
}
CONSTANTS: dict[pa.DataType, list[Any]] = {
    pa.string(): ["a.parquet", "é/b.parquet", "", None],
    pa.int64(): [10, 2, -(2**63), None],
    pa.bool_(): [True, False],
    pa.timestamp("ns"): [1, 2],
    pa.int32(): [1, 0],
    pa.float64(): [float("nan"), 0.0, 2.5],
}


def look_up(name: str) -> Call:
    maps = Column(("add", "partitionValues"), type=TEXTS)
    return Call("element_at", (maps, Literal(name, types.STRING)))


def test_evaluators_read_nested_columns_maps_and_partition_values(any_spark: Any) -> None:
    first = pa.array([True, False, False, False, False])
    untyped = Column(("add", "path"), None)
    p1 = Call("partition_value", (look_up("p1"), Literal("int", types.STRING)))
    asked = [
        (Call("=", (untyped, Literal("a.parquet", types.STRING))), first),
        (Call("=", (look_up("p1"), Literal("1", types.STRING))), first),
        (Call("=", (p1, Literal(1, pa.int32()))), first),
        # The last value of a repeated key counts.
        (Call("=", (p1, Literal(3, pa.int32()))), pa.array([False, True, False, False, False])),
    ]
    for handler in (SparkExpressionHandler(any_spark), ArrowExpressionHandler()):
        of: ExpressionHandler = handler
        for predicate, expected in asked:
            assert of.predicate_evaluator(ACTIONS.schema, predicate).eval(ACTIONS).equals(expected), predicate


def make_random_nested(choices: SeededChoices, depth: int = 2) -> Expr:
    """Return a predicate over columns inside of structs and values of maps, with any function that Arrow evaluates."""
    if depth and choices.flag():
        parts = (make_random_nested(choices, depth - 1), make_random_nested(choices, depth - 1))
        function = choices.one_of(["and", "or", "not"])
        return Call(function, parts[:1] if function == "not" else parts)
    kind = choices.one_of(["field", "field", "map", "partition", "text"])
    if kind == "field":
        path = choices.one_of(list(FIELDS))
        column = Column(path, type=FIELDS[path])
        if choices.flag(4):
            return Call(choices.one_of(["is_null", "is_not_null"]), (column,))
        items = [Literal(value, FIELDS[path]) for value in CONSTANTS[FIELDS[path]]]
        if choices.flag(4):
            return Call("in", (column, *items))
        function = choices.one_of(["=", "<>", "<", "<=", ">", ">=", "<=>"])
        return Call(function, (column, choices.one_of(items)))
    name = choices.one_of(["p1", "p2", "none"])
    if kind == "map":
        literal = Literal(choices.one_of(["1", "x", "", "3"]), types.STRING)
        return Call(choices.one_of(["=", "<", ">=", "<=>"]), (look_up(name), literal))
    if kind == "text":
        made = Call(choices.one_of(["upper", "lower"]), (look_up(name),))
        return Call("=", (made, Literal(choices.one_of(["X", "x", "1"]), types.STRING)))
    target, values = choices.one_of(
        [
            ("int", (pa.int32(), [1, 3])),
            ("bigint", (pa.int64(), [1, 2**63 - 1])),
            ("string", (pa.string(), ["1", "x"])),
            ("double", (pa.float64(), [1.0, 2.5])),
            ("boolean", (pa.bool_(), [True])),
            ("date", (pa.date32(), [0, 19_000])),
        ]
    )
    # Only the first partition column has numbers: the others fail on both.
    text = Call("partition_value", (look_up(name), Literal(target, types.STRING)))
    return Call(choices.one_of(["=", "<", "<=>"]), (text, Literal(choices.one_of(values[1]), values[0])))


def test_evaluators_have_the_results_of_arrow(connect_spark: Any) -> None:
    choices = SeededChoices(11)
    arrow, spark = ArrowExpressionHandler(), SparkExpressionHandler(connect_spark)
    selection = pa.array([True, True, True, False, True])
    answered = failed = 0
    for predicate in dict.fromkeys(make_random_nested(choices) for _ in range(40)):
        evaluator = spark.predicate_evaluator(ACTIONS.schema, predicate)
        try:
            expected = arrow.predicate_evaluator(ACTIONS.schema, predicate).eval(ACTIONS, selection)
        except EvaluationError:
            failed += 1
            with pytest.raises(EvaluationError):
                evaluator.eval(ACTIONS, selection)
            continue
        answered += 1
        assert evaluator.eval(ACTIONS, selection).equals(expected), predicate
    assert answered > 25
    assert failed > 0


def test_a_column_of_a_data_frame_reads_nested_fields(connect_spark: Any) -> None:
    table = pa.table({"c0": pa.array([{"path": "a", "n.1": 1}, {"path": "b", "n.1": None}, None])})
    frame = connect_spark.createDataFrame(table, to_spark_schema(table.schema))
    handler = SparkExpressionHandler(connect_spark)
    is_a = Call("=", (Column(("add", "path"), type=types.STRING), Literal("a", types.STRING)))
    is_one = Call("=", (Column(("add", "n.1"), type=types.LONG), Literal(1, types.LONG)))
    columns = [handler.compile_keep(each, {"add": "c0"}).alias(name) for each, name in ((is_a, "a"), (is_one, "b"))]
    assert frame.select(*columns).toArrow().to_pydict() == {"a": [True, False, True], "b": [True, True, True]}

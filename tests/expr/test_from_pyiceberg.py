import datetime
import uuid
from decimal import Decimal

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import tamis
from builders.values.nodes import call, number, text
from tamis import types
from tamis.errors import ExpressionError
from tamis.expr.foreign import remove_mark
from tamis.expr.interop.from_pyarrow import from_pyarrow
from tamis.expr.interop.from_pyiceberg import from_pyiceberg
from tamis.expr.nodes import FALSE, TRUE, Call, Literal, Name, fold, transform

iceberg = pytest.importorskip("pyiceberg.expressions")
from pyiceberg.expressions import literals  # noqa: E402 - only where pyiceberg is
from pyiceberg.expressions.visitors import bind  # noqa: E402
from pyiceberg.io.pyarrow import expression_to_pyarrow  # noqa: E402
from pyiceberg.schema import Schema  # noqa: E402
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType, StructType  # noqa: E402

A, S, X = Name(("a",)), Name(("s",)), Name(("x",))
NAN = Literal(float("nan"), types.DOUBLE)


def remove_marks(translated):
    """Return a translation without the marks of the library, whose meaning the tests of rows check."""
    return transform(translated, remove_mark)


LEAVES = [
    (iceberg.EqualTo("a", 1), call("=", A, number(1))),
    (iceberg.NotEqualTo("a", 1), call("<>", A, number(1))),
    (iceberg.LessThan("a", 1), call("<", A, number(1))),
    (iceberg.LessThanOrEqual("a", 1), call("<=", A, number(1))),
    (iceberg.GreaterThan("a", 1), call(">", A, number(1))),
    (iceberg.GreaterThanOrEqual("a", 1), call(">=", A, number(1))),
    (iceberg.In("a", [2, 1]), call("in", A, number(1), number(2))),
    (iceberg.NotIn("a", [2, 1]), call("not", call("in", A, number(1), number(2)))),
    (iceberg.In("a", [1]), call("=", A, number(1))),
    (iceberg.NotIn("a", [1]), call("<>", A, number(1))),
    (iceberg.In("a", []), FALSE),
    (iceberg.NotIn("a", []), TRUE),
    (iceberg.IsNull("a"), call("is_null", A)),
    (iceberg.NotNull("a"), call("is_not_null", A)),
    (iceberg.IsNaN("x"), call("=", X, NAN)),
    (iceberg.NotNaN("x"), call("<>", X, NAN)),
    (iceberg.StartsWith("s", "p"), call("startswith", S, text("p"))),
    (iceberg.NotStartsWith("s", "p"), call("not", call("startswith", S, text("p")))),
    (iceberg.AlwaysTrue(), TRUE),
    (iceberg.AlwaysFalse(), FALSE),
]


@pytest.mark.parametrize(("expression", "expected"), LEAVES, ids=[str(case[0])[:60] for case in LEAVES])
def test_each_predicate(expression, expected):
    assert remove_marks(from_pyiceberg(expression)) == expected


def test_and_or_not_keep_their_order():
    expression = iceberg.And(
        iceberg.Or(iceberg.EqualTo("a", 1), iceberg.EqualTo("a", 2)), iceberg.Not(iceberg.EqualTo("a", 3))
    )
    one, two, three = (call("=", A, number(value)) for value in (1, 2, 3))
    assert remove_marks(from_pyiceberg(expression)) == call("and", call("or", one, two), call("not", three))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, Literal(True, types.BOOLEAN)),
        (5, number(5)),
        (1.5, Literal(1.5, types.DOUBLE)),
        (literals.FloatLiteral(0.1), Literal(0.10000000149011612, pa.float32())),
        (Decimal("1.50"), Literal(Decimal("1.50"), pa.decimal128(3, 2))),
        ("2024-03-01", text("2024-03-01")),
        (datetime.date(1970, 1, 3), Literal(2, types.DATE)),
        (datetime.date(1969, 12, 31), Literal(-1, types.DATE)),
        (datetime.time(0, 0, 1), Literal(1_000_000, pa.time64("us"))),
        (datetime.datetime(1970, 1, 1, 0, 0, 1, 5), Literal(1_000_005, types.TIMESTAMP_NTZ)),
        (b"\x00\xff", Literal(b"\x00\xff", types.BINARY)),
        (literals.FixedLiteral(b"ab"), Literal(b"ab", types.BINARY)),
        (uuid.UUID(int=7), Literal(uuid.UUID(int=7).bytes, types.BINARY)),
    ],
)
def test_literals_keep_their_types_and_physical_values(value, expected):
    translated = remove_marks(from_pyiceberg(iceberg.EqualTo("a", value)))
    assert translated == call("=", A, expected)
    assert translated.args[1].type == expected.type


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a", ("a",)),
        ("a.b", ("a", "b")),
        ("a.b.c", ("a", "b", "c")),
        (".a", (".a",)),
        ("a..b", ("a..b",)),
        ("a.", ("a.",)),
    ],
)
def test_dots_separate_nested_fields(name, path):
    assert remove_marks(from_pyiceberg(iceberg.IsNull(name))) == call("is_null", Name(path))


def test_the_items_of_in_are_sorted():
    words = [f"word{number}" for number in range(50)]
    translated = remove_marks(from_pyiceberg(iceberg.In("s", words)))
    assert [member.value for member in translated.args[1:]] == sorted(words)


def test_X11_a_deep_expression():
    expression = iceberg.EqualTo("a", 0)
    for value in range(1, 2000):
        expression = iceberg.Or(expression, iceberg.EqualTo("a", value))
    depth = fold(remove_marks(from_pyiceberg(expression)), lambda node, depths: 1 + max(depths, default=0))
    assert depth == 1999 + 2


SCHEMA = Schema(
    NestedField(1, "a", LongType(), required=False),
    NestedField(2, "s", StringType(), required=False),
    NestedField(3, "x", DoubleType(), required=False),
    NestedField(4, "day", DateType(), required=False),
    NestedField(5, "n", StructType(NestedField(6, "k", LongType(), required=False)), required=False),
)


@pytest.mark.parametrize("expression", [bind(SCHEMA, iceberg.EqualTo("a", 1), True), "a = 1", None])
def test_what_is_not_an_unbound_expression_is_a_clear_error(expression):
    with pytest.raises(ExpressionError, match="pass it unbound"):
        remove_marks(from_pyiceberg(expression))


# --- What a scan of pyiceberg returns ---------------------------------------------------------------------------------

ROWS = pa.table(
    {
        "a": pa.array([1, 2, 3, None]),
        "s": pa.array(["pa", "b", "p", None]),
        "x": pa.array([1.0, 2.0, 3.0, None]),
        "day": pa.array([datetime.date(2024, 3, day) for day in (1, 2, 3)] + [None]),
        "n": pa.array([{"k": 1}, {"k": 2}, {"k": None}, None]),
    }
)
SCANNED = [
    iceberg.EqualTo("a", 1),
    iceberg.NotEqualTo("a", 1),
    iceberg.LessThan("a", 2),
    iceberg.GreaterThanOrEqual("day", datetime.date(2024, 3, 2)),
    iceberg.In("a", [1, 2]),
    iceberg.NotIn("a", [1, 2]),
    iceberg.In("s", ["pa", "b"]),
    iceberg.NotIn("s", ["pa", "b"]),
    iceberg.IsNull("n.k"),
    iceberg.NotNull("a"),
    iceberg.IsNaN("x"),
    iceberg.NotNaN("x"),
    iceberg.StartsWith("s", "p"),
    iceberg.NotStartsWith("s", "p"),
    iceberg.LessThan("n.k", 2),
]
SCANNED += [iceberg.Not(leaf) for leaf in SCANNED]
SCANNED += [
    iceberg.And(iceberg.NotIn("a", [1, 2]), iceberg.Or(iceberg.NotStartsWith("s", "p"), iceberg.IsNull("s"))),
    iceberg.Not(iceberg.Or(iceberg.In("a", [1, 2]), iceberg.EqualTo("x", 3.0))),
]


def normalise_items(expr):
    """Sort the items of IN, which pyiceberg passes to pyarrow as a set, and leave out what binding adds."""

    def rewrite(node):
        match node:
            case Call("in", (value, *members)):
                return Call("in", (value, *sorted(members, key=lambda member: member.value)))
            case Call("and", (Call("is_not_null"), Call("in") as member)):
                # Binding adds the test for NULL.
                return member
            case Call("not", (Call("=", (value, Literal() as constant)),)) if constant == NAN:
                return Call("<>", (value, constant))
            case _:
                return node

    return transform(expr, rewrite)


@pytest.mark.parametrize("expression", SCANNED, ids=str)
def test_N7_null_is_treated_as_in_a_pyiceberg_scan(expression):
    scan_filter = expression_to_pyarrow(bind(SCHEMA, expression, True), SCHEMA)
    assert normalise_items(remove_marks(from_pyiceberg(expression))) == normalise_items(
        remove_marks(from_pyarrow(scan_filter))
    )


@pytest.mark.parametrize(
    ("expression", "kept"),
    [
        (iceberg.NotEqualTo("a", 1), [2, 3]),
        (iceberg.NotIn("a", [1, 2]), [3, None]),
        (iceberg.Not(iceberg.In("a", [1, 2])), [3, None]),
        (iceberg.NotStartsWith("s", "p"), [2]),
        (iceberg.NotNaN("x"), [1, 2, 3]),
    ],
    ids=str,
)
def test_a_pyiceberg_scan_follows_the_documented_table(expression, kept):
    scan_filter = expression_to_pyarrow(bind(SCHEMA, expression, True), SCHEMA)
    assert ds.dataset(ROWS).to_table(filter=scan_filter)["a"].to_pylist() == kept


# --- What depends on the types of columns -----------------------------------------------------------------------------

NUMBERS = pa.table(
    {
        "x": pa.array([1.0, float("nan"), None, 100.0, float("inf"), -0.0]),
        "y": pa.array([0.1, float("nan"), 0.5, None, 16777216.0, 0.0], pa.float32()),
        "n": pa.array([1, 2, None, 127, -128, 0], pa.int32()),
        "m": pa.array([Decimal("0.10"), Decimal("0.12"), Decimal("0.13"), None, Decimal("1.00"), Decimal("0.00")]),
        "day": pa.array([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), None, None, None, None]),
        "row": range(6),
    }
)
TYPES = {"x": "double", "y": "float", "n": "int", "m": "decimal(3, 2)", "day": "date", "row": "long"}
TYPED = Schema(*(NestedField(field_id, name, TYPES[name]) for field_id, name in enumerate(TYPES, 1)))


@pytest.mark.parametrize("is_negated", [False, True])
@pytest.mark.parametrize(
    "expression",
    [
        iceberg.GreaterThan("x", 50),
        iceberg.GreaterThanOrEqual("x", 100),
        iceberg.LessThan("x", 50),
        iceberg.EqualTo("x", 100),
        iceberg.NotEqualTo("x", 100),
        iceberg.IsNaN("x"),
        iceberg.NotNaN("x"),
        iceberg.IsNaN("n"),
        iceberg.NotNaN("n"),
        iceberg.EqualTo("y", 0.1),
        iceberg.GreaterThan("y", 0.1),
        iceberg.EqualTo("y", "0.1"),
        iceberg.EqualTo("y", 16777217),
        iceberg.In("y", [0.1, 0.5]),
        iceberg.In("y", [0.1, 0.1000000001]),
        iceberg.NotIn("y", [0.1, 0.1000000001]),
        iceberg.NotIn("y", [0.1, 0.5]),
        iceberg.LessThan("y", 1e300),
        iceberg.EqualTo("y", -1e300),
        iceberg.LessThan("n", 2**40),
        iceberg.GreaterThan("n", 2**40),
        iceberg.NotEqualTo("n", -(2**40)),
        iceberg.In("n", [1, 2, 2**40]),
        iceberg.NotIn("n", [2**40, 2**41]),
        iceberg.EqualTo("n", "1"),
        iceberg.EqualTo("m", 0.1),
        iceberg.EqualTo("m", 0.125),
        iceberg.GreaterThan("m", 0.125),
        iceberg.EqualTo("m", 1),
        iceberg.In("m", [0.1, "0.10"]),
        iceberg.EqualTo("day", datetime.datetime(2020, 1, 1, 12)),
        iceberg.LessThan("day", datetime.datetime(2020, 1, 1, 12)),
        iceberg.GreaterThan("day", 18262),
        iceberg.LessThan("day", 2**40),
    ],
    ids=str,
)
def test_rows_are_those_of_a_pyiceberg_scan(tmp_path, expression, is_negated):
    expression = iceberg.Not(expression) if is_negated else expression
    pq.write_table(NUMBERS, tmp_path / "f.parquet", row_group_size=1)
    scan_filter = expression_to_pyarrow(bind(TYPED, expression, True), TYPED)
    expected = ds.dataset(NUMBERS).to_table(filter=scan_filter)["row"].to_pylist()
    assert tamis.open(tmp_path / "f.parquet").scan(expression).to_arrow()["row"].to_pylist() == expected

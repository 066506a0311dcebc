import datetime
import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tamis
from builders.values.nodes import call, number, text
from tamis import types
from tamis.errors import ExpressionError
from tamis.expr.foreign import remove_mark
from tamis.expr.interop import from_pyarrow as pyarrow_layout
from tamis.expr.interop.from_pyarrow import from_pyarrow, read_layout, read_metadata_pairs
from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Literal, Name, fold, transform
from tamis.scan.reading.residual import Residual
from tamis.skipping.predicate import make_predicate

A, B, S = Name(("a",)), Name(("b",)), Name(("s",))
a, b, s = pc.field("a"), pc.field("b"), pc.field("s")
NAN = Literal(float("nan"), types.DOUBLE)


def remove_marks(translated):
    """Return a translation without the marks of the library, whose meaning the tests of rows check."""
    return transform(translated, remove_mark)


ONE_AND_NULL = pa.array([1, None])

TRANSLATIONS = [
    (a == 1, call("=", A, number(1))),
    (a != 1, call("<>", A, number(1))),
    (a < 1, call("<", A, number(1))),
    (a <= 1, call("<=", A, number(1))),
    (a > 1, call(">", A, number(1))),
    (a >= 1, call(">=", A, number(1))),
    (pc.equal(pc.scalar(1), a), call("=", number(1), A)),
    (a == b, call("=", A, B)),
    (a == pa.scalar(None, pa.int64()), call("=", A, Literal(None, types.LONG))),
    (a == pa.scalar(1, pa.int8()), call("=", A, Literal(1, pa.int8()))),
    (a == datetime.date(1970, 1, 3), call("=", A, Literal(2, types.DATE))),
    ((a > 1) & (b > 2), call("and", call(">", A, number(1)), call(">", B, number(2)))),
    ((a > 1) | (b > 2), call("or", call(">", A, number(1)), call(">", B, number(2)))),
    (~(a > 1), call("not", call(">", A, number(1)))),
    (pc.and_not_kleene(a, b), call("and", A, call("not", B))),
    (pc.and_(a, b), call("case", call("or", call("is_null", A), call("is_null", B)), NULL, call("and", A, B))),
    (pc.or_(a, b), call("case", call("or", call("is_null", A), call("is_null", B)), NULL, call("or", A, B))),
    (pc.xor(a, b), call("<>", A, B)),
    (a.is_null(), call("is_null", A)),
    (pc.Expression._call("is_null", [a]), call("is_null", A)),
    (a.is_null(nan_is_null=True), call("or", call("is_null", A), call("=", A, NAN))),
    (a.is_valid(), call("is_not_null", A)),
    (pc.is_nan(a), call("=", A, NAN)),
    (a.isin([1, 2]), call("and", call("is_not_null", A), call("in", A, number(1), number(2)))),
    (a.isin([1, None]), call("or", call("is_null", A), call("in", A, number(1)))),
    (a.isin(pa.array([None], pa.int64())), call("is_null", A)),
    (a.isin(pa.array([], pa.int64())), FALSE),
    (a.isin(pa.array(["x"]).dictionary_encode()), call("and", call("is_not_null", A), call("in", A, text("x")))),
    (pc.is_in(a, ONE_AND_NULL, skip_nulls=True), call("and", call("is_not_null", A), call("in", A, number(1)))),
    (pc.if_else(a, b, 1), call("case", call("is_null", A), NULL, A, B, number(1))),
    (pc.coalesce(a, b, 1), call("coalesce", A, B, number(1))),
    (pc.starts_with(s, "Ab"), call("startswith", S, text("Ab"))),
    (pc.starts_with(s, "ÄB", ignore_case=True), call("startswith", call("lower", S), text("äb"))),
    (pc.ends_with(s, "Ab"), call("endswith", S, text("Ab"))),
    (pc.match_substring(s, "a%"), call("contains", S, text("a%"))),
    (pc.match_like(s, r"a\%b_%"), call("like", S, text(r"a\%b_%"))),
    (pc.match_like(s, "A%", ignore_case=True), call("like", call("lower", S), text("a%"))),
    (pc.utf8_lower(s) == "x", call("=", call("lower", S), text("x"))),
    (a.cast(pa.int16()), call("arrow_cast", A, text("smallint"))),
    (a.cast(pa.decimal128(10, 2)), call("arrow_cast", A, text("decimal(10,2)"))),
    (a.cast(pa.large_string()), call("arrow_cast", A, text("string"))),
    (a + b, call("+", A, B)),
    (pc.add(a, b), call("+", A, B)),
    (a - 1, call("-", A, number(1))),
    (a * 2, call("*", A, number(2))),
    (a / 2.0, call("/", A, Literal(2.0, types.DOUBLE))),
    (a.cast(pa.float64()) / b, call("/", call("arrow_cast", A, text("double")), B)),
    (pc.divide(a, 2.0), call("/", A, Literal(2.0, types.DOUBLE))),
    (pc.negate(a), call("negate", A)),
    (pc.abs_checked(a), call("abs", A)),
    (pc.scalar(True), TRUE),
    (pc.field("a", "b") == 1, call("=", Name(("a", "b")), number(1))),
    (pc.field("a.b") == 1, call("=", Name(("a.b",)), number(1))),
    (pc.struct_field(a, ["b", "c"]), Name(("a", "b", "c"))),
    (pc.field("it's\n'end: `x`\x00") == 1, call("=", Name(("it's\n'end: `x`\x00",)), number(1))),
    (pc.field("") == "", call("=", Name(("",)), text(""))),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), TRANSLATIONS, ids=[str(case[0])[:60] for case in TRANSLATIONS])
def test_each_function(expression, expected):
    assert remove_marks(from_pyarrow(expression)) == expected


def test_literals_keep_their_types():
    translated = remove_marks(from_pyarrow(a == pa.scalar(1, pa.int8())))
    assert translated.args[1].type == pa.int8()


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            pc.strptime(s, format="%Y", unit="s") == a,
            "'strptime' has no counterpart here: write the filter as SQL text",
        ),
        (pc.iso_year(a) == 2024, "'iso_year' has no counterpart"),
        (pc.field(0) == 1, r"name columns with pc.field\(name\)"),
        (a.cast(pa.int8(), safe=False), "unsafe cast to int8"),
        (a.cast(pa.list_(pa.int8())), "cast to list"),
        (a.cast(pa.timestamp("us", "Europe/Paris")), "cast to timestamp"),
        (a / 2, "division truncates integers"),
        (pc.divide(pc.scalar(1.0), a), "returns infinity"),
        (pc.divide(a, 0.0), "returns infinity"),
        (pc.match_like(s, r"a\b%"), "backslash that is not before"),
        (pc.match_like(s, "a\\\\%"), "backslash that is not before"),
        (pc.struct_field(a, [0]), "not a plain path"),
        (pc.struct_field(pc.if_else(a, a, a), ["b"]), "not a plain path"),
    ],
)
def test_unsupported_expressions_are_errors_with_a_hint(expression, message):
    with pytest.raises(ExpressionError, match=message) as caught:
        remove_marks(from_pyarrow(expression))
    assert "SQL text" in str(caught.value)


def test_X11_a_deep_expression():
    expression = a == 0
    for value in range(1, 2000):
        expression = ~(expression | (a == value))
    translated = remove_marks(from_pyarrow(expression))
    depth = fold(translated, lambda node, depths: 1 + max(depths, default=0))
    assert depth == 2 * 1999 + 2


def test_X11_a_hundred_thousand_values():
    translated = remove_marks(from_pyarrow(a.isin(pa.array(range(100_000)))))
    assert len(translated.args[1].args) == 100_001


# --- The serialisation, which pyarrow does not guarantee ------------------------------------------------------------


def test_metadata_pairs_keep_repeated_keys_in_order():
    assert [key for key, _ in read_layout((a == 1) & (b == 2)).pairs] == [
        "call",
        *["call", "field_ref", "literal", "end"] * 2,
        "end",
    ]


def test_metadata_pairs_of_an_ordinary_schema():
    assert read_metadata_pairs(pa.schema([], metadata={"k": "v", "": "\x00é"})) == [
        (b"k", b"v"),
        (b"", b"\x00\xc3\xa9"),
    ]
    assert read_metadata_pairs(pa.schema([])) == []


class Odd:
    """A stand-in for an expression of a pyarrow version with another serialisation."""

    def __init__(self, reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


def serialise(rows=1):
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([pa.array([1] * rows)], names=[""])
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write(batch)
    return sink.getvalue()


@pytest.mark.parametrize(
    "reduced",
    [
        (None, ("text",)),
        (None, (pa.py_buffer(b"no arrow"), 1)),
        (None, (pa.py_buffer(b"no arrow"),)),
        (None, (serialise(rows=2),)),
        (None, (serialise(),)),
    ],
)
def test_another_serialisation_is_a_clear_error(reduced):
    with pytest.raises(ExpressionError, match=r"unsupported format.*SQL text"):
        remove_marks(from_pyarrow(Odd(reduced)))


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [("literal", "0"), ("literal", "0")],
        [("literal", "1")],
        [("literal", "-1")],
        [("literal", "x")],
        [("parameter", "0")],
        [("call", "equal"), ("field_ref", "a"), ("literal", "0")],
        [("call", "equal"), ("field_ref", "a"), ("end", "equal")],
        [("call", "equal"), ("field_ref", "a"), ("literal", "0"), ("end", "less")],
        [("field_ref", "a"), ("end", "equal")],
        [("call", "is_null"), ("field_ref", "a"), ("options", "0"), ("end", "is_null")],
        [("call", "is_in"), ("field_ref", "a"), ("end", "is_in")],
        [("nested_field_ref", "0")],
        [("nested_field_ref", "2"), ("field_ref", "a")],
        [("nested_field_ref", "2"), ("field_ref", "a"), ("literal", "0")],
    ],
)
def test_another_layout_is_a_clear_error(monkeypatch, pairs):
    encoded = [(key.encode(), value.encode()) for key, value in pairs]
    monkeypatch.setattr(pyarrow_layout, "read_metadata_pairs", lambda schema: encoded)
    with pytest.raises(ExpressionError, match=r"unsupported format.*SQL text"):
        remove_marks(from_pyarrow(a == 1))


# --- Semantics --------------------------------------------------------------------------------------------------------


def make_like_regex(pattern):
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    return "".join({"%": ".*", "_": "."}.get(part, re.escape(part[-1])) for part in parts)


def evaluate_plainly(node, row):
    """Evaluate an expression for one row in plain Python; None is NULL."""
    functions = {
        "=": lambda x, y: x == y,
        "<>": lambda x, y: x != y,
        "<": lambda x, y: x < y,
        "<=": lambda x, y: x <= y,
        ">": lambda x, y: x > y,
        ">=": lambda x, y: x >= y,
        "+": lambda x, y: x + y,
        "-": lambda x, y: x - y,
        "*": lambda x, y: x * y,
        "/": lambda x, y: x / y,
        "negate": lambda x: -x,
        "abs": abs,
        "not": lambda x: not x,
        "lower": str.lower,
        "upper": str.upper,
        "length": len,
        "startswith": str.startswith,
        "endswith": str.endswith,
        "contains": lambda x, y: y in x,
        "like": lambda x, pattern: re.fullmatch(make_like_regex(pattern), x, re.DOTALL) is not None,
        "arrow_cast": lambda x, name: {"double": float, "string": str, "bigint": int}[name](x),
    }

    def combine(node, args):
        match node:
            case Name(path=(name,)):
                return row[name]
            case Literal(value=value):
                return value
            case Call("and"):
                return False if False in args else (None if None in args else True)
            case Call("or"):
                return True if True in args else (None if None in args else False)
            case Call("is_null"):
                return args[0] is None
            case Call("is_not_null"):
                return args[0] is not None
            case Call("coalesce"):
                return next((arg for arg in args if arg is not None), None)
            case Call("in"):
                value, *members = args
                if value is None:
                    return None
                return value in members or (None if None in members else False)
            case Call("case"):
                *branches, otherwise = args
                for condition, value in zip(branches[::2], branches[1::2], strict=True):
                    if condition is True:
                        return value
                return otherwise
            case Call(name):
                return None if None in args else functions[name](*args)

    return fold(node, combine, lambda each: each.args if isinstance(each, Call) else ())


numbers = st.one_of(
    st.sampled_from([a, b]),
    st.integers(-3, 3).map(pc.scalar),
    st.just(pc.scalar(pa.scalar(None, pa.int64()))),
)
number_terms = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.builds(lambda x, y: x + y, inner, inner),
        st.builds(lambda x, y: x - y, inner, inner),
        st.builds(lambda x, y: pc.multiply(x, y), inner, inner),
        st.builds(pc.negate, inner),
        st.builds(pc.abs, inner),
        st.builds(lambda x, y: pc.coalesce(x, y), inner, inner),
    ),
    max_leaves=3,
)
patterns = st.sampled_from(["", "a", "A", "ab", "b", "%"])
text_terms = st.sampled_from([s, pc.utf8_lower(s), pc.utf8_upper(s)])
sets = st.lists(st.none() | st.integers(-2, 2), max_size=3).map(lambda items: pa.array(items, pa.int64()))
comparisons = st.sampled_from([pc.equal, pc.not_equal, pc.less, pc.less_equal, pc.greater, pc.greater_equal])
text_matches = st.sampled_from([pc.starts_with, pc.ends_with, pc.match_substring])
predicates = st.recursive(
    st.one_of(
        st.builds(lambda compare, x, y: compare(x, y), comparisons, number_terms, number_terms),
        st.builds(lambda compare, x, y: compare(x, pc.scalar(y)), comparisons, text_terms, patterns),
        st.builds(lambda x: x.is_null(), number_terms),
        st.builds(lambda x: x.is_valid(), text_terms),
        st.builds(lambda x, items, skip: pc.is_in(x, items, skip_nulls=skip), number_terms, sets, st.booleans()),
        st.builds(
            lambda test, x, pattern, ignore: test(x, pattern=pattern, ignore_case=ignore),
            text_matches, text_terms, patterns, st.booleans(),
        ),
        st.builds(
            lambda x, pattern, ignore: pc.match_like(x, pattern=pattern, ignore_case=ignore),
            text_terms, st.sampled_from(["", "a%", "%b", "%b%", "a_", r"\%", r"%\_%", "%", "_%"]), st.booleans(),
        ),
        st.sampled_from([pc.scalar(True), pc.scalar(False), pc.scalar(pa.scalar(None, pa.bool_()))]),
        st.builds(lambda x: x.cast(pa.float64()) / 2.0 > 0.5, number_terms),
    ),
    lambda inner: st.one_of(
        st.builds(lambda x, y: x & y, inner, inner),
        st.builds(lambda x, y: x | y, inner, inner),
        st.builds(lambda x, y: pc.Expression._call("and", [x, y]), inner, inner),
        st.builds(lambda x, y: pc.Expression._call("or", [x, y]), inner, inner),
        st.builds(lambda x, y: pc.and_not_kleene(x, y), inner, inner),
        st.builds(lambda x, y: pc.xor(x, y), inner, inner),
        st.builds(lambda x: ~x, inner),
        st.builds(lambda x, y, z: pc.if_else(x, y, z), inner, inner, inner),
    ),
    max_leaves=5,
)  # fmt: skip
rows = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(-3, 3),
        "b": st.none() | st.integers(-3, 3),
        "s": st.none() | st.sampled_from(["", "a", "AB", "ab", "aB", "b\n", "%", "x_", "ab%"]),
    }
)
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", pa.string())])


@given(predicates, st.lists(rows, min_size=1, max_size=6))
def test_the_translation_is_true_false_and_null_where_pyarrow_is(expression, data):
    table = pa.Table.from_pylist(data, SCHEMA)
    expected = ds.dataset(table).to_table(columns={"kept": expression})["kept"].to_pylist()
    translated = remove_marks(from_pyarrow(expression))
    assert [evaluate_plainly(translated, row) for row in data] == expected


def make_is_in(behaviour, items):
    """Return an `is_in` with a null matching behaviour that pyarrow's Python functions do not offer."""
    return [
        ("call", "is_in"),
        ("field_ref", "a"),
        ("options", "0"),
        ("end", "is_in"),
    ], pa.record_batch(
        [pa.array([{"value_set": items, "null_matching_behavior": behaviour}], IS_IN_OPTIONS)], names=[""]
    )


IS_IN_OPTIONS = pa.struct([("value_set", pa.list_(pa.int64())), ("null_matching_behavior", pa.uint32())])


@pytest.mark.parametrize(
    ("behaviour", "items", "expected"),
    [
        # for the rows 1, 5 and NULL
        (0, [1, None], [True, False, True]),
        (0, [1], [True, False, False]),
        (0, [], [False, False, False]),
        (0, [None], [False, False, True]),
        (1, [1, None], [True, False, False]),
        (1, [None], [False, False, False]),
        (2, [1, None], [True, False, None]),
        (2, [1], [True, False, None]),
        (2, [None], [False, False, None]),
        (3, [1, None], [True, None, None]),
        (3, [1], [True, False, None]),
        (3, [None], [None, None, None]),
        (3, [], [False, False, None]),
    ],
)
def test_N3_every_null_matching_behaviour_of_is_in(monkeypatch, behaviour, items, expected):
    pairs, batch = make_is_in(behaviour, items)
    layout = pyarrow_layout.Layout(tuple(pairs), batch)
    monkeypatch.setattr("tamis.expr.interop.from_pyarrow.read_layout", lambda expression: layout)
    translated = remove_marks(from_pyarrow(a == 1))
    assert [evaluate_plainly(translated, {"a": value}) for value in (1, 5, None)] == expected


def test_an_unknown_null_matching_behaviour_of_is_in_is_an_error(monkeypatch):
    pairs, batch = make_is_in(4, [1])
    layout = pyarrow_layout.Layout(tuple(pairs), batch)
    monkeypatch.setattr("tamis.expr.interop.from_pyarrow.read_layout", lambda expression: layout)
    with pytest.raises(ExpressionError, match="null_matching_behavior 4"):
        remove_marks(from_pyarrow(a == 1))


CAST_ROWS = pa.table(
    {
        "ts": [datetime.datetime(2024, 1, 1)],
        "at": pa.array([datetime.datetime(2024, 1, 1)], pa.timestamp("us", "UTC")),
        "day": [datetime.date(2024, 1, 1)],
        "n": pa.array([3], pa.int64()),
        "x": [1.5],
        "s": ["5"],
    }
)


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        (pc.field("ts").cast(pa.int64()) > 0, "ts, a timestamp_ntz, to bigint"),
        (pc.field("at").cast(pa.int64()) > 0, "at, a timestamp, to bigint"),
        (pc.field("day").cast(pa.int32()) > 0, "day, a date, to int"),
        (pc.field("n").cast(pa.timestamp("us")) == datetime.datetime(1970, 1, 1), "n, a bigint, to timestamp_ntz"),
        (pc.field("ts").cast(pa.string()) == "2024-01-01 00:00:00.000000", "ts, a timestamp_ntz, to string"),
        (pc.field("x").cast(pa.string()) == "1.5", "x, a double, to string"),
    ],
)
def test_casts_with_another_result_than_in_sql_are_refused(expression: pc.Expression, shown: str) -> None:
    with pytest.raises(ExpressionError, match=f"pyarrow's cast of {shown} has another result than SQL's CAST"):
        make_predicate(expression, CAST_ROWS.schema, "t")


@pytest.mark.parametrize(
    "expression",
    [
        pc.field("day").cast(pa.string()) == "2024-01-01",
        pc.field("ts").cast(pa.date32()) == datetime.date(2024, 1, 1),
        pc.field("n").cast(pa.string()) == "3",
        pc.field("s").cast(pa.int64()) == 5,
        pc.field("n").cast(pa.float64()) / 2 == 1.5,
    ],
)
def test_casts_with_the_result_of_sql_compute_what_pyarrow_computes(expression: pc.Expression) -> None:
    predicate = make_predicate(expression, CAST_ROWS.schema, "t")
    assert (
        Residual([predicate.expr]).filter(CAST_ROWS.to_batches()[0]).num_rows
        == CAST_ROWS.filter(expression).num_rows
        == 1
    )


# --- What depends on the types of columns -----------------------------------------------------------------------------

NUMBERS = pa.table(
    {
        "x": pa.array([1.0, float("nan"), None, 100.0, float("inf"), -0.0]),
        "y": pa.array([0.1, float("nan"), float("nan"), None, 0.5, 0.0], pa.float32()),
        "n": pa.array([1, 2, None, 127, -128, 0], pa.int8()),
        "m": pa.array([Decimal("0.10"), Decimal("0.12"), Decimal("0.13"), None, Decimal("1.00"), Decimal("0.00")]),
        "day": pa.array([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), None, None, None, None]),
        "row": range(6),
    }
)
x, y, n, m, day = (pc.field(name) for name in NUMBERS.column_names[:-1])


@pytest.mark.parametrize("is_negated", [False, True])
@pytest.mark.parametrize(
    "expression",
    [
        x > 50,
        x >= 100,
        x < 50,
        x <= 100,
        x == 100,
        x != 100,
        pc.less(pc.scalar(50), x),
        x == float("nan"),
        x != float("nan"),
        x >= float("nan"),
        x < float("nan"),
        x == y,
        x != y,
        x > y,
        x <= y,
        n >= y,
        n < y,
        y > 0.1,
        y == 0.1,
        y.isin([0.1]),
        x.isin([float("nan"), 1.0]),
        y * 3 > 0.3,
        y * 0.5 == 0.05,
        y / 3.0 == 0.1,
        pc.negate(y) < -0.1,
        pc.abs(y) >= 0.1,
        pc.if_else(n > 0, y, 0.1) == 0.1,
        pc.coalesce(y, 0.5) * 0.5 >= 0.05,
        n > 300,
        n == 1.5,
        n.isin([1, 300]),
        m == 0.1,
        m > 0.125,
        m.isin([0.125]),
        day.isin([datetime.datetime(2020, 1, 1, 12)]),
        day < datetime.datetime(2020, 1, 1, 12),
    ],
    ids=str,
)
def test_rows_are_those_of_pyarrow(tmp_path, expression, is_negated):
    expression = ~expression if is_negated else expression
    pq.write_table(NUMBERS, tmp_path / "f.parquet", row_group_size=1)
    expected = ds.dataset(NUMBERS).to_table(filter=expression)["row"].to_pylist()
    assert tamis.open(tmp_path / "f.parquet").scan(expression).to_arrow()["row"].to_pylist() == expected


def test_a_comparison_that_excludes_nan_prunes_without_a_count_of_nan(tmp_path):
    pq.write_table(pa.table({"x": [float(value) for value in range(100)]}), tmp_path / "f.parquet", row_group_size=10)
    plan = tamis.open(tmp_path / "f.parquet").scan(x > 94).plan(depth="row_groups")
    level = next(each for each in plan.report.to_dict()["levels"] if each["level"] == "row_groups")
    assert (level["kept"], level["total"]) == (1, 10)
    assert [each["predicate"] for each in level["by_predicate"]] == ["x > 94"]


def test_a_column_of_unknown_type_may_be_nan():
    schema = pa.schema([("x", pa.float64()), ("day", pa.int64())])
    neither = ~(x > 3) & ~(x < 5)
    assert make_predicate(neither, schema, "t", ["day"]).on_partitions != FALSE


@pytest.mark.parametrize("part", [pc.year, pc.month, pc.day, pc.quarter, pc.day_of_year, pc.hour, pc.minute, pc.second])
def test_parts_of_timestamps_are_those_of_pyarrow(part, tmp_path):
    times = pa.array([-62_135_596_800_000_000, -1, 0, None, 1_709_251_199_999_999], pa.timestamp("us", "UTC"))
    table = pa.table({"t": times, "row": range(5)})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=1)
    for value in part(times).drop_null().unique():
        expected = table.filter(part(pc.field("t")) == value)
        found = tamis.open(tmp_path / "f.parquet").scan(part(pc.field("t")) == value).to_arrow()
        assert found["row"].to_pylist() == expected["row"].to_pylist()


def test_the_length_in_bytes_is_that_of_pyarrow(tmp_path):
    table = pa.table({"s": ["", "ab", "ä", None, "日"], "row": range(5)})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=2)
    for test in (pc.binary_length(s) == 2, pc.binary_length(s) * 2 > 5):
        found = tamis.open(tmp_path / "f.parquet").scan(test).to_arrow()
        assert found["row"].to_pylist() == table.filter(test)["row"].to_pylist()

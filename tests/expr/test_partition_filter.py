import datetime
import json
import math
import pickle
import pickletools
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.errors import FilterFormatError, InvalidArgument, TamisError, TypeMismatch
from tamis.expr.builder import Expression, col
from tamis.expr.nodes import Call
from tamis.expr.wire.partition_filter import MAX_BYTES, MAX_DEPTH, PartitionFilter

F = PartitionFilter
TEXT_MAP = pa.map_(pa.string(), pa.string())

# --- The wire format --------------------------------------------------------------------------------------------------

WIRE = {
    '{"op":"eq","column":"year","value":"2024"}': F.eq("year", "2024"),
    '{"op":"neq","column":"year","value":"2024"}': F.neq("year", "2024"),
    '{"op":"in","column":"region","values":["eu","us"]}': F.in_("region", ["eu", "us"]),
    '{"op":"in","column":"region","values":[]}': F.in_("region", []),
    '{"op":"gt","column":"year","value":"2022"}': F.gt("year", "2022"),
    '{"op":"gt","column":"year","value":"2022","type":"long"}': F.gt("year", "2022").with_type("long"),
    '{"op":"gte","column":"year","value":"2022","type":"double"}': F.gte("year", "2022").with_type("double"),
    '{"op":"lt","column":"year","value":"2022","type":"long"}': F.lt("year", "2022").with_type("long"),
    '{"op":"lte","column":"year","value":"2022"}': F.lte("year", "2022"),
    '{"op":"is_null","column":"day"}': F.is_null("day"),
    '{"op":"is_not_null","column":"day"}': F.is_not_null("day"),
    '{"op":"and","filters":[{"op":"is_null","column":"a"},{"op":"eq","column":"b","value":""}]}': F.and_(
        F.is_null("a"), F.eq("b", "")
    ),
    '{"op":"or","filters":[{"op":"is_null","column":"a"}]}': F.or_(F.is_null("a")),
    '{"op":"and","filters":[]}': F.and_(),
    '{"op":"or","filters":[]}': F.or_(),
    '{"op":"not","filter":{"op":"is_null","column":"a"}}': F.not_(F.is_null("a")),
    '{"op":"eq","column":"a \\"b\\" \\\\","value":"é\\n語😀"}': F.eq('a "b" \\', "é\n語😀"),
}


@pytest.mark.parametrize("text", WIRE)
def test_to_json_is_exactly_the_wire_format(text):
    assert WIRE[text].to_json() == text


@pytest.mark.parametrize("text", WIRE)
def test_from_json_reads_text_and_bytes_in_any_layout(text):
    assert F.from_json(text) == WIRE[text]
    assert F.from_json(text.encode()) == WIRE[text]
    loose = json.dumps(dict(reversed(json.loads(text).items())), indent=2)
    assert F.from_json(loose) == WIRE[text]


columns = st.sampled_from(["a", "b", "c"])
texts = st.sampled_from(["", "0", "1", "-1", "+1", "01", "1.0", "2", "10", "1e1", "NaN", "-inf", "x", "é", "9" * 19])
leaves = st.one_of(
    st.builds(F.eq, columns, texts),
    st.builds(F.neq, columns, texts),
    st.builds(F.in_, columns, st.lists(texts, max_size=3)),
    st.builds(F.is_null, columns),
    st.builds(F.is_not_null, columns),
    st.builds(
        lambda make, column, text, kind: make(column, text).with_type(kind) if kind else make(column, text),
        st.sampled_from([F.gt, F.gte, F.lt, F.lte]),
        columns,
        texts,
        st.sampled_from([None, "long", "double"]),
    ),
)
filters = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(F.and_, st.lists(inner, max_size=3)),
        st.builds(F.or_, st.lists(inner, max_size=3)),
        st.builds(F.not_, inner),
    ),
    max_leaves=8,
)


@given(filters)
def test_json_and_pickle_round_trip(partition_filter):
    assert F.from_json(partition_filter.to_json()) == partition_filter
    assert (
        json.dumps(json.loads(partition_filter.to_json()), separators=(",", ":"), ensure_ascii=False)
        == partition_filter.to_json()
    )
    copy = pickle.loads(pickle.dumps(partition_filter))
    assert copy == partition_filter
    assert hash(copy) == hash(partition_filter)


@given(filters, filters)
def test_equality_is_that_of_the_json(left, right):
    assert (left == right) == (left.to_json() == right.to_json())


def test_it_is_a_value():
    assert F.eq("a", 1) == F.eq("a", "1")
    assert F.eq("a", 1) != F.neq("a", 1)
    assert F.gt("a", 1) != F.gt("a", 1).with_type("long")
    assert F.eq("a", 1) != "a"
    assert len({F.eq("a", 1), F.eq("a", 1), F.is_null("a")}) == 2
    with pytest.raises(AttributeError):
        F.eq("a", 1).column = "b"


def test_X9_a_pickled_filter_holds_only_its_json():
    partition_filter = F.and_(F.eq("a", 1), F.not_(F.in_("b", "x", "y")))
    payload = pickle.dumps(partition_filter)
    strings = [argument for opcode, argument, _ in pickletools.genops(payload) if isinstance(argument, str)]
    assert partition_filter.to_json() in strings
    # Unpickling calls only one function of this package.
    assert [name for name in strings if name.startswith(("tamis", "builtins", "os", "posix"))] == [
        "builtins",
        "tamis.expr.wire.partition_filter",
    ]


def test_the_deepest_filter_is_compared_hashed_pickled_renamed_and_evaluated():
    partition_filter = F.eq("a", "1")
    for _ in range(MAX_DEPTH - 1):
        partition_filter = F.not_(partition_filter)
    assert pickle.loads(pickle.dumps(partition_filter)) == partition_filter
    assert partition_filter.columns == ("a",)
    assert partition_filter.with_columns({"a": "b"}).columns == ("b",)
    assert partition_filter.evaluate(pa.array([[("a", "1")], []], TEXT_MAP)).to_pylist() == [False, True]


def test_X8_the_json_limit_counts_the_brackets_of_nested_lists_too():
    partition_filter = F.eq("a", "1")
    for _ in range((MAX_DEPTH - 1) // 2):
        partition_filter = F.and_(partition_filter)
    assert F.from_json(partition_filter.to_json()) == partition_filter
    with pytest.raises(FilterFormatError, match=f"deeper than {MAX_DEPTH}"):
        F.and_(partition_filter)


def test_a_long_chain_of_operators_does_not_nest():
    partition_filter = F.eq("a", 0)
    for number in range(1, 2000):
        partition_filter = partition_filter | F.eq("a", number)
    assert len(partition_filter.filters) == 2000
    assert F.from_json(partition_filter.to_json()) == partition_filter


# --- Errors of the wire format ----------------------------------------------------------------------------------------

NESTED = '{"op":"and","filters":[{"op":"is_null","column":"a"},%s]}'
BAD = [
    # what is wrong, the JSON, its path, a part of the message
    ("empty", "", "$", "not JSON: Expecting value at character 1"),
    ("cut off", '{"op":"eq",', "$", "at character 12"),
    ("trailing text", '{"op":"is_null","column":"a"} x', "$", "Extra data at character 31"),
    ("control character", '{"op":"is_null","column":"a\n"}', "$", "Invalid control character"),
    ("byte order mark", "\ufeff{}", "$", "not JSON"),
    ("not UTF-8", b'{"op":"\xff"}', "$", "not UTF-8: byte 8"),
    ("null", "null", "$", "expected a filter object, found null"),
    ("array", "[]", "$", "found an array"),
    ("string", '"eq"', "$", "found a string"),
    ("number", "5", "$", "found a number"),
    ("boolean", "true", "$", "found a boolean"),
    ("not a text", {"op": "eq"}, "$", "found dict"),
    ("no op", "{}", "$.op", "missing key 'op'"),
    ("op of another type", '{"op":1}', "$.op", "expected a string, found a number"),
    ("unknown op", '{"op":"like","column":"a","value":"x"}', "$.op", "unknown op 'like'; ops are eq, neq, in"),
    ("op in capitals", '{"op":"EQ","column":"a","value":"x"}', "$.op", "unknown op 'EQ'"),
    ("no column", '{"op":"eq","value":"x"}', "$.column", "missing key 'column' of 'eq'"),
    ("empty column", '{"op":"eq","column":"","value":"x"}', "$.column", "expected the name of a column"),
    ("column of another type", '{"op":"is_null","column":["a"]}', "$.column", "found an array"),
    ("no value", '{"op":"gt","column":"a"}', "$.value", "missing key 'value' of 'gt'"),
    ("value is a number", '{"op":"eq","column":"a","value":2024}', "$.value", "expected a string, found a number"),
    ("value is a long number", '{"op":"eq","column":"a","value":%s}' % ("9" * 5000), "$.value", "found a number"),
    ("value is NaN", '{"op":"eq","column":"a","value":NaN}', "$.value", "found a number"),
    ("value is null", '{"op":"eq","column":"a","value":null}', "$.value", "use is_null to test for null"),
    ("value is an object", '{"op":"eq","column":"a","value":{}}', "$.value", "found an object"),
    ("value is half a pair", '{"op":"eq","column":"a","value":"\\ud800"}', "$.value", "surrogate"),
    ("no values", '{"op":"in","column":"a"}', "$.values", "missing key 'values'"),
    ("values no list", '{"op":"in","column":"a","values":"x"}', "$.values", "expected an array, found a string"),
    ("one value wrong", '{"op":"in","column":"a","values":["x",true]}', "$.values[1]", "found a boolean"),
    ("unknown type", '{"op":"lt","column":"a","value":"1","type":"int"}', "$.type", "'int'; types are long, double"),
    ("type null", '{"op":"lt","column":"a","value":"1","type":null}', "$.type", "found null"),
    ("type of eq", '{"op":"eq","column":"a","value":"1","type":"long"}', "$.type", "unknown key 'type' of 'eq'"),
    ("unknown key", '{"op":"is_null","column":"a","nulls":"first"}', "$.nulls", "unknown key 'nulls' of 'is_null'"),
    ("unknown odd key", '{"op":"is_null","column":"a","a b":1}', "$['a b']", "unknown key 'a b'"),
    ("no filters", '{"op":"and"}', "$.filters", "missing key 'filters' of 'and'"),
    ("filters no list", '{"op":"or","filters":{}}', "$.filters", "expected an array, found an object"),
    ("no filter", '{"op":"not"}', "$.filter", "missing key 'filter' of 'not'"),
    ("filter no object", '{"op":"not","filter":[]}', "$.filter", "expected a filter object, found an array"),
    ("inner value", NESTED % '{"op":"eq","column":"a","value":5}', "$.filters[1].value", "found a number"),
    ("inner no object", NESTED % "7", "$.filters[1]", "expected a filter object"),
    (
        "deep inside",
        NESTED % '{"op":"not","filter":{"op":"or","filters":[{"op":"in","column":"a","values":[1]}]}}',
        "$.filters[1].filter.filters[0].values[0]",
        "found a number",
    ),
    ("X8 repeated key", '{"op":"eq","column":"a","value":"1","value":"2"}', "$.value", "key 'value' occurs twice"),
    ("X8 repeated inner key", NESTED % '{"op":"eq","op":"neq"}', "$.filters[1].op", "key 'op' occurs twice"),
    ("X8 repeated odd key", '{"op":"is_null","x":1,"x":2}', "$.x", "occurs twice"),
    ("X8 too deep", '{"op":"not","filter":' * 100_000, "$", "brackets at character 10501"),
    ("X8 too deep lists", "[" * 1_000_000, "$", "deeper than 500 brackets at character 501"),
    ("X8 too long", " " * (MAX_BYTES + 1), "$", "longer than"),
    ("X8 too many bytes", b" " * (MAX_BYTES + 1), "$", "longer than"),
    ("X8 quotes without end", '"' + '\\"' * 1_000_000 + "[" * 1000, "$", "Unterminated string"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "path", "part"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_X8_bad_json_is_an_error_with_its_path(text, path, part):
    with pytest.raises(FilterFormatError) as caught:
        F.from_json(text)
    assert caught.value.path == path
    assert str(caught.value).endswith(f"(at {path})")
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_X8_brackets_inside_texts_do_not_count_as_depth():
    partition_filter = F.eq("[" * 2000, '{"' * 2000)
    assert F.from_json(partition_filter.to_json()) == partition_filter


def test_X8_many_brackets_side_by_side_are_not_deep():
    partition_filter = F.or_([F.in_("a", [str(number)]) for number in range(5000)])
    assert F.from_json(partition_filter.to_json()) == partition_filter


def test_X8_deep_json_is_a_clear_error_also_when_the_stack_is_nearly_used_up():
    text = '{"op":"not","filter":' * (MAX_DEPTH - 1) + '{"op":"is_null","column":"a"}' + "}" * (MAX_DEPTH - 1)

    def descend(levels):
        return F.from_json(text) if levels == 0 else descend(levels - 1)

    assert F.from_json(text).columns == ("a",)
    with pytest.raises(FilterFormatError, match="too deeply for the remaining stack"):
        descend(600)


def test_X11_a_hundred_thousand_values():
    partition_filter = F.in_("a", range(100_000))
    assert F.from_json(partition_filter.to_json()) == partition_filter
    values = pa.array([[("a", "99999")], [("a", "100000")]], TEXT_MAP)
    assert partition_filter.evaluate(values).to_pylist() == [True, False]


# --- Factories --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        ("", ""),
        (True, "true"),
        (np.bool_(False), "false"),
        (7, "7"),
        (np.int16(-7), "-7"),
        (1.0, "1.0"),
        (0.1, "0.1"),
        (-0.0, "-0.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1.5e-4, "1.5E-4"),
        (np.float32(0.1), "0.1"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (Decimal("1.50"), "1.50"),
        (Decimal("1E+3"), "1000"),
        (datetime.date(2024, 3, 1), "2024-03-01"),
        (datetime.datetime(2024, 3, 1, 10), "2024-03-01 10:00:00"),
        (datetime.datetime(2024, 3, 1, 10, 0, 0, 500_000), "2024-03-01 10:00:00.5"),
        (
            datetime.datetime(2024, 3, 1, 0, 30, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
            "2024-02-29 23:30:00",
        ),
    ],
)
def test_values_are_formatted_as_in_partition_directories(value, text):
    assert F.eq("a", value).value == text
    assert F.in_("a", [value]).values == (text,)


def test_in_takes_one_list_or_many_values():
    assert F.in_("a", ["x", "y"]) == F.in_("a", "x", "y") == F.in_("a", ("x", "y")) == F.in_("a", iter(["x", "y"]))
    assert F.in_("a", {"y", "x"}) == F.in_("a", "x", "y")
    assert F.in_("a", "xy").values == ("xy",)


def test_and_or_take_one_list_or_many_filters():
    one, other = F.eq("a", 1), F.eq("b", 2)
    assert F.and_([one, other]) == F.and_(one, other) == one & other
    assert F.or_([one, other]) == F.or_(one, other) == one | other
    assert ~one == F.not_(one)


def test_columns_are_distinct_and_in_order():
    partition_filter = F.or_(F.eq("b", 1), F.not_(F.and_(F.is_null("a"), F.gt("b", 2))), F.in_("c", []))
    assert partition_filter.columns == ("b", "a", "c")
    assert partition_filter.column_names() == ["b", "a", "c"]
    assert F.and_().columns == ()


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: F.eq("a", None), r"None: use is_null\(\)"),
        (lambda: F.in_("a", ["x", None]), r"None: use is_null\(\)"),
        (lambda: F.eq("a", b"x"), "bytes"),
        (lambda: F.eq("a", object()), "cannot format"),
        (lambda: F.eq("a", "\ud800"), "not valid Unicode"),
        (lambda: F.eq("", "x"), "needs the name of a column"),
        (lambda: F.is_null(None), "needs the name of a column, found None"),
        (lambda: F.and_(F.eq("a", 1), "b = 2"), "combines partition filters, found str"),
        (lambda: F.not_(None), "combines partition filters, found NoneType"),
        (lambda: F.gt("a", 1).with_type("int"), "no partition filter type 'int'. Types: long, double"),
        (lambda: F.eq("a", 1).with_type("long"), "only gt, gte, lt, lte compare as a type, not 'eq'"),
        (lambda: F.in_("a", [1]).with_type("long"), "not 'in'"),
        (lambda: F.is_null("a").with_type("long"), "not 'is_null'"),
        (lambda: F.and_(F.gt("a", 1)).with_type("long"), "not 'and'"),
        (lambda: F.is_null("a").value, "'is_null' has no single value"),
        (lambda: F("like", "a", ("x",)), "no partition filter operation 'like'"),
        (lambda: F("eq", "a"), "wrong number"),
        (lambda: F("not"), "wrong number"),
        (lambda: bool(F.eq("a", 1)), "neither true nor false"),
        (lambda: F.eq("a", 1) and F.eq("b", 2), "combine filters with &, | and ~"),
    ],
)
def test_a_wrong_call_is_a_clear_error(make, part):
    with pytest.raises(InvalidArgument, match=part):
        make()


def test_combining_with_something_else_is_a_type_error():
    with pytest.raises(TypeError):
        F.eq("a", 1) & 5
    with pytest.raises(TypeError, match=r"pass both in a list, scan\(\[filter, 'id < 5'\]\)"):
        F.eq("a", 1) & "id < 5"
    with pytest.raises(TypeError, match=r"pass both in a list, scan\(\[\[filter\], \['id < 5'\]\]\)"):
        F.eq("a", 1) | "id < 5"
    with pytest.raises(TypeError, match="not combined with SQL text"):
        "id < 5" & F.eq("a", 1)


def test_combined_with_an_expression_it_is_an_expression():
    filter, condition = F.eq("a", 1), col("id") > 80
    for combined, function, args in [
        (filter & condition, "and", (filter.to_expr(), condition.node)),
        (condition & filter, "and", (condition.node, filter.to_expr())),
        (filter | condition, "or", (filter.to_expr(), condition.node)),
        (condition | filter, "or", (condition.node, filter.to_expr())),
    ]:
        assert isinstance(combined, Expression)
        assert combined.node == Call(function, args)
    assert (~(filter | condition) & F.is_null("b")).node.args[1] == F.is_null("b").to_expr()
    assert isinstance(filter & F.is_null("b"), F)


# --- Evaluation -------------------------------------------------------------------------------------------------------

# Each filter on column "k", and whether it keeps: a value that matches, one that does not, a missing column, a null.
CASES = [
    (F.eq("k", "5"), "5", "6", False),
    (F.eq("k", ""), "", "x", False),
    (F.neq("k", "5"), "6", "5", True),
    (F.in_("k", ["4", "5"]), "5", "6", False),
    (F.gt("k", "5"), "6", "5", False),
    (F.gt("k", "5"), "50", "10", False),
    (F.gte("k", "5"), "5", "49", False),
    (F.lt("k", "5"), "10", "5", False),
    (F.lte("k", "5"), "5", "50", False),
    (F.gt("k", "5").with_type("long"), "10", "5", False),
    (F.gte("k", "5").with_type("long"), "05", "-10", False),
    (F.lt("k", "5").with_type("long"), "+4", "10", False),
    (F.lte("k", "5").with_type("long"), "5", "6", False),
    (F.gt("k", "5").with_type("double"), "1e1", "4.9", False),
    (F.gte("k", "5.0").with_type("double"), "5", "4", False),
    (F.lt("k", "5").with_type("double"), "-1e300", "5.0", False),
    (F.lte("k", "5").with_type("double"), "5.", "5.0001", False),
    # The value does not parse, so this comparison is of texts.
    (F.gt("k", "5").with_type("long"), "x", "1.5", False),
    (F.gt("k", "5").with_type("double"), "x", "", False),
    # The bound does not parse, so all comparisons are of texts.
    (F.gt("k", "five").with_type("long"), "six", "10", False),
    (F.gt("k", "5.5").with_type("long"), "6", "10", False),
    # Beyond 64 bits an integer is a text.
    (F.lt("k", "9").with_type("long"), "10000000000000000000", "9223372036854775807", False),
    (F.lt("k", "-1").with_type("long"), "-9223372036854775808", "9223372036854775807", False),
    # NaN is larger than every number and equal to itself.
    (F.gt("k", "5").with_type("double"), "NaN", "-inf", False),
    (F.gte("k", "NaN").with_type("double"), "nan", "Infinity", False),
    (F.lt("k", "NaN").with_type("double"), "Infinity", "NaN", False),
    (F.lte("k", "NaN").with_type("double"), "NaN", "zzz", False),
    # -0.0 equals 0.0.
    (F.gte("k", "0.0").with_type("double"), "-0.0", "-1", False),
    (F.is_null("k"), None, "", True),
    (F.is_not_null("k"), "", None, False),
    (F.not_(F.is_null("k")), "x", None, False),
    (F.not_(F.neq("k", "5")), "5", "6", False),
    (F.not_(F.eq("k", "5")), "6", "5", True),
    (F.not_(F.gt("k", "5")), "5", "6", True),
    (F.and_(F.gt("k", "1"), F.lt("k", "3")), "2", "3", False),
    (F.or_(F.eq("k", "1"), F.is_null("k")), "1", "2", True),
]  # fmt: skip


STRUCT = pa.struct([("k", pa.string()), ("other", pa.string())])


def make_map(values):
    return pa.array([[("other", "1")] if value == "missing" else [("k", value)] for value in values], TEXT_MAP)


def make_struct(values):
    return pa.array([{"k": None if value == "missing" else value, "other": "1"} for value in values], STRUCT)


def make_batch(values):
    return pa.RecordBatch.from_struct_array(make_struct(values))


def make_table(values):
    return pa.Table.from_batches([make_batch(values[:1]), make_batch(values[1:])])


def make_chunked_map(values):
    return pa.chunked_array([make_map(values[:2]), make_map(values[2:])], TEXT_MAP)


@pytest.mark.parametrize("layout", [make_map, make_struct, make_batch, make_table, make_chunked_map])
@pytest.mark.parametrize(("partition_filter", "match", "no_match", "keeps_missing"), CASES)
def test_each_operation_on_match_no_match_missing_and_null(layout, partition_filter, match, no_match, keeps_missing):
    rows = [match, no_match, "missing", None]
    kept = partition_filter.evaluate(layout(rows))
    assert isinstance(kept, pa.BooleanArray)
    assert kept.to_pylist() == [True, False, keeps_missing, keeps_missing]


@pytest.mark.parametrize(
    ("partition_filter", "kept"),
    [
        (F.eq("gone", "1"), False),
        (F.neq("gone", "1"), True),
        (F.in_("gone", ["1"]), False),
        (F.gt("gone", "1"), False),
        (F.gte("gone", "1"), False),
        (F.lt("gone", "1").with_type("long"), False),
        (F.lte("gone", "1").with_type("double"), False),
        (F.is_null("gone"), True),
        (F.is_not_null("gone"), False),
        (F.not_(F.lt("gone", "1")), True),
    ],
)
@pytest.mark.parametrize("layout", [make_map, make_struct, make_batch, make_table, make_chunked_map])
def test_a_column_that_no_row_has(layout, partition_filter, kept):
    assert partition_filter.evaluate(layout(["1", None, "2"])).to_pylist() == [kept] * 3


def test_an_empty_and_keeps_all_and_an_empty_or_or_in_keeps_none():
    rows = make_map(["1", None])
    assert F.and_().evaluate(rows).to_pylist() == [True, True]
    assert F.or_().evaluate(rows).to_pylist() == [False, False]
    assert F.in_("k", []).evaluate(rows).to_pylist() == [False, False]
    assert F.not_(F.or_()).evaluate(rows).to_pylist() == [True, True]


def test_a_null_map_and_a_null_struct_have_no_values():
    maps = pa.array([None, [("k", "1")]], TEXT_MAP)
    structs = pa.StructArray.from_arrays([pa.array(["1", "1"])], ["k"], mask=pa.array([True, False]))
    for rows in (maps, structs):
        assert F.eq("k", "1").evaluate(rows).to_pylist() == [False, True]
        assert F.is_null("k").evaluate(rows).to_pylist() == [True, False]
        assert F.neq("k", "2").evaluate(rows).to_pylist() == [True, True]


def test_the_last_of_repeated_keys_counts():
    rows = pa.array([[("k", "1"), ("k", "2")]], TEXT_MAP)
    assert F.eq("k", "2").evaluate(rows).to_pylist() == [True]
    assert F.eq("k", "1").evaluate(rows).to_pylist() == [False]


def test_column_names_are_exact():
    assert F.eq("K", "1").evaluate(make_map(["1"])).to_pylist() == [False]


def test_texts_compare_by_code_points():
    # UTF-16 would put the emoji, a surrogate pair, before U+FFFF.
    assert F.gt("k", "\uffff").evaluate(make_map(["😀", "é", "z"])).to_pylist() == [True, False, False]
    assert F.gt("k", "z").evaluate(make_map(["é", "Z", "za"])).to_pylist() == [True, False, True]


@pytest.mark.parametrize(
    "values", [pa.array([], TEXT_MAP), pa.chunked_array([], TEXT_MAP), pa.table({"k": pa.array([], pa.string())})]
)
def test_no_rows(values):
    assert F.neq("k", "1").evaluate(values).to_pylist() == []


def test_a_slice_is_evaluated_over_its_own_rows():
    rows = make_map(["1", "2", "1", None])
    assert F.eq("k", "1").evaluate(rows.slice(1, 2)).to_pylist() == [False, True]


def test_a_table_without_columns_keeps_its_rows():
    rows = pa.table({"k": ["1", "2"]}).select([])
    assert F.neq("k", "1").evaluate(rows).to_pylist() == [True, True]


@pytest.mark.parametrize(
    ("values", "partition_filter", "kept"),
    [
        (pa.array([5, 10, None], pa.int8()), F.eq("k", 5), [True, False, False]),
        (pa.array([5, 10, None], pa.uint64()), F.gt("k", 5), [False, False, False]),
        (pa.array([5, 10, None], pa.int32()), F.gt("k", 5).with_type("long"), [False, True, False]),
        (pa.array([2**64 - 1, 1], pa.uint64()), F.eq("k", 2**64 - 1), [True, False]),
        (pa.array([True, False, None]), F.eq("k", True), [True, False, False]),
        (pa.array([1.0, 1e10, math.nan, None]), F.eq("k", 1e10), [False, True, False, False]),
        (pa.array([1.0, 1e10, math.nan, None]), F.eq("k", math.nan), [False, False, True, False]),
        (pa.array([1.0, 1e10, math.nan, None]), F.gt("k", 2).with_type("double"), [False, True, True, False]),
        (pa.array([0.1, 0.2], pa.float32()), F.eq("k", 0.1), [True, False]),
        (pa.array([0.5, 2.0], pa.float16()), F.eq("k", 0.5), [True, False]),
        (pa.array([Decimal("1.50"), None]), F.eq("k", Decimal("1.50")), [True, False]),
        (pa.array([Decimal("0E-10"), None], pa.decimal128(20, 10)), F.eq("k", "0.0000000000"), [True, False]),
        (pa.array([datetime.date(2024, 3, 1), None]), F.lte("k", datetime.date(2024, 3, 1)), [True, False]),
        (pa.array([datetime.date(2024, 3, 1)], pa.date64()), F.eq("k", "2024-03-01"), [True]),
        (pa.array([datetime.datetime(2024, 3, 1, 10)]), F.eq("k", "2024-03-01 10:00:00"), [True]),
        (
            pa.array([datetime.datetime(1969, 3, 1, 10, 0, 0, 500)], pa.timestamp("ns", "Asia/Tokyo")),
            F.eq("k", datetime.datetime(1969, 3, 1, 10, 0, 0, 500, tzinfo=datetime.UTC)),
            [True],
        ),
        (pa.array([100_000_000, 0], pa.timestamp("ms")), F.eq("k", "1970-01-02 03:46:40"), [True, False]),
        (pa.array(["x", "y"], pa.large_string()), F.in_("k", ["x"]), [True, False]),
        (pa.array(["10", "9", None], pa.large_string()), F.gt("k", 9).with_type("long"), [True, False, False]),
        (pa.array(["+10", "9", "x"], pa.large_string()), F.gt("k", 9).with_type("long"), [True, False, True]),
        (pa.array(["10", "9"], pa.string_view()), F.gt("k", 9).with_type("double"), [True, False]),
        (pa.array(["x", "y", None]).dictionary_encode(), F.neq("k", "x"), [False, True, True]),
        (pa.array([5, 10, None]).dictionary_encode(), F.lt("k", 10).with_type("long"), [True, False, False]),
        (pa.nulls(2), F.is_null("k"), [True, True]),
    ],
)
def test_typed_values_compare_as_the_texts_of_partition_directories(values, partition_filter, kept):
    struct = pa.StructArray.from_arrays([values], ["k"])
    assert partition_filter.evaluate(struct).to_pylist() == kept
    assert partition_filter.evaluate(pa.table({"k": values})).to_pylist() == kept


@pytest.mark.parametrize("values", [pa.array([[1]]), pa.array([{"x": 1}]), pa.array([datetime.time(1)])])
def test_values_of_an_unsupported_type_are_an_error_that_names_the_column(values):
    with pytest.raises(TypeMismatch, match="'k'"):
        F.eq("k", 1).evaluate(pa.table({"k": values}))


@pytest.mark.parametrize("values", [pa.array(["x"]), pa.chunked_array([["x"]]), [{"k": "x"}], None])
def test_values_that_are_not_partition_values_are_an_error(values):
    with pytest.raises(TamisError, match="a map, a struct, a record batch or a table"):
        F.eq("k", "x").evaluate(values)


def parse_plainly(text, kind):
    """Parse what `long` and `double` accept, in plain Python."""
    if not text.isascii() or text.strip() != text or "_" in text:
        return None
    try:
        number = int(text) if kind == "long" else float(text)
    except ValueError:
        return None
    return number if kind == "double" or -(2**63) <= number < 2**63 else None


def make_ordering_key(number):
    return (1, 0) if number != number else (0, number)


def is_kept(partition_filter, row):
    """Evaluate a filter for one row, as simply as possible."""
    match partition_filter.op:
        case "and":
            return all(is_kept(inner, row) for inner in partition_filter.filters)
        case "or":
            return any(is_kept(inner, row) for inner in partition_filter.filters)
        case "not":
            return not is_kept(partition_filter.filters[0], row)
    value = row.get(partition_filter.column)
    if value is None:
        return partition_filter.op in ("neq", "is_null")
    match partition_filter.op:
        case "is_null":
            return False
        case "is_not_null":
            return True
        case "eq" | "in":
            return value in partition_filter.values
        case "neq":
            return value != partition_filter.value
    left, right = value, partition_filter.value
    if partition_filter.type and None not in (
        numbers := [parse_plainly(text, partition_filter.type) for text in (left, right)]
    ):
        left, right = (make_ordering_key(number) for number in numbers)
    return {"gt": left > right, "gte": left >= right, "lt": left < right, "lte": left <= right}[partition_filter.op]


@given(filters, st.lists(st.dictionaries(columns, st.none() | texts, max_size=3), max_size=6))
def test_evaluation_equals_the_naive_semantics(partition_filter, rows):
    expected = [is_kept(partition_filter, row) for row in rows]
    assert partition_filter.evaluate(pa.array([list(row.items()) for row in rows], TEXT_MAP)).to_pylist() == expected
    struct = pa.array(rows, pa.struct([(name, pa.string()) for name in "abc"]))
    assert partition_filter.evaluate(struct).to_pylist() == expected

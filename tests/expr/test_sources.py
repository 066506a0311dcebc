import datetime
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import tamis
from tamis import types
from tamis.errors import InvalidArgument, ParseError
from tamis.expr.bind import bind
from tamis.expr.builder import col
from tamis.expr.interop.from_any import to_expr
from tamis.expr.nodes import Call, Literal, Name, and_, or_, walk
from tamis.expr.sql.parse import parse_sql
from tamis.expr.sql.printer import to_display_sql
from tamis.expr.wire.partition_filter import PartitionFilter

A_GREATER_5 = Call(">", (Name(("a",)), Literal(5, types.LONG)))
B_GREATER_5 = Call(">", (Name(("b",)), Literal(5, types.LONG)))


def test_no_filter():
    assert to_expr(None) is None
    assert to_expr([]) is None
    assert to_expr([None, ()]) is None


def test_sql_text():
    translated = to_expr("a > 5")
    assert isinstance(translated, Call)
    assert (translated.function, translated.args[0], translated.args[1].value) == (">", Name(("a",)), 5)


def test_invalid_sql_text_raises_the_parse_error():
    with pytest.raises(ParseError):
        to_expr("a >")


def test_a_builder_expression():
    translated = to_expr(col("a") > 5)
    assert isinstance(translated, Call)
    assert (translated.function, translated.args[0], translated.args[1].value) == (">", Name(("a",)), 5)


@pytest.mark.parametrize("node", [A_GREATER_5, Name(("a",)), Literal(True, types.BOOLEAN)])
def test_a_node_is_itself(node):
    assert to_expr(node) is node


def test_a_partition_filter_is_an_expression_over_the_texts_of_partition_values():
    made = PartitionFilter.eq("a", 1)
    assert to_expr(made) == to_expr([made]) == made.to_expr()
    text = Call("partition_text", (Literal("a", types.STRING),))
    compared = Call("<=>", (text, Literal("1", types.STRING)))
    assert made.to_expr() == Call("partition_filter", (compared, Literal(made.to_json(), types.STRING)))
    assert to_display_sql(made.to_expr()) == 'partition filter {"op":"eq","column":"a","value":"1"}'


NUMBERS = pa.schema([("a", pa.int64()), ("b", pa.int64())])


def test_a_pyarrow_expression():
    assert bind(to_expr(pc.field("a") > 5), NUMBERS) == bind(A_GREATER_5, NUMBERS)


def test_a_pyiceberg_expression():
    iceberg = pytest.importorskip("pyiceberg.expressions")
    assert bind(to_expr(iceberg.GreaterThan("a", 5)), NUMBERS) == bind(A_GREATER_5, NUMBERS)
    assert to_expr(iceberg.AlwaysTrue()) == Literal(True, types.BOOLEAN)


def test_a_list_is_the_and_of_its_items():
    found = to_expr([A_GREATER_5, pc.field("b") > 5])
    assert bind(found, NUMBERS) == bind(Call("and", (A_GREATER_5, B_GREATER_5)), NUMBERS)
    assert to_expr((A_GREATER_5, None)) == A_GREATER_5


@pytest.mark.parametrize(
    ("where", "sql"),
    [
        ([["a = 1"], ["a = 2"]], "a = 1 OR a = 2"),
        ([["a = 1", None], ["a = 2", "b = 3"]], "a = 1 OR (a = 2 AND b = 3)"),
        ([[col("a") == 1], [col("a") == 2, "b = 3"]], "a = 1 OR (a = 2 AND b = 3)"),
        ([[("a", "=", 1)], ["a = 2", pc.field("b") == 3]], "a = 1 OR (a = 2 AND b = 3)"),
        ([("a = 1",), ("a = 2",)], "a = 1 OR a = 2"),
        ((["a = 1"], ["a = 2"]), "a = 1 OR a = 2"),
        ([["a = 1", "b = 3"]], "a = 1 AND b = 3"),
    ],
)
def test_a_list_of_lists_is_the_or_of_the_lists(where, sql):
    assert bind(to_expr(where), NUMBERS) == bind(parse_sql(sql), NUMBERS)


def test_a_list_of_lists_of_partition_filters_is_their_or():
    one, other, third = PartitionFilter.eq("a", 1), PartitionFilter.is_null("b"), PartitionFilter.eq("c", 2)
    both = PartitionFilter.and_(other, third)
    assert to_expr([[one], [other, third]]) == PartitionFilter.or_(one, both).to_expr()
    assert to_expr([[one], [A_GREATER_5, other]]) == or_(one.to_expr(), and_(A_GREATER_5, other.to_expr()))


def test_a_scan_with_a_list_of_lists_returns_the_rows_of_any(tmp_path):
    pq.write_table(pa.table({"i": [1, 2, 3]}), tmp_path / "f.parquet")
    table = tamis.open(tmp_path / "f.parquet")
    for where in ([["i = 1"], ["i = 2"]], [[col("i") == 1], [col("i") == 2]], [[("i", "=", 1)], [("i", "=", 2)]]):
        assert table.scan(where).to_arrow()["i"].to_pylist() == [1, 2]
        assert table.scan(where).count() == 2


@pytest.mark.parametrize(
    ("where", "sql"),
    [
        (("id", "=", 5), "id = 5"),
        (("id", "==", 5), "id = 5"),
        (("id", "!=", 5), "id <> 5"),
        ([("id", "<", 5)], "id < 5"),
        ([("id", ">=", 5), ("place.city", "<=", "x")], "id >= 5 AND place.city <= 'x'"),
        ([("day", ">", datetime.date(2024, 3, 1))], "day > DATE '2024-03-01'"),
        ([("id", "in", [5, 7])], "id IN (5, 7)"),
        ([("id", "NOT  IN", {5})], "id NOT IN (5) OR id IS NULL"),
        ([("id", "in", [5, None])], "id IN (5) OR id IS NULL"),
        ([("id", "not in", [5, None])], "id NOT IN (5) AND id IS NOT NULL"),
        ([("id", "in", [])], "FALSE"),
        ([(("a", "b.c"), "=", 5)], "a.`b.c` = 5"),
        ([(col("a") + 1, ">", 5)], "a + 1 > 5"),
        ([[("a", "=", 1)], [("a", "=", 2), ("b", "=", 3)]], "a = 1 OR (a = 2 AND b = 3)"),
        ([[("a", "=", 1), ("b", "=", 3)]], "a = 1 AND b = 3"),
        ([("a", "=", 1), "b = 3 OR c", col("d") > 5], "a = 1 AND (b = 3 OR c) AND d > 5"),
        (("a", "flag", "b"), "a AND flag AND b"),
    ],
)
def test_tuple_conditions_have_the_semantics_of_pyarrow(where, sql):
    assert to_expr(where) == parse_sql(sql)


def test_tuple_conditions_match_the_same_rows_as_pyarrow(tmp_path):
    rows = pa.table({"id": [1, 2, 3, None, 5], "s": ["a", "b", None, "d", "e"]})
    pq.write_table(rows, tmp_path / "f.parquet", row_group_size=2)
    table = tamis.open(tmp_path / "f.parquet")
    for where in (
        [("id", ">", 1), ("s", "!=", "b")],
        [[("id", "=", 1)], [("id", ">", 2), ("s", "in", ["e", "x"])]],
        [("id", "not in", [2, 5])],
        [("id", "in", [2, None])],
        [("id", "not in", [2, None])],
        [("s", "<=", "b"), ("id", "!=", 1)],
    ):
        found = table.scan(where).to_arrow()
        assert found.to_pylist() == pq.read_table(tmp_path / "f.parquet", filters=where).to_pylist()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (("id", "=", None), r"\('id', '=', None\) is never TRUE: .*'id IS NULL'"),
        ([("id", "in", "eu")], r"needs a list of values after 'in', as in \('id', 'in', \['eu'\]\)"),
        ([("id", "in", 5)], "needs a list of values"),
        ([("id", "~", 5)], "conditions have no operator '~'. Operators: = "),
        ([("id", "like", "a%")], "conditions have no operator 'like'.*LIKE 'a%'"),
        ([["id", "=", 5]], r"a condition is a tuple of three, as in \('id', '=', 5\)"),
        ([("id", "=")], r"a condition is a tuple of three, as in \('id', '=', '…'\)"),
        ([[("a", "=", 1)], "b = 2"], "mixes lists.*col"),
        ([[("a", "=", 1)], ("b", "=", 2)], "mixes lists"),
        ([["a = 1"], []], "mixes lists"),
        (["a = 1", ["b = 2"]], "mixes lists"),
        ([[["a = 1"]]], "lists inside of lists of lists"),
    ],
)
def test_an_invalid_condition_is_an_error_with_a_hint(where, message):
    with pytest.raises(InvalidArgument, match=message):
        to_expr(where)


def test_the_clock_is_read_once():
    before = datetime.datetime.now(datetime.UTC)
    found = to_expr(["a < now()", "b < current_timestamp AND c < now() - INTERVAL 1 DAY", "d = current_date()"])
    after = datetime.datetime.now(datetime.UTC)
    timestamps = {node for node in walk(found) if isinstance(node, Literal) and node.type == types.TIMESTAMP}
    (timestamp,) = timestamps
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert before <= epoch + datetime.timedelta(microseconds=timestamp.value) <= after
    (day,) = (node for node in walk(found) if isinstance(node, Literal) and node.type == types.DATE)
    assert day.value == timestamp.value // 86_400_000_000


def test_a_list_of_partition_filters_is_their_and():
    one, other = PartitionFilter.eq("a", 1), PartitionFilter.is_null("b")
    assert to_expr([one, other]) == PartitionFilter.and_(one, other).to_expr()


def test_a_list_may_mix_partition_filters_with_expressions():
    one = PartitionFilter.eq("a", 1)
    assert to_expr([one, "a > 5", ("a", ">", 5)]) == and_(one.to_expr(), parse_sql("a > 5"), to_expr(("a", ">", 5)))


@pytest.mark.parametrize("value", [True, False, np.bool_(True)])
def test_a_python_bool_is_an_error_with_a_hint_to_col(value):
    with pytest.raises(InvalidArgument, match=r"Python evaluated the comparison.*col\('name'\) == 5"):
        to_expr(value)


class Elsewhere:
    """A stand-in for an expression of another library."""


@pytest.mark.parametrize(
    ("where", "name"),
    [(5, "an int"), (b"a > 5", "a bytes"), ({"a": 5}, "a dict"), (Elsewhere(), "Elsewhere"), (["a > 5", 5], "an int")],
)
def test_an_unsupported_where_is_an_error_that_names_the_type(where, name):
    with pytest.raises(InvalidArgument, match=f"where cannot be .*{name}: give SQL text, a tamis expression"):
        to_expr(where)


def test_a_class_with_the_same_name_is_not_a_pyiceberg_expression():
    class BooleanExpression:
        pass

    with pytest.raises(InvalidArgument, match="BooleanExpression"):
        to_expr(BooleanExpression())


def test_pyiceberg_is_not_imported_if_it_is_not_used():
    code = "import sys; from tamis.expr.interop import from_any as f; f.to_expr('a'); print('pyiceberg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

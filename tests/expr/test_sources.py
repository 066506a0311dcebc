import subprocess
import sys

import numpy as np
import pyarrow.compute as pc
import pytest

from tamis import types
from tamis.errors import InvalidArgument, ParseError
from tamis.expr.builder import col
from tamis.expr.nodes import Call, Column, Literal
from tamis.expr.partition_filter import PartitionFilter
from tamis.expr.sources import to_expr

A_GREATER_5 = Call(">", (Column(("a",)), Literal(5, types.LONG)))
B_GREATER_5 = Call(">", (Column(("b",)), Literal(5, types.LONG)))


def test_no_filter():
    assert to_expr(None) is None
    assert to_expr([]) is None
    assert to_expr([None, ()]) is None


def test_sql_text():
    translated = to_expr("a > 5")
    assert isinstance(translated, Call)
    assert (translated.function, translated.args[0], translated.args[1].value) == (">", Column(("a",)), 5)


def test_sql_text_that_is_none_keeps_its_own_error():
    with pytest.raises(ParseError):
        to_expr("a >")


def test_a_builder_expression():
    translated = to_expr(col("a") > 5)
    assert isinstance(translated, Call)
    assert (translated.function, translated.args[0], translated.args[1].value) == (">", Column(("a",)), 5)


@pytest.mark.parametrize("node", [A_GREATER_5, Column(("a",)), Literal(True, types.BOOLEAN)])
def test_a_node_is_itself(node):
    assert to_expr(node) is node


def test_a_partition_filter_is_itself():
    made = PartitionFilter.eq("a", 1)
    assert to_expr(made) is made
    assert to_expr([made]) is made


def test_a_pyarrow_expression():
    assert to_expr(pc.field("a") > 5) == A_GREATER_5


def test_a_pyiceberg_expression():
    iceberg = pytest.importorskip("pyiceberg.expressions")
    assert to_expr(iceberg.GreaterThan("a", 5)) == A_GREATER_5
    assert to_expr(iceberg.AlwaysTrue()) == Literal(True, types.BOOLEAN)


def test_a_list_means_all_of_its_items():
    assert to_expr([A_GREATER_5, pc.field("b") > 5]) == Call("and", (A_GREATER_5, B_GREATER_5))
    assert to_expr((A_GREATER_5, None)) == A_GREATER_5
    assert to_expr([[A_GREATER_5], (B_GREATER_5,)]) == Call("and", (A_GREATER_5, B_GREATER_5))


def test_a_list_of_partition_filters_is_their_and():
    one, other = PartitionFilter.eq("a", 1), PartitionFilter.is_null("b")
    assert to_expr([one, other]) == PartitionFilter.and_(one, other)


def test_a_list_that_mixes_partition_filters_and_expressions_is_an_error():
    with pytest.raises(InvalidArgument, match="mixes partition filters with expressions"):
        to_expr([PartitionFilter.eq("a", 1), A_GREATER_5])


@pytest.mark.parametrize("value", [True, False, np.bool_(True)])
def test_a_python_bool_points_to_col(value):
    with pytest.raises(InvalidArgument, match=r"comparison was made in Python.*col\('name'\) == 5"):
        to_expr(value)


class Elsewhere:
    """Stands for an expression of another library."""


@pytest.mark.parametrize(
    ("where", "name"),
    [(5, "int"), (b"a > 5", "bytes"), ({"a": 5}, "dict"), (Elsewhere(), "Elsewhere"), (["a > 5", 5], "int")],
)
def test_anything_else_names_the_type_and_the_way_out(where, name):
    with pytest.raises(InvalidArgument, match=f"where cannot be a .*{name}: give SQL text, a tamis expression"):
        to_expr(where)


def test_a_class_that_only_borrows_the_name_is_not_taken_for_pyiceberg():
    class BooleanExpression:
        pass

    with pytest.raises(InvalidArgument, match="BooleanExpression"):
        to_expr(BooleanExpression())


def test_pyiceberg_is_not_imported_where_it_is_not_used():
    code = "import sys; from tamis.expr.sources import to_expr; to_expr('a > 5'); print('pyiceberg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

"""Answers of Bloom filters for predicates over real files, and the reasons where they have none."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders.parquet.bloom import list_kept_row_groups, read_filters, read_leaves
from tamis.expr.bind import bind
from tamis.expr.nodes import Call, Column, Expr, Literal, Name
from tamis.expr.normalise import normalise
from tamis.parquet.footer.leaves import get_file_schema
from tamis.parquet.indexes.bloom_pruning import BloomQuestions, FileQuestions
from tamis.skipping.membership import collect_questions
from tamis.skipping.predicate import make_predicate


def write_file(folder: Path, row_groups: list[dict[str, pa.Array]], without: tuple[str, ...] = ()) -> Path:
    """Write a file with a Bloom filter for each column except those in `without`."""
    path = folder / "file.parquet"
    tables = [pa.table(columns) for columns in row_groups]
    names = [name for name in tables[0].column_names if name not in without]
    filters = {name: {"ndv": 1_000, "fpp": 0.001} for name in names}
    with pq.ParquetWriter(path, tables[0].schema, bloom_filter_options=filters or None) as writer:
        for table in tables:
            writer.write_table(table)
    return path


def write_values(folder: Path, data_type: pa.DataType, *row_groups: list[Any], **options: Any) -> Path:
    return write_file(folder, [{"x": pa.array(values, data_type)} for values in row_groups], **options)


def make_questions(path: Path, where: str) -> FileQuestions:
    questions = collect_questions(make_predicate(where, pq.read_schema(path), "t").expr).questions
    return BloomQuestions.of(questions).for_file(get_file_schema(pq.read_metadata(path)).leaves)


# --- Predicates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("x = 2", [0]),
        ("x <=> 2", [0]),
        ("x IN (2, 7, NULL)", [0, 2]),
        ("x = 99", []),
        ("x = 2 OR x = 4", [0, 1]),
        ("x = 2 AND x > 0", [0]),
        ("x <> 2", [0, 1, 2]),
        ("x NOT IN (2, 7)", [0, 1, 2]),
        ("NOT (x = 2)", [0, 1, 2]),
        ("x > 2", [0, 1, 2]),
        ("x <=> NULL", [0, 1, 2]),
        ("x IS NULL OR x = 2", [0, 1, 2]),
        ("(x = 2) IS NULL", [0, 1, 2]),
    ],
)
def test_equalities_and_lists_are_answered_and_nothing_else(tmp_path: Path, where: str, kept: list[int]) -> None:
    path = write_values(tmp_path, pa.int64(), [1, 2, 3], [4, None, 6], [7, 8, 9])
    assert list_kept_row_groups(path, where) == kept


def test_B4_a_disjunction_needs_both_sides(tmp_path: Path) -> None:
    groups = [{"x": pa.array([1, 2]), "y": pa.array([1, 2])}, {"x": pa.array([3, 4]), "y": pa.array([3, 4])}]
    assert list_kept_row_groups(write_file(tmp_path, groups), "x = 1 OR y = 3") == [0, 1]
    assert list_kept_row_groups(write_file(tmp_path, groups), "x = 1 OR y = 9") == [0]
    assert list_kept_row_groups(write_file(tmp_path, groups, without=("y",)), "x = 1 OR y = 9") == [0, 1]
    assert list_kept_row_groups(write_file(tmp_path, groups, without=("y",)), "x = 1 AND y = 9") == [0]
    assert list_kept_row_groups(write_file(tmp_path, groups), "x = 1 OR y > 9") == [0, 1]


@pytest.mark.parametrize(
    ("stored", "table", "inside", "outside"),
    [
        (pa.int8(), pa.int64(), "2", "3000000000"),
        (pa.int32(), pa.int64(), "2", "3000000000"),
        (pa.int32(), pa.float64(), "2.0", "2.5"),
        (pa.int32(), pa.decimal128(20, 2), "2.00", "2.50"),
        (pa.float32(), pa.float64(), "2.0", "0.1"),
        (pa.date32(), pa.timestamp("us"), "TIMESTAMP '1970-01-03 00:00:00'", "TIMESTAMP '1970-01-03 00:00:01'"),
        (pa.timestamp("ms"), pa.timestamp("us"), "TIMESTAMP '1970-01-01 00:00:00.002'", "TIMESTAMP '1970-01-01'"),
    ],
)
def test_B2_T11_promoted_columns_are_looked_up_in_their_stored_type(
    tmp_path: Path, stored: pa.DataType, table: pa.DataType, inside: str, outside: str
) -> None:
    path = write_values(tmp_path, stored, [1, 2, 3], [4, 5, 6])
    schema = pa.schema({"x": table})
    assert list_kept_row_groups(path, f"x = {inside}", schema) == [0]
    assert list_kept_row_groups(path, f"x = {outside}", schema) == []


@pytest.mark.parametrize("stored_zero", [0.0, -0.0])
@pytest.mark.parametrize("zero", ["0.0", "-0.0"])
def test_F5_either_zero_finds_the_other(tmp_path: Path, stored_zero: float, zero: str) -> None:
    path = write_values(tmp_path, pa.float64(), [stored_zero, 1.0], [2.0, 3.0])
    assert list_kept_row_groups(path, f"x = {zero}") == [0]
    assert list_kept_row_groups(path, f"x IN ({zero}, 3)") == [0, 1]


def test_F5_NaN_is_never_skipped(tmp_path: Path) -> None:
    path = write_values(tmp_path, pa.float64(), [math.nan, 1.0], [2.0, 3.0])
    column = Name(("x",))
    nan, one = Literal(math.nan, pa.float64()), Literal(1.0, pa.float64())
    for predicate in (Call("=", (column, nan)), Call("in", (column, nan, one))):
        assert _prune_row_groups(path, predicate) == [0, 1]
    assert _prune_row_groups(path, Call("=", (column, one))) == [0]


def _prune_row_groups(path: Path, predicate: Expr) -> list[int]:
    bound = normalise(bind(predicate, pq.read_schema(path)))
    questions = BloomQuestions.of(collect_questions(bound).questions).for_file(
        get_file_schema(pq.read_metadata(path)).leaves
    )
    answers = questions.find_answers(read_filters(path), [0, 1])
    return [group for group in (0, 1) if all(each[group].as_py() is not False for each in answers.values())]


def test_B7_a_row_group_of_NULL_only_has_no_value(tmp_path: Path) -> None:
    path = write_values(tmp_path, pa.int64(), [None, None], [1, None])
    assert list_kept_row_groups(path, "x = 1") == [1]
    assert list_kept_row_groups(path, "x IS NULL") == [0, 1]


def test_fields_of_structs_are_looked_up(tmp_path: Path) -> None:
    path = tmp_path / "nested.parquet"
    table = pa.table({"s": pa.array([{"x": 1}, {"x": 2}, None, {"x": 4}])})
    pq.write_table(table, path, row_group_size=2, bloom_filter_options={"s.x": {"ndv": 100, "fpp": 0.001}})
    assert list_kept_row_groups(path, "s.x = 4") == [1]
    assert list_kept_row_groups(path, "s.x = 9") == []


def test_X11_a_list_of_100_000_values_is_answered(tmp_path: Path) -> None:
    path = write_values(tmp_path, pa.int64(), list(range(100)), list(range(-200, -100)))
    column, data_type = Column(("x",), type=pa.int64()), pa.int64()
    long_list = Call("in", (column, *(Literal(number, data_type) for number in range(0, 200_000, 2))))
    (question,) = collect_questions(long_list).questions
    asked = BloomQuestions.of([question]).for_file(get_file_schema(pq.read_metadata(path)).leaves)
    ((_, _, hashes),) = asked.asked
    assert len(hashes) == 100_000
    assert asked.find_answers(read_filters(path), [0])[question.true_name].to_pylist() == [True]
    negative = Call("in", (column, *(Literal(-number, data_type) for number in range(101, 200))))
    (question,) = collect_questions(negative).questions
    asked = BloomQuestions.of([question]).for_file(get_file_schema(pq.read_metadata(path)).leaves)
    assert asked.find_answers(read_filters(path), [1])[question.true_name].to_pylist() == [True]


# --- What is needed, and what is not ----------------------------------------------------------------------------------


def test_only_columns_of_the_predicate_need_filters(tmp_path: Path) -> None:
    groups = [{"x": pa.array([1]), "y": pa.array([1]), "z": pa.array([1])}]
    path = write_file(tmp_path, groups)
    leaves = read_leaves(path)
    assert make_questions(path, "x = 1 AND y > 1 AND z IN (1, 2)").leaves == (leaves["x"].index, leaves["z"].index)


def test_literals_outside_the_stored_type_need_no_filter(tmp_path: Path) -> None:
    path = write_values(tmp_path, pa.int32(), [1], without=("x",))
    (question,) = collect_questions(make_predicate("x = 3000000000", pa.schema({"x": pa.int64()}), "t").expr).questions
    asked = BloomQuestions.of([question]).for_file(get_file_schema(pq.read_metadata(path)).leaves)
    assert asked.leaves == ()
    assert asked.find_answers({}, [0]) == {"true:0": pa.array([False])}


def test_columns_are_found_by_physical_name(tmp_path: Path) -> None:
    path = write_values(tmp_path, pa.int32(), [1])
    (question,) = collect_questions(make_predicate("key = 1", pa.schema({"key": pa.int64()}), "t").expr).questions
    leaves = get_file_schema(pq.read_metadata(path)).leaves
    assert BloomQuestions.of([question]).for_file(leaves).asked == ()
    assert len(BloomQuestions.of([question]).for_file(leaves, {("key",): ("x",)}).asked) == 1


def test_items_are_hashed_once_for_files_with_the_same_stored_type(tmp_path: Path) -> None:
    path = write_values(tmp_path, pa.int32(), [1])
    questions = BloomQuestions.of(collect_questions(make_predicate("x = 1", pq.read_schema(path), "t").expr).questions)
    first, second = (questions.for_file(get_file_schema(pq.read_metadata(path)).leaves) for _ in range(2))
    assert first.asked[0][2] is second.asked[0][2]
    wide = write_values(tmp_path, pa.int64(), [1])
    assert (
        questions.for_file(get_file_schema(pq.read_metadata(wide)).leaves).asked[0][2].tolist()
        != first.asked[0][2].tolist()
    )


@pytest.mark.parametrize(
    ("data_type", "values", "where", "reason"),
    [
        (pa.int64(), [1], "x = 1", "no Bloom filter"),
        (pa.bool_(), [True], "x = true", "Bloom filters are not supported for BOOLEAN NONE"),
    ],
)
def test_an_unanswered_question_has_a_reason(
    tmp_path: Path, data_type: pa.DataType, values: list[Any], where: str, reason: str
) -> None:
    path = write_values(tmp_path, data_type, values, without=("x",))
    asked = make_questions(path, where)
    assert asked.find_reasons(read_filters(path), [0]) == {0: reason}
    answers = asked.find_answers(read_filters(path), [0])
    assert all(each.null_count == 1 for each in answers.values())


def test_a_question_with_an_answer_in_some_row_group_has_no_reason(tmp_path: Path) -> None:
    path = write_values(tmp_path, pa.int64(), [1], [2])
    filters = read_filters(path)
    asked = make_questions(path, "x = 1")
    assert asked.find_reasons(filters, [0, 1]) == {}
    del filters[1, 0]
    assert asked.find_reasons(filters, [0, 1]) == {}
    assert asked.find_answers(filters, [0, 1])["true:0"].to_pylist() == [True, None]

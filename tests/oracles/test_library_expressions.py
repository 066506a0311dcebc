"""Random expressions of Polars and DataFusion: a scan returns the rows that the library itself returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tamis
from builders.parquet.tuning import BY_PAGES
from tamis.parquet import PruneRequest

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int64(), st.integers(-3, 3)),
    "j": (pa.int32(), st.integers(-3, 3)),
    "f": (pa.float64(), st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 1.0, 2.5, math.inf, math.nan])),
    "s": (pa.string(), st.sampled_from(["", "a", "ab", "b", "B", "ä"])),
    "b": (pa.bool_(), st.booleans()),
    "d": (pa.date32(), st.sampled_from([date(1969, 12, 31), date(2020, 1, 1), date(2020, 1, 2)])),
    "t": (pa.timestamp("us"), st.sampled_from([datetime(1969, 12, 31, 23), datetime(2020, 1, 1, 0, 0, 0, 1)])),
}
COLUMNS = st.sampled_from(sorted(VALUES))


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    count = draw(st.integers(1, 12))
    columns = {
        name: pa.array(draw(st.lists(st.none() | values, min_size=count, max_size=count)), data_type)
        for name, (data_type, values) in VALUES.items()
    }
    return pa.table(columns | {"row": pa.array(range(count))})


def check_rows(table: pa.Table, expression: object, expected: list[int], folder: Path, rows_per_group: int) -> None:
    path = folder / "f.parquet"
    pq.write_table(table, path, row_group_size=rows_per_group, write_page_index=True)
    found = tamis.open(path, tuning=BY_PAGES).scan(expression, columns=["row"]).to_arrow()["row"].to_pylist()
    assert sorted(found) == sorted(expected)
    result = PruneRequest(path, tuning=BY_PAGES).with_predicate(expression).prune()
    metadata = pq.read_metadata(path)
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    kept = result.row_selection.in_file(result.row_groups, counts).to_indices().tolist()
    assert set(expected) <= set(kept)


# --- Polars -----------------------------------------------------------------------------------------------------------


CLOSED: list[Literal["both", "left", "right", "none"]] = ["both", "left", "right", "none"]


def is_serialisable(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


@st.composite
def polars_atoms(draw: st.DrawFn) -> pl.Expr:
    name = draw(COLUMNS)
    values = VALUES[name][1].filter(is_serialisable)
    column, value = pl.col(name), draw(values)
    items = draw(st.lists(st.none() | VALUES[name][1], max_size=3))
    dtype = pl.from_arrow(pa.table({"x": pa.array([], VALUES[name][0])})).schema["x"]  # type: ignore[union-attr]
    forms: list[Callable[[], pl.Expr]] = [
        lambda: column == value,
        lambda: column != value,
        lambda: column < value,
        lambda: column <= value,
        lambda: column > value,
        lambda: column >= value,
        lambda: pl.lit(value) < column,
        lambda: column.eq_missing(value),
        lambda: column.ne_missing(value),
        column.is_null,
        column.is_not_null,
        lambda: column.is_between(pl.lit(value), pl.lit(draw(values)), closed=draw(st.sampled_from(CLOSED))),
        lambda: column.is_in(pl.Series(items, dtype=dtype), nulls_equal=draw(st.booleans())),
        lambda: column.is_in(pl.lit(items, dtype=pl.List(dtype)), nulls_equal=draw(st.booleans())),
        lambda: column.fill_null(value) == value,
    ]
    if name in ("i", "j", "f"):
        forms += [
            lambda: column < pl.col(draw(st.sampled_from(["i", "j", "f"]))),
            lambda: column + 1 > 2,
            lambda: column * 2 - pl.col("i") <= 1,
            lambda: -column > 1,
            lambda: column.abs() >= 2,
            lambda: column / 2 < 1,
        ]
    if name == "f":
        forms += [column.is_nan, column.is_not_nan, column.is_finite, column.is_infinite]
    if name == "s":
        forms += [
            lambda: column.str.starts_with(value),
            lambda: column.str.ends_with(value),
            lambda: column.str.contains(value, literal=True),
            lambda: column.str.len_chars() > len(value),
            lambda: column.str.to_uppercase() == "B",
        ]
    if name == "b":
        forms += [lambda: column, lambda: ~column]
    return draw(st.sampled_from(forms))()


def polars_predicates() -> st.SearchStrategy[pl.Expr]:
    def combine(inner: st.SearchStrategy[pl.Expr]) -> st.SearchStrategy[pl.Expr]:
        return (
            st.builds(lambda left, right: left & right, inner, inner)
            | st.builds(lambda left, right: left | right, inner, inner)
            | st.builds(lambda one: ~one, inner)
            | st.builds(lambda left, right: left.ne_missing(right), inner, inner)
            | st.builds(lambda *parts: pl.when(parts[0]).then(parts[1]).otherwise(parts[2]), inner, inner, inner)
            | st.builds(lambda *parts: pl.all_horizontal(*parts), inner, inner)
            | st.builds(lambda *parts: pl.any_horizontal(*parts), inner, inner)
        )

    return st.recursive(polars_atoms(), combine, max_leaves=5)


@given(table=tables(), expression=polars_predicates(), rows_per_group=st.integers(1, 12))
def test_O3_a_polars_expression_returns_the_rows_that_polars_returns(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table, expression: pl.Expr, rows_per_group: int
) -> None:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    expected = frame.filter(expression)["row"].to_list()
    check_rows(table, expression, expected, tmp_path_factory.mktemp("polars"), rows_per_group)


# --- DataFusion -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def datafusion() -> Any:
    return pytest.importorskip("datafusion", reason="datafusion comes with the bench extra")


def draw_datafusion_atom(draw: st.DrawFn, datafusion: Any) -> Any:
    name = draw(COLUMNS)
    data_type, values = VALUES[name]

    def lit(value: Any) -> Any:
        return datafusion.lit(pa.scalar(value, data_type))

    column, value = datafusion.col(name), draw(values)
    items = [lit(item) for item in draw(st.lists(st.none() | values, min_size=1, max_size=3))]
    functions = datafusion.functions
    forms: list[Callable[[], Any]] = [
        lambda: column == lit(value),
        lambda: column != lit(value),
        lambda: column < lit(value),
        lambda: column <= lit(value),
        lambda: column > lit(value),
        lambda: column >= lit(value),
        lambda: lit(value) < column,
        column.is_null,
        column.is_not_null,
        lambda: column.between(lit(value), lit(draw(values)), negated=draw(st.booleans())),
        lambda: functions.in_list(column, items, negated=draw(st.booleans())),
        lambda: functions.coalesce(column, lit(value)) == lit(value),
    ]
    if name in ("i", "j", "f"):
        forms += [
            lambda: column < datafusion.col(draw(st.sampled_from(["i", "j", "f"]))),
            lambda: column + datafusion.lit(1) > datafusion.lit(2),
            lambda: column * datafusion.lit(2) - datafusion.col("i") <= datafusion.lit(1),
            lambda: functions.abs(column) >= datafusion.lit(2),
            lambda: column / datafusion.lit(2.0) < datafusion.lit(1),
        ]
    if name in ("i", "j"):
        forms.append(lambda: column % datafusion.lit(2) == datafusion.lit(-1))
    if name == "f":
        forms.append(lambda: functions.isnan(column))
    if name == "s":
        forms += [
            lambda: functions.starts_with(column, lit(value)),
            lambda: functions.ends_with(column, lit(value)),
            lambda: functions.contains(column, lit(value)),
            lambda: functions.length(column) > datafusion.lit(len(value)),
        ]
    return draw(st.sampled_from(forms))()


def draw_datafusion_predicate(draw: st.DrawFn, datafusion: Any, depth: int) -> Any:
    kind = draw(st.sampled_from(["atom", "and", "or", "not", "case"])) if depth else "atom"
    if kind == "atom":
        return draw_datafusion_atom(draw, datafusion)
    parts = [draw_datafusion_predicate(draw, datafusion, depth - 1) for _ in range(3)]
    match kind:
        case "and":
            return parts[0] & parts[1]
        case "or":
            return parts[0] | parts[1]
        case "not":
            return ~parts[0]
        case _:
            return datafusion.functions.when(parts[0], parts[1]).otherwise(parts[2])


@given(table=tables(), data=st.data(), rows_per_group=st.integers(1, 12))
def test_O3_a_datafusion_expression_returns_the_rows_that_datafusion_returns(
    tmp_path_factory: pytest.TempPathFactory, datafusion: Any, table: pa.Table, data: st.DataObject, rows_per_group: int
) -> None:
    expression = draw_datafusion_predicate(data.draw, datafusion, 2)
    frame = datafusion.SessionContext().from_arrow(table)
    expected = [row for batch in frame.filter(expression).select("row").collect() for row in batch["row"].to_pylist()]
    check_rows(table, expression, expected, tmp_path_factory.mktemp("datafusion"), rows_per_group)

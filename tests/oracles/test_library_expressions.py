"""Random expressions of other libraries: a scan returns the rows that the library itself returns."""

from __future__ import annotations

import math
import operator as operators
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import tamis
from builders.parquet.tuning import BY_PAGES
from tamis.parquet import PruneRequest

ONE_TENTH = float(np.float32(0.1))

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int64(), st.integers(-3, 3)),
    "j": (pa.int32(), st.integers(-3, 3)),
    "f": (pa.float64(), st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 0.1, 1.0, 2.5, math.inf, math.nan])),
    "g": (
        pa.float32(),
        st.sampled_from([-math.inf, -1.5, -0.0, ONE_TENTH, ONE_TENTH, ONE_TENTH, 1.0, 16777216.0, math.inf, math.nan]),
    ),
    "k": (pa.int8(), st.sampled_from([-128, -3, 0, 1, 3, 127])),
    "m": (pa.decimal128(10, 2), st.sampled_from([Decimal(n) for n in ("-1.50", "0.00", "0.10", "0.12", "0.13")])),
    "s": (pa.string(), st.sampled_from(["", "a", "ab", "b", "B", "ä"])),
    "b": (pa.bool_(), st.booleans()),
    "d": (pa.date32(), st.sampled_from([date(1969, 12, 31), date(2020, 1, 1), date(2020, 1, 2)])),
    "t": (pa.timestamp("us"), st.sampled_from([datetime(1969, 12, 31, 23), datetime(2020, 1, 1, 0, 0, 0, 1)])),
}
COLUMNS = st.sampled_from([*sorted(VALUES), "f", "g", "g", "g"])
"""32-bit floats are frequent: the libraries differ most in them."""
INTEGERS, FLOATS = ("i", "j", "k"), ("f", "g")
NUMBERS = (*INTEGERS, *FLOATS)
CONSTANTS = st.sampled_from([-1.5, -0.0, 0.1, 0.1, 0.1, 0.2, 0.125, 0.5, 1.0, 3.0, 0, 1, 2, 3, 16777217, 1e300, -1e300])
"""Numbers that some of the types have, and some have not."""
WIDE_INTEGERS = st.sampled_from([-129, -128, 0, 1, 127, 128, 300, 2**31 - 1, 2**31, 2**40, -(2**40)])


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


COMPARISONS = (operators.eq, operators.ne, operators.lt, operators.le, operators.gt, operators.ge)
INTEGER_TYPES = (pl.Int8, pl.Int16, pl.Int32, pl.Int64)
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
    if name in NUMBERS or name == "m":
        constant, other = draw(CONSTANTS), draw(CONSTANTS)
        number: Any = constant if name in FLOATS or abs(constant) <= 3 else 2
        compare = draw(st.sampled_from(COMPARISONS))
        forms = forms if draw(st.booleans()) else []
        forms += [
            lambda: compare(column, pl.col(draw(st.sampled_from(NUMBERS)))),
            lambda: compare(column, constant),
            lambda: compare(constant, column),
            lambda: column.is_between(constant, other),
            lambda: column.eq_missing(constant),
        ]
        # An int8 wraps around in Polars.
        if name not in ("k", "m"):
            forms += [
                lambda: compare(column * number, other),
                lambda: compare(number - column, other),
                lambda: compare(column + number, pl.col(draw(st.sampled_from(NUMBERS)))),
                lambda: compare(column * 2 - pl.col("i"), number),
                lambda: compare(-column, constant),
                lambda: compare(column.abs(), constant),
                lambda: compare(column / (number or 3), other),
                lambda: compare(column.fill_null(number), other),
                lambda: compare(pl.when(pl.col("b")).then(number).otherwise(column), other),
                lambda: compare(column * pl.lit(2, dtype=draw(st.sampled_from(INTEGER_TYPES))) * 0.1, other),
                lambda: compare(pl.lit(2) * number, column),
            ]
    if name in INTEGERS:
        forms.append(lambda: draw(st.sampled_from(COMPARISONS))(column, draw(WIDE_INTEGERS)))
    if name in FLOATS:
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
    return pytest.importorskip("datafusion", reason="datafusion is not installed: `make test-interop` installs it")


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
    if name in NUMBERS:
        constant, other = datafusion.lit(draw(CONSTANTS)), datafusion.lit(draw(CONSTANTS))
        compare = draw(st.sampled_from(COMPARISONS))
        forms += [
            lambda: compare(column, constant),
            lambda: compare(column, datafusion.col(draw(st.sampled_from(NUMBERS)))),
            lambda: column + datafusion.lit(1) > datafusion.lit(2),
            lambda: column * datafusion.lit(2) - datafusion.col("i") <= datafusion.lit(1),
            lambda: functions.abs(column) >= datafusion.lit(2),
            lambda: column / datafusion.lit(2.0) < datafusion.lit(1),
        ]
        if name in FLOATS:
            forms += [
                lambda: compare(column * constant, other),
                lambda: compare(column - constant, other),
                lambda: compare(functions.abs(column), constant),
                lambda: compare(column / datafusion.lit(3.0), other),
            ]
    if name in INTEGERS:
        forms.append(lambda: column % datafusion.lit(2) == datafusion.lit(-1))
    if name in FLOATS:
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


@pytest.mark.interop
@given(table=tables(), data=st.data(), rows_per_group=st.integers(1, 12))
def test_O3_a_datafusion_expression_returns_the_rows_that_datafusion_returns(
    tmp_path_factory: pytest.TempPathFactory, datafusion: Any, table: pa.Table, data: st.DataObject, rows_per_group: int
) -> None:
    expression = draw_datafusion_predicate(data.draw, datafusion, 2)
    frame = datafusion.SessionContext().from_arrow(table)
    try:
        batches = frame.filter(expression).select("row").collect()
    except Exception as error:
        # DataFusion has no answer for abs(-128) of an int8; it has no class for its errors.
        if "overflow" not in str(error):
            raise
        reject()
    expected = [row for batch in batches for row in batch["row"].to_pylist()]
    check_rows(table, expression, expected, tmp_path_factory.mktemp("datafusion"), rows_per_group)


# --- pyarrow ----------------------------------------------------------------------------------------------------------


@st.composite
def arrow_atoms(draw: st.DrawFn) -> pc.Expression:
    name = draw(COLUMNS)
    data_type, values = VALUES[name]
    column, value = pc.field(name), pa.scalar(draw(values), data_type)
    compare = draw(st.sampled_from(COMPARISONS))
    # Arrow tells -0.0 and 0.0 apart in lists.
    items = draw(st.lists(st.none() | values.filter(lambda each: each != 0 or name not in FLOATS), max_size=3))
    forms: list[Callable[[], pc.Expression]] = [
        lambda: compare(column, value),
        lambda: compare(pc.scalar(value), column),
        column.is_null,
        column.is_valid,
        lambda: column.isin(pa.array(items, data_type)),
        lambda: compare(pc.coalesce(column, value), value),
    ]
    if name in NUMBERS:
        constant, other = draw(CONSTANTS), draw(CONSTANTS)
        forms += [
            lambda: compare(column, constant),
            lambda: compare(pc.scalar(constant), column),
            lambda: compare(column, pc.field(draw(st.sampled_from(NUMBERS)))),
            lambda: column.isin([each for each in (constant, other) if each] or [3]),
        ]
    if name in FLOATS:
        forms += [
            lambda: pc.is_nan(column),
            lambda: column.is_null(nan_is_null=True),
            lambda: compare(column * constant, other),
            lambda: compare(column - constant, other),
            lambda: compare(column + pc.field("g"), pc.field("f")),
            lambda: compare(pc.scalar(-1.5) * column, other),
            lambda: compare(pc.negate(column), constant),
            lambda: compare(pc.abs(column), constant),
            lambda: compare(column / 3.0, other),
            lambda: compare(pc.if_else(pc.field("b"), column, constant), other),
            lambda: compare(pc.coalesce(column, constant) * 0.3, other),
        ]
    if name == "m":
        forms += [
            lambda: compare(column, draw(st.sampled_from([0.1, 0.12, 0.125, 1e300]))),
            lambda: column.isin([draw(st.sampled_from([0.1, 0.12, 0.125]))]),
            lambda: compare(column, pc.field("g")),
        ]
    if name == "d":
        forms.append(lambda: column.isin([datetime(2020, 1, 1, 12)]))
    if name == "b":
        forms += [lambda: column, lambda: ~column]
    return draw(st.sampled_from(forms))()


def arrow_predicates() -> st.SearchStrategy[pc.Expression]:
    def combine(inner: st.SearchStrategy[pc.Expression]) -> st.SearchStrategy[pc.Expression]:
        return (
            st.builds(lambda left, right: left & right, inner, inner)
            | st.builds(lambda left, right: left | right, inner, inner)
            | st.builds(lambda one: ~one, inner)
            | st.builds(lambda *parts: pc.if_else(*parts), inner, inner, inner)
        )

    return st.recursive(arrow_atoms(), combine, max_leaves=5)


@given(table=tables(), expression=arrow_predicates(), rows_per_group=st.integers(1, 12))
def test_O3_a_pyarrow_expression_returns_the_rows_that_pyarrow_returns(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table, expression: pc.Expression, rows_per_group: int
) -> None:
    try:
        expected = ds.dataset(table).to_table(filter=expression)["row"].to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # Arrow does not cast some numbers, and has no kernel for some types.
        reject()
    check_rows(table, expression, expected, tmp_path_factory.mktemp("pyarrow"), rows_per_group)


# --- pyiceberg --------------------------------------------------------------------------------------------------------

ICEBERG_TYPES = {"i": "long", "j": "int", "f": "double", "g": "float", "m": "decimal(10, 2)", "s": "string",
                 "b": "boolean", "d": "date", "t": "timestamp"}  # fmt: skip


def make_iceberg_schema() -> Any:
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    kinds = {**ICEBERG_TYPES, "row": "long"}
    return Schema(*(NestedField(field_id=n, name=name, type=kind) for n, (name, kind) in enumerate(kinds.items(), 1)))


@st.composite
def iceberg_atoms(draw: st.DrawFn) -> Any:
    from pyiceberg import expressions as iceberg

    name = draw(st.sampled_from(sorted(ICEBERG_TYPES)))
    values = VALUES[name][1].filter(lambda each: each == each)
    comparisons = (
        iceberg.EqualTo, iceberg.NotEqualTo, iceberg.LessThan, iceberg.LessThanOrEqual, iceberg.GreaterThan,
        iceberg.GreaterThanOrEqual,
    )  # fmt: skip
    compare = draw(st.sampled_from(comparisons))
    others = {
        **dict.fromkeys(FLOATS, CONSTANTS),
        **dict.fromkeys(INTEGERS, WIDE_INTEGERS),
        "m": st.sampled_from([0.1, 0.12, 0.125, 1, 2.0]),
        "d": st.sampled_from([datetime(2020, 1, 1, 12), datetime(1969, 12, 31, 12)]),
    }.get(name, values)
    # Arrow tells -0.0 and 0.0 apart in lists.
    items = draw(st.lists((values | others).filter(lambda each: each != 0 or name not in FLOATS), max_size=3))
    forms: list[Callable[[], Any]] = [
        lambda: compare(name, draw(values)),
        lambda: compare(name, draw(others)),
        lambda: iceberg.IsNull(name),
        lambda: iceberg.NotNull(name),
        lambda: iceberg.In(name, items),
        lambda: iceberg.NotIn(name, items),
        lambda: iceberg.IsNaN(name),
        lambda: iceberg.NotNaN(name),
    ]
    if name == "s":
        forms += [
            lambda: iceberg.StartsWith(name, draw(values)),
            lambda: iceberg.NotStartsWith(name, draw(values)),
        ]
    return draw(st.sampled_from(forms))()


def iceberg_predicates() -> st.SearchStrategy[Any]:
    from pyiceberg import expressions as iceberg

    def combine(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return (
            st.builds(iceberg.And, inner, inner) | st.builds(iceberg.Or, inner, inner) | st.builds(iceberg.Not, inner)
        )

    return st.recursive(iceberg_atoms(), combine, max_leaves=5)


@given(table=tables(), expression=iceberg_predicates(), rows_per_group=st.integers(1, 12))
def test_O3_a_pyiceberg_expression_returns_the_rows_that_pyiceberg_returns(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table, expression: Any, rows_per_group: int
) -> None:
    from pyiceberg.expressions.visitors import bind
    from pyiceberg.io.pyarrow import expression_to_pyarrow

    schema = make_iceberg_schema()
    bound = expression_to_pyarrow(bind(schema, expression, case_sensitive=True), schema)
    expected = ds.dataset(table).to_table(filter=bound)["row"].to_pylist()
    check_rows(table, expression, expected, tmp_path_factory.mktemp("pyiceberg"), rows_per_group)

"""The statistics of row groups in a footer admit every row: O3 over all pairs of special values."""

from __future__ import annotations

import io
import itertools
import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders.skipping.small_worlds import Statistics, World
from builders.values.by_type import FAMILIES, list_narrower_types, list_values_that_fit, make_array
from tamis.expr.evaluate import to_physical_value
from tamis.expr.nodes import Column
from tamis.parquet.footer.bounds import make_bounds_reader
from tamis.parquet.footer.leaves import get_file_schema
from tamis.parquet.footer.statistics import read_row_group_metadata
from tamis.skipping.metadata import metadata_name

STORED = [
    pytest.param(narrow, wide, id=f"{narrow} as {wide}")
    for wide in dict.fromkeys(itertools.chain.from_iterable(FAMILIES))
    for narrow in (wide, *list_narrower_types(wide))
]


@pytest.mark.parametrize(("narrow", "wide"), STORED)
def test_O3_T5_T11_the_footer_admits_every_row_of_a_row_group(narrow: pa.DataType, wide: pa.DataType) -> None:
    cells = [*list_values_that_fit(narrow, wide), None]
    pairs = list(itertools.combinations_with_replacement(cells, 2))
    stored = make_array(narrow, [cell for pair in pairs for cell in pair])
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": stored}), sink, row_group_size=2)
    footer = pq.read_metadata(io.BytesIO(sink.getvalue()))
    found = read_row_group_metadata(footer, [Column(("x",), type=wide)])
    world, as_read = World(wide, ()), [to_physical_value(cell) for cell in stored.cast(wide)]
    for index in range(len(pairs)):
        statistics = Statistics(
            *(_get_statistic(found, kind, index) for kind in ("lower", "upper", "null_count", "nan_count"))
        )
        for cell in as_read[2 * index : 2 * index + 2]:
            assert world.admits(statistics, 2, cell), f"{statistics} does not admit {cell!r}"
        assert statistics.null_count == as_read[2 * index : 2 * index + 2].count(None)
        # Without bounds the test would prove nothing.
        assert statistics.lower is not None or not _has_bounds(as_read[2 * index : 2 * index + 2], wide)


def _get_statistic(found: pa.RecordBatch, kind: str, index: int) -> Any:
    name = metadata_name(kind, ("x",))
    return to_physical_value(found.column(name)[index]) if name in found.schema.names else 0


def _has_bounds(cells: list[Any], data_type: pa.DataType) -> bool:
    """Return whether every writer has bounds for such rows, and Tamis uses them."""
    return all(cell is not None and cell == cell for cell in cells) and not (
        pa.types.is_timestamp(data_type) and max(map(abs, cells)) > 2**62
    )


def read_bounds(values: pa.Array, smallest: Any, largest: Any) -> tuple[Any, Any]:
    """Return the bounds that Tamis reads from the statistics of a writer."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": values}), sink)
    leaf = get_file_schema(pq.read_metadata(io.BytesIO(sink.getvalue()))).leaves[("x",)]
    reader = make_bounds_reader(leaf, values.type)
    assert reader is not None
    return reader.bounds(smallest, largest)[:2]


@pytest.mark.parametrize(("smallest", "largest"), [(math.nan, 1.0), (0.0, math.nan), (math.nan, math.nan), (2.0, 1.0)])
def test_F2_T10_bounds_that_cannot_be_are_unknown(smallest: float, largest: float) -> None:
    assert read_bounds(pa.array([0.0]), smallest, largest) == (None, None)


@pytest.mark.parametrize("cut", [1, 2])
def test_S3_text_cut_within_a_character_still_bounds_it(cut: int) -> None:
    """Both bounds are truncated as bytes, so the upper bound is below the value that it was made of."""
    value = "zu 日"
    cut_short = value.encode()[:-cut]
    lower, upper = read_bounds(pa.array([value]), cut_short, cut_short)
    assert lower <= value < upper
    assert read_bounds(pa.array(["\U0010ffff"]), b"\xf4", b"\xf4") == ("", None)

"""Row ranges: their metadata holds for their rows, whatever the pages of the columns are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tamis.parquet.indexes.page_units import ColumnPages, split_into_row_ranges


def describe_pages(name: str, values: list[int | None], first_rows: list[int]) -> ColumnPages:
    """Return the metadata of pages, computed from their rows."""
    ends = [*first_rows[1:], len(values)]
    pages = [values[start:end] for start, end in zip(first_rows, ends, strict=True)]
    known = [[value for value in page if value is not None] for page in pages]
    return ColumnPages(
        np.array(first_rows, np.int64),
        {
            f"lower:{name}": pa.array([min(page, default=None) for page in known], pa.int64()),
            f"upper:{name}": pa.array([max(page, default=None) for page in known], pa.int64()),
            f"null_count:{name}": pa.array([page.count(None) for page in pages], pa.int64()),
            f"lower_exact:{name}": pa.array([bool(page) for page in known]),
        },
    )


@st.composite
def paged_columns(draw: st.DrawFn) -> tuple[list[list[int | None]], list[list[int]]]:
    rows = draw(st.integers(0, 12))
    values = st.lists(st.none() | st.integers(0, 5), min_size=rows, max_size=rows)
    begins = st.lists(st.integers(0, rows), max_size=5).map(lambda found: sorted([0, *found]))
    count = draw(st.integers(1, 3))
    return [draw(values) for _ in range(count)], [draw(begins) for _ in range(count)]


@given(paged_columns())
def test_P3_row_ranges_cover_all_rows_with_correct_metadata(
    given_columns: tuple[list[list[int | None]], list[list[int]]],
) -> None:
    columns, begins = given_columns
    rows = len(columns[0])
    pages = [describe_pages(f"c{i}", *each) for i, each in enumerate(zip(columns, begins, strict=True))]
    found = split_into_row_ranges(pages, rows)
    covered = [row for start, end in zip(found.starts, found.ends, strict=True) for row in range(start, end)]
    assert covered == list(range(rows))
    assert (found.row_counts > 0).all()
    metadata = {name: values.to_pylist() for name, values in found.metadata.items()}
    assert metadata["row_count"] == found.row_counts.tolist()
    for column, values in enumerate(columns):
        for index, (start, end) in enumerate(zip(found.starts, found.ends, strict=True)):
            part = values[start:end]
            known = [value for value in part if value is not None]
            lower, upper = metadata[f"lower:c{column}"][index], metadata[f"upper:c{column}"][index]
            assert all(lower <= value <= upper for value in known)
            nulls = metadata[f"null_count:c{column}"][index]
            assert nulls is None or nulls == part.count(None)
            if metadata[f"lower_exact:c{column}"][index]:
                assert lower in known


def test_with_one_column_the_row_ranges_are_its_non_empty_pages() -> None:
    pages = describe_pages("c", [1, 2, None, 4], [0, 2, 2, 3])
    found = split_into_row_ranges([pages], 4)
    assert list(zip(found.starts, found.ends, strict=True)) == [(0, 2), (2, 3), (3, 4)]
    assert found.metadata["null_count:c"].to_pylist() == [0, 1, 0]
    assert found.metadata["lower_exact:c"].to_pylist() == [True, False, True]


def test_counts_of_a_part_of_a_page_are_known_if_none_or_all_rows_count() -> None:
    nulls = describe_pages("a", [None, None, 1, 2, None, 3], [0, 2, 4])
    cuts = describe_pages("b", [0] * 6, [0, 1, 3, 5])
    found = split_into_row_ranges([nulls, cuts], 6)
    assert found.starts.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.metadata["null_count:a"].to_pylist() == [1, 1, 0, 0, None, None]

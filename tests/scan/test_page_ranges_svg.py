"""The chart of a column has a bar for each page, for any file and name."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from builders.parquet.page_files import parquet_bytes
from tamis.errors import InvalidArgument
from tamis.parquet import inspect
from tamis.scan.report.page_ranges_svg import MAX_BARS, draw_page_ranges

NAMESPACE = "{http://www.w3.org/2000/svg}"


def draw_file(
    folder: Path, values: Any, name: str = "x", file_name: str = "f.parquet", row_group_size: int = 100, **options: Any
) -> str:
    path = folder / file_name
    path.write_bytes(parquet_bytes(pa.table({name: values}), row_group_size=row_group_size, **options))
    found = inspect(path)
    return draw_page_ranges(found, found.columns[0])


def list_texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{NAMESPACE}text")]


def list_bars(svg: str) -> list[tuple[float, float, float, float]]:
    """Return the rectangles of the pages: left, top, width, height."""
    paths = re.findall(r'<path d="([^"]+)" fill="#2f6fab"', svg)
    found = re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)h-[\d.]+z", "".join(paths))
    return [tuple(map(float, each)) for each in found]  # type: ignore[misc]


def test_sorted_pages_climb_like_stairs(tmp_path: Path) -> None:
    svg = draw_file(tmp_path, range(200), max_rows_per_page=20)
    found = list_bars(svg)
    assert len(found) == 10
    assert [left for left, *_ in found] == sorted(left for left, *_ in found)
    for (_, top, _, _), (_, next_top, _, next_height) in pairwise(found):
        assert next_top + next_height <= top + 2
    assert "Overlap 10 %: a typical value is in the range of 1 of 10 pages" in list_texts(svg)
    assert "200 rows in 2 row groups" in list_texts(svg)


def test_shuffled_pages_cover_everything(tmp_path: Path) -> None:
    values = np.random.default_rng(3).permutation(10_000)
    svg = draw_file(tmp_path, values, row_group_size=10_000, max_rows_per_page=500)
    heights = [height for *_, height in list_bars(svg)]
    assert len(heights) == 20
    assert min(heights) > 0.9 * max(heights)
    assert any(text.startswith("Overlap 100 %") for text in list_texts(svg))


def test_pages_of_one_value_can_be_seen(tmp_path: Path) -> None:
    assert all(height >= 2 for *_, height in list_bars(draw_file(tmp_path, [7] * 100, max_rows_per_page=10)))


def test_without_a_page_index_row_groups_are_drawn_and_labelled(tmp_path: Path) -> None:
    svg = draw_file(tmp_path, range(300), write_page_index=False)
    assert len(list_bars(svg)) == 3
    assert any("not every row group has a page index" in text for text in list_texts(svg))
    assert "from min to max of a row group" in list_texts(svg)


def test_pages_with_only_null_are_marked(tmp_path: Path) -> None:
    values = pa.array([None if number // 10 % 2 else number for number in range(100)], pa.int64())
    svg = draw_file(tmp_path, values, max_rows_per_page=10)
    assert len(list_bars(svg)) == 5
    assert "pages of NULL only" in list_texts(svg)
    assert "pages without known bounds" not in list_texts(svg)


def test_row_groups_without_bounds_are_marked(tmp_path: Path) -> None:
    values = [float("nan")] * 100 + [float(number) for number in range(200)]
    svg = draw_file(tmp_path, values)
    assert len(list_bars(svg)) == 2
    assert "row groups without known bounds" in list_texts(svg)
    assert any("2 of 3 row groups" in text for text in list_texts(svg))


@pytest.mark.parametrize("pages", [MAX_BARS, MAX_BARS + 1, 8_000])
def test_thousands_of_pages_stay_a_small_picture(tmp_path: Path, pages: int) -> None:
    count = pages * 4
    values = np.random.default_rng(5).integers(0, 10**9, count)
    svg = draw_file(tmp_path, values, row_group_size=count, max_rows_per_page=4, write_batch_size=4)
    assert f"of {pages:,} pages" in svg
    assert ("darker where more of them" in svg) == (pages > MAX_BARS)
    assert 1_000 < len(svg) < 400_000
    ElementTree.fromstring(svg)


def test_many_sorted_pages_are_a_line_and_not_an_area(tmp_path: Path) -> None:
    svg = draw_file(tmp_path, range(20_000), row_group_size=20_000, max_rows_per_page=5, write_batch_size=5)
    found = list_bars(svg)
    assert found
    assert max(height for *_, height in found) <= 8
    # The line spans the whole width and height.
    assert max(left for left, *_ in found) - min(left for left, *_ in found) > 700
    assert max(top for _, top, *_ in found) - min(top for _, top, *_ in found) > 300


def test_pages_that_alternate_show_two_lines(tmp_path: Path) -> None:
    values = [number // 4 % 2 * 1_000 for number in range(16_000)]
    found = list_bars(draw_file(tmp_path, values, row_group_size=16_000, max_rows_per_page=4, write_batch_size=4))
    assert max(height for *_, height in found) <= 8
    assert {round(top / 100) for _, top, *_ in found} == {round(min(t for _, t, *_ in found) / 100),
                                                          round(max(t for _, t, *_ in found) / 100)}  # fmt: skip


def test_many_row_groups_have_no_lines(tmp_path: Path) -> None:
    assert "a new row group" in list_texts(draw_file(tmp_path, range(100), row_group_size=10))
    assert "a new row group" not in list_texts(draw_file(tmp_path, range(400), row_group_size=1))


def test_X10_names_and_values_are_escaped(tmp_path: Path) -> None:
    name = "<script>alert('x')</script> & \"q\" \x1b[31m\x00"
    values = ["<b>&", "</svg>", "\x00\x01"]
    svg = draw_file(
        tmp_path, values, name=name.replace("\x00", ""), file_name="a <i> & 'b'.parquet", max_rows_per_page=1
    )
    root = ElementTree.fromstring(svg)
    assert {element.tag.removeprefix(NAMESPACE) for element in root.iter()} == {
        "svg", "title", "desc", "rect", "path", "text", "g",
    }  # fmt: skip
    assert "<script" not in svg
    assert any("<script>alert" in text for text in list_texts(svg))
    assert "\x1b" not in svg


def test_long_names_are_cut(tmp_path: Path) -> None:
    svg = draw_file(tmp_path, ["y" * 3_000] * 3, name="x" * 10_000)
    assert len(svg) < 10_000


def test_the_picture_has_an_accessible_description(tmp_path: Path) -> None:
    root = ElementTree.fromstring(draw_file(tmp_path, range(200), max_rows_per_page=20))
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "title description"
    assert root.findtext(f"{NAMESPACE}title") == "Ranges of the column x in f.parquet"
    assert "1 of 10 pages" in (root.findtext(f"{NAMESPACE}desc") or "")


@pytest.mark.parametrize(
    ("values", "options"),
    [
        (pa.nulls(10, pa.int64()), {}),
        (range(10), {"write_statistics": False, "write_page_index": False}),
        (pa.array([], pa.int64()), {}),
        (pa.array([1], pa.timestamp("ns")), {"use_deprecated_int96_timestamps": True}),
    ],
    ids=["null only", "no statistics", "no rows", "no order"],
)
def test_a_column_without_bounds_is_refused(tmp_path: Path, values: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="no bounds to draw for column 'x'"):
        draw_file(tmp_path, values, **options)


def test_lines_of_row_groups_lie_over_the_bars_and_in_the_legend(tmp_path: Path) -> None:
    svg = draw_file(tmp_path, range(300), max_rows_per_page=20)
    assert svg.count('stroke-dasharray="5 3"') == 2
    assert svg.index('stroke-dasharray="5 3"') > svg.index('fill="#2f6fab"')
    assert "a new row group" in list_texts(svg)
    assert "dasharray" not in draw_file(tmp_path, range(100), max_rows_per_page=20)


def test_the_axis_of_texts_is_labelled_by_rank(tmp_path: Path) -> None:
    svg = draw_file(tmp_path, [f"t{number:03}" for number in range(200)], name="word", max_rows_per_page=20)
    assert "word, by rank" in list_texts(svg)
    assert any("heights are ranks" in text for text in list_texts(svg))
    assert not any("ranks" in text for text in list_texts(draw_file(tmp_path, range(200))))

"""A picture of one column along its file: a bar for each page, from its smallest to its largest value.

Where a column is sorted the bars climb like stairs, and a value lies beside one of them. Where it is shuffled each bar
covers everything, and so a reader must open all pages. Row groups stand between dashed lines, drawn over the bars.

Up to `MOST_BARS` bars are drawn one by one. Of more, none would be a pixel wide: they are counted in cells, and a
cell is the darker the more of its pages cover it. So the picture has a bounded size, whatever the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.errors import InvalidArgument
from tamis.parquet.clustering import Clustering, has_both_bounds
from tamis.parquet.inspection import PAGES, ColumnInspection, FileInspection, Ranges
from tamis.report.axes import Axis, Tick, row_ticks, value_axis

MOST_BARS = 1_500
_MOST_LINES = 60

_WIDTH, _HEIGHT = 960, 540
_TOP, _RIGHT, _BOTTOM = 88, 28, 74
_LETTER = 6.7
_CELL = 2.0
_THINNEST = 2.0

_INK, _FAINT, _GRID, _BAR, _UNKNOWN, _NULLS = "#1f2937", "#6b7280", "#e5e7eb", "#2f6fab", "#d97706", "#9ca3af"
# The share of the pages of a cell from which on it has this opacity.
_SHADES = ((0.0, 0.35), (0.15, 0.55), (0.4, 0.75), (0.75, 0.95))

Floats = npt.NDArray[np.floating[Any]]
Rectangles = tuple[Floats, Floats, Floats, Floats]
"""Left, top, width and height of each."""


def page_ranges_svg(found: FileInspection, column: ColumnInspection) -> str:
    """The picture as the text of an SVG file."""
    ranges = column.ranges
    known = has_both_bounds(ranges.lower, ranges.upper) & ~ranges.has_no_values
    clustering = column.clustering
    if clustering is None or not known.any():
        raise InvalidArgument(
            f"nothing to draw of column {_shortened(column.name, 80)!r} of '{found.place}': the file has no bounds "
            "for it, because it was written without statistics, has only NULL, or is of a type without an order"
        )
    chosen = pa.array(known)
    axis = value_axis(ranges.lower.filter(chosen), ranges.upper.filter(chosen))
    frame = _Frame(left=_left_margin(axis.ticks), rows=found.rows)
    unknown = ~known & ~ranges.has_no_values
    body = [
        _grid(frame, axis.ticks),
        _strip(frame, ranges, unknown, f'fill="{_UNKNOWN}" fill-opacity="0.18"', frame.top, frame.height),
        _bars(frame, ranges, known, axis),
        _row_group_lines(frame, found),
        _strip(frame, ranges, ranges.has_no_values & (ranges.rows > 0), f'fill="{_NULLS}"', frame.bottom + 2, 4),
        _labels(frame, axis.ticks),
        _titles(frame, found, column, clustering),
        _legend(frame, ranges, unknown, len(found.row_groups)),
    ]
    return _document(found, column, clustering, body)


@dataclass(frozen=True, slots=True)
class _Frame:
    """The rectangle in which the bars are."""

    left: float
    rows: int
    top: float = _TOP
    right: float = _WIDTH - _RIGHT
    bottom: float = _HEIGHT - _BOTTOM

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top

    def x(self, rows: npt.NDArray[np.int64]) -> Floats:
        return self.left + rows / max(1, self.rows) * self.width

    def y(self, positions: Floats) -> Floats:
        # A little air, so that the extremes do not lie on the frame.
        return self.bottom - (0.03 + positions * 0.94) * self.height


# --- Bars ------------------------------------------------------------------------------------------------------------


def _bars(frame: _Frame, ranges: Ranges, known: npt.NDArray[np.bool_], axis: Axis) -> str:
    starts, ends = frame.x(ranges.first_rows[known]), frame.x((ranges.first_rows + ranges.rows)[known])
    highs, lows = frame.y(axis.upper), frame.y(axis.lower)
    # A range of one value is a line, which needs some thickness to be seen.
    missing = np.maximum(0, _THINNEST - (lows - highs)) / 2
    highs, lows = highs - missing, lows + missing
    if len(starts) > MOST_BARS:
        return _shaded(frame, starts, ends, highs, lows)
    gaps = np.minimum(1.0, (ends - starts) * 0.15)
    drawn = _path((starts, highs, np.maximum(ends - starts - gaps, 0.4), lows - highs))
    return f'<path d="{drawn}" fill="{_BAR}" fill-opacity="0.85"/>'


def _shaded(frame: _Frame, starts: Floats, ends: Floats, highs: Floats, lows: Floats) -> str:
    columns, lines = round(frame.width / _CELL), round(frame.height / _CELL)
    first = np.clip(((starts - frame.left) / frame.width * columns).astype(np.int64), 0, columns - 1)
    last = np.clip(np.ceil((ends - frame.left) / frame.width * columns).astype(np.int64) - 1, first, columns - 1)
    # A page once in each column of cells that it reaches into. Pages follow one another: few reach into many.
    reach = last - first + 1
    page = np.repeat(np.arange(len(first)), reach)
    column = first[page] + np.arange(len(page)) - np.repeat(np.cumsum(reach) - reach, reach)
    top = np.clip(((highs[page] - frame.top) / _CELL).astype(np.int64), 0, lines - 1)
    bottom = np.clip(np.ceil((lows[page] - frame.top) / _CELL).astype(np.int64) - 1, top, lines - 1)
    pages = np.zeros((columns, lines + 1), np.int64)
    np.add.at(pages, (column, top), 1)
    np.add.at(pages, (column, bottom + 1), -1)
    covering = np.cumsum(pages, axis=1)[:, :lines]
    of_all = np.maximum(1, np.bincount(column, minlength=columns))
    shade = np.where(covering > 0, np.digitize(covering / of_all[:, None], [share for share, _ in _SHADES]), 0)
    drawn = []
    for number, (_, opacity) in enumerate(_SHADES, start=1):
        # Runs of equal cells, from the top: where one begins and where it ends.
        edges = np.diff(np.pad((shade == number).astype(np.int8), ((0, 0), (1, 1))), axis=1)
        places, begins = np.nonzero(edges == 1)
        _, stops = np.nonzero(edges == -1)
        begin_x, begin_y = frame.left + places * _CELL, frame.top + begins * _CELL
        runs = _path((begin_x, begin_y, np.full(len(places), _CELL), (stops - begins) * _CELL))
        if runs:
            drawn.append(f'<path d="{runs}" fill="{_BAR}" fill-opacity="{opacity}" shape-rendering="crispEdges"/>')
    return "".join(drawn)


def _strip(frame: _Frame, ranges: Ranges, chosen: npt.NDArray[np.bool_], style: str, top: float, height: float) -> str:
    """Some pages as a strip, neighbours as one."""
    starts = np.floor(frame.x(ranges.first_rows[chosen]) * 2) / 2
    ends = np.ceil(frame.x((ranges.first_rows + ranges.rows)[chosen]) * 2) / 2
    if not len(starts):
        return ""
    begins = np.concatenate([[True], starts[1:] > ends[:-1]])
    stops = np.concatenate([begins[1:], [True]])
    count = int(begins.sum())
    left = starts[begins]
    drawn = _path((left, np.full(count, top), ends[stops] - left, np.full(count, height)))
    return f'<path d="{drawn}" {style}/>'


def _path(rectangles: Rectangles) -> str:
    each = zip(*(np.round(numbers, 2).tolist() for numbers in rectangles), strict=True)
    return "".join([f"M{left:g} {top:g}h{width:g}v{height:g}h{-width:g}z" for left, top, width, height in each])


# --- What is around --------------------------------------------------------------------------------------------------


def _left_margin(ticks: Iterable[Tick]) -> float:
    # A whole number of cells remains for the bars.
    letters = max((len(text) for _, text in ticks), default=0)
    return _CELL * round((44 + _LETTER * letters) / _CELL)


def _grid(frame: _Frame, ticks: list[Tick]) -> str:
    heights = frame.y(np.array([position for position, _ in ticks]))
    lines = "".join(f"M{frame.left:g} {y:g}H{frame.right:g}" for y in np.round(heights, 2).tolist())
    box = f"M{frame.left:g} {frame.top:g}V{frame.bottom:g}H{frame.right:g}"
    return f'<path d="{lines}" stroke="{_GRID}" fill="none"/><path d="{box}" stroke="{_FAINT}" fill="none"/>'


def _row_group_lines(frame: _Frame, found: FileInspection) -> str:
    starts = found.row_groups["first_row"].to_numpy()[1:]
    if not 0 < len(starts) <= _MOST_LINES:
        # More would be a grey area.
        return ""
    lines = "".join(f"M{x:g} {frame.top:g}V{frame.bottom:g}" for x in np.round(frame.x(starts), 2).tolist())
    return _dashed(lines)


def _dashed(lines: str) -> str:
    """Dark dashes on a white line, which are seen on bars and between them."""
    white = f'<path d="{lines}" stroke="#ffffff" stroke-width="2.5" stroke-opacity="0.8" fill="none"/>'
    return f'{white}<path d="{lines}" stroke="{_INK}" stroke-width="1.2" stroke-dasharray="5 3" fill="none"/>'


def _labels(frame: _Frame, ticks: list[Tick]) -> str:
    heights = frame.y(np.array([position for position, _ in ticks])).tolist()
    drawn = [
        _text(text, frame.left - 8, y + 4, anchor="end", size=11, fill=_INK)
        for (_, text), y in zip(ticks, heights, strict=True)
    ]
    for position, text in row_ticks(frame.rows):
        x = frame.left + position * frame.width
        drawn.append(f'<path d="M{x:.2f} {frame.bottom:g}v5" stroke="{_FAINT}"/>')
        # The last one must not leave the picture.
        anchor = "end" if x + _LETTER * len(text) / 2 > _WIDTH else "middle"
        drawn.append(_text(text, x, frame.bottom + 20, anchor=anchor, size=11, fill=_INK))
    return "".join(drawn)


def _titles(frame: _Frame, found: FileInspection, column: ColumnInspection, clustering: Clustering) -> str:
    axis = f"{_shortened(column.name, 40)}{', by rank' if _is_ranked(column) else ''}"
    y = frame.top + frame.height / 2
    name = _text(axis, 0, 0, anchor="middle", size=12, fill=_FAINT)
    middle = frame.left + frame.width / 2
    return "".join(
        (
            _text(_title(found, column, longest=100), 24, 30, size=17, fill=_INK, weight="600"),
            _text(_overlap_sentence(clustering), 24, 52, size=13, fill=_INK),
            _text(_extent_sentence(found, column), 24, 70, size=12, fill=_FAINT),
            _text("row of the file", middle, frame.bottom + 38, anchor="middle", size=12, fill=_FAINT),
            f'<g transform="translate(18 {y:g}) rotate(-90)">{name}</g>',
        )
    )


def _legend(frame: _Frame, ranges: Ranges, unknown: npt.NDArray[np.bool_], row_groups: int) -> str:
    unit = "page" if ranges.unit == PAGES else "row group"
    square = '<rect x="{x:g}" y="{y:g}" width="11" height="11" {style}/>'
    line = _dashed("M{x:g} {y:g}m5 -3v17")
    is_shaded = len(ranges.rows) - int(unknown.sum()) - int(ranges.has_no_values.sum()) > MOST_BARS
    bar = f"from min to max of {unit}s, darker where more of them" if is_shaded else f"from min to max of a {unit}"
    entries = [(square, f'fill="{_BAR}" fill-opacity="0.85"', bar)]
    if 1 < row_groups <= _MOST_LINES + 1:
        entries.append((line, "", "a new row group"))
    if (ranges.has_no_values & (ranges.rows > 0)).any():
        entries.append((square, f'fill="{_NULLS}"', f"{unit}s of NULL only"))
    if unknown.any():
        entries.append((square, f'fill="{_UNKNOWN}" fill-opacity="0.3"', f"{unit}s without known bounds"))
    x, y = frame.left, _HEIGHT - 22
    drawn = []
    for shape, style, text in entries:
        drawn.append(shape.format(x=x, y=y, style=style) + _text(text, x + 17, y + 10, size=11, fill=_FAINT))
        x += 17 + _LETTER * len(text) + 18
    return "".join(drawn)


# --- Words -----------------------------------------------------------------------------------------------------------


def percent(share: float) -> str:
    """A share for people.

    >>> percent(0.00123), percent(0.0512), percent(1.0)
    ('0.12 %', '5.1 %', '100 %')
    """
    number = share * 100
    return f"{number:.2f} %" if number < 1 else f"{number:.1f} %" if number < 10 else f"{number:.0f} %"


def _overlap_sentence(clustering: Clustering) -> str:
    unit = "page" if clustering.unit == PAGES else "row group"
    count = f"{clustering.units:,} {unit}{'' if clustering.units == 1 else 's'}"
    return (
        f"Overlap {percent(clustering.overlap)}: a typical value lies within the range of "
        f"{_few(clustering.units_per_value)} of {count}"
    )


def _few(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0") if number < 10 else f"{number:,.0f}"


def _extent_sentence(found: FileInspection, column: ColumnInspection) -> str:
    groups = found.row_groups.num_rows
    source = "" if column.ranges.unit == PAGES else "; not every row group has a page index for this column"
    ranks = "; heights are ranks in the order of the values, not distances" if _is_ranked(column) else ""
    return f"{found.rows:,} rows in {groups:,} row group{'' if groups == 1 else 's'}{source}{ranks}"


def _title(found: FileInspection, column: ColumnInspection, longest: int) -> str:
    name = found.place.rstrip("/").rpartition("/")[2]
    return f"{_shortened(column.name, longest // 2)} in {_shortened(name, longest // 2)}"


def _is_ranked(column: ColumnInspection) -> bool:
    data_type = column.row_groups["min"].type
    return any(
        is_kind(data_type) for is_kind in (pa.types.is_string, pa.types.is_binary, pa.types.is_fixed_size_binary)
    )


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _escaped(text: str) -> str:
    """Text for XML, which cannot hold control characters even as references."""
    return escape("".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text))


def _text(
    text: str, x: float, y: float, *, size: int, fill: str, anchor: str = "start", weight: str | None = None
) -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    look = f'font-size="{size}" fill="{fill}" text-anchor="{anchor}"{bold}'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{_escaped(text)}</text>'


def _document(found: FileInspection, column: ColumnInspection, clustering: Clustering, body: Iterable[str]) -> str:
    described = f"{_overlap_sentence(clustering)}. {_extent_sentence(found, column)}."
    content = "\n".join(part for part in body if part)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" \
height="{_HEIGHT}" role="img" aria-labelledby="title description" \
font-family="system-ui, 'Segoe UI', Helvetica, Arial, sans-serif">
<title id="title">{_escaped(f"Ranges of the column {_title(found, column, longest=400)}")}</title>
<desc id="description">{_escaped(described)}</desc>
<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>
{content}
</svg>
"""

"""The chart of one column along its file: a bar for each page, from its minimum to its maximum.

If a column is sorted the bars rise like stairs, and a value is in the range of one of them. If it is shuffled each bar
covers the whole range, so that a reader must read all pages. Dashed lines over the bars separate row groups.

Up to `MAX_BARS` bars are drawn one by one. More bars would be narrower than a pixel: they are counted in cells, and a
cell is darker the more of its pages cover it. So the size of the chart is bounded for every file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import InvalidArgument, format_count
from tamis.parquet.inspection.clustering import Clustering, has_both_bounds, rank_bounds
from tamis.parquet.inspection.inspect_file import PAGES, ColumnInspection, FileInspection, Ranges

MAX_BARS = 1_500
_MAX_LINES = 60

_WIDTH, _HEIGHT = 960, 540
_TOP, _RIGHT, _BOTTOM = 88, 28, 74
_LETTER = 6.7
_CELL = 2.0
_THINNEST = 2.0

_INK, _FAINT, _GRID, _BAR, _UNKNOWN, _NULLS = "#1f2937", "#6b7280", "#e5e7eb", "#2f6fab", "#d97706", "#9ca3af"
# The smallest share of pages that cover a cell, and its opacity.
_SHADES = ((0.0, 0.35), (0.15, 0.55), (0.4, 0.75), (0.75, 0.95))

Floats = npt.NDArray[np.floating[Any]]
Rectangles = tuple[Floats, Floats, Floats, Floats]
"""The left, top, width and height of rectangles."""


def draw_page_ranges(found: FileInspection, column: ColumnInspection) -> str:
    """Return the chart as the text of an SVG file."""
    ranges = column.ranges
    known = has_both_bounds(ranges.lower, ranges.upper) & ~ranges.has_no_values
    clustering = column.clustering
    if clustering is None or not known.any():
        raise InvalidArgument(
            f"no bounds to draw for column {_shorten(column.name, 80)!r} of '{found.location}': it was written without "
            "statistics, has only NULL, or has a type without an order"
        )
    chosen = pa.array(known)
    axis = make_value_axis(ranges.lower.filter(chosen), ranges.upper.filter(chosen))
    frame = _Frame(left=_compute_left_margin(axis.ticks), rows=found.rows)
    unknown = ~known & ~ranges.has_no_values
    body = [
        _draw_grid(frame, axis.ticks),
        _draw_strip(frame, ranges, unknown, f'fill="{_UNKNOWN}" fill-opacity="0.18"', frame.top, frame.height),
        _draw_bars(frame, ranges, known, axis),
        _draw_row_group_lines(frame, found),
        _draw_strip(frame, ranges, ranges.has_no_values & (ranges.rows > 0), f'fill="{_NULLS}"', frame.bottom + 2, 4),
        _draw_labels(frame, axis.ticks),
        _draw_titles(frame, found, column, clustering),
        _draw_legend(frame, ranges, unknown, len(found.row_groups)),
    ]
    return _make_document(found, column, clustering, body)


@dataclass(frozen=True, slots=True)
class _Frame:
    """The rectangle of the bars."""

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
        # A margin, so that the extremes are not drawn on the frame.
        return self.bottom - (0.03 + positions * 0.94) * self.height


# --- Bars ------------------------------------------------------------------------------------------------------------


def _draw_bars(frame: _Frame, ranges: Ranges, known: npt.NDArray[np.bool_], axis: Axis) -> str:
    starts, ends = frame.x(ranges.first_rows[known]), frame.x((ranges.first_rows + ranges.rows)[known])
    highs, lows = frame.y(axis.upper), frame.y(axis.lower)
    # A range of one value is a line, which needs some thickness to be visible.
    missing = np.maximum(0, _THINNEST - (lows - highs)) / 2
    highs, lows = highs - missing, lows + missing
    if len(starts) > MAX_BARS:
        return _draw_shaded(frame, starts, ends, highs, lows)
    gaps = np.minimum(1.0, (ends - starts) * 0.15)
    drawn = _draw_path((starts, highs, np.maximum(ends - starts - gaps, 0.4), lows - highs))
    return f'<path d="{drawn}" fill="{_BAR}" fill-opacity="0.85"/>'


def _draw_shaded(frame: _Frame, starts: Floats, ends: Floats, highs: Floats, lows: Floats) -> str:
    columns, lines = round(frame.width / _CELL), round(frame.height / _CELL)
    first = np.clip(((starts - frame.left) / frame.width * columns).astype(np.int64), 0, columns - 1)
    last = np.clip(np.ceil((ends - frame.left) / frame.width * columns).astype(np.int64) - 1, first, columns - 1)
    # Each page counts once in each column of cells that it overlaps. Pages are consecutive: few overlap many columns.
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
        # Vertical runs of equal cells: their starts and ends.
        edges = np.diff(np.pad((shade == number).astype(np.int8), ((0, 0), (1, 1))), axis=1)
        columns_of_runs, begins = np.nonzero(edges == 1)
        _, stops = np.nonzero(edges == -1)
        begin_x, begin_y = frame.left + columns_of_runs * _CELL, frame.top + begins * _CELL
        runs = _draw_path((begin_x, begin_y, np.full(len(columns_of_runs), _CELL), (stops - begins) * _CELL))
        if runs:
            drawn.append(f'<path d="{runs}" fill="{_BAR}" fill-opacity="{opacity}" shape-rendering="crispEdges"/>')
    return "".join(drawn)


def _draw_strip(
    frame: _Frame, ranges: Ranges, chosen: npt.NDArray[np.bool_], style: str, top: float, height: float
) -> str:
    """Draw some pages as a strip, adjacent ones merged."""
    starts = np.floor(frame.x(ranges.first_rows[chosen]) * 2) / 2
    ends = np.ceil(frame.x((ranges.first_rows + ranges.rows)[chosen]) * 2) / 2
    if not len(starts):
        return ""
    begins = np.concatenate([[True], starts[1:] > ends[:-1]])
    stops = np.concatenate([begins[1:], [True]])
    count = int(begins.sum())
    left = starts[begins]
    drawn = _draw_path((left, np.full(count, top), ends[stops] - left, np.full(count, height)))
    return f'<path d="{drawn}" {style}/>'


def _draw_path(rectangles: Rectangles) -> str:
    each = zip(*(np.round(numbers, 2).tolist() for numbers in rectangles), strict=True)
    return "".join([f"M{left:g} {top:g}h{width:g}v{height:g}h{-width:g}z" for left, top, width, height in each])


# --- Frame, labels, legend -------------------------------------------------------------------------------------------


def _compute_left_margin(ticks: Iterable[Tick]) -> float:
    # A whole number of cells remains for the bars.
    letters = max((len(text) for _, text in ticks), default=0)
    return _CELL * round((44 + _LETTER * letters) / _CELL)


def _draw_grid(frame: _Frame, ticks: list[Tick]) -> str:
    heights = frame.y(np.array([position for position, _ in ticks]))
    lines = "".join(f"M{frame.left:g} {y:g}H{frame.right:g}" for y in np.round(heights, 2).tolist())
    box = f"M{frame.left:g} {frame.top:g}V{frame.bottom:g}H{frame.right:g}"
    return f'<path d="{lines}" stroke="{_GRID}" fill="none"/><path d="{box}" stroke="{_FAINT}" fill="none"/>'


def _draw_row_group_lines(frame: _Frame, found: FileInspection) -> str:
    starts = found.row_groups["first_row"].to_numpy()[1:]
    if not 0 < len(starts) <= _MAX_LINES:
        # More lines would be a grey area.
        return ""
    lines = "".join(f"M{x:g} {frame.top:g}V{frame.bottom:g}" for x in np.round(frame.x(starts), 2).tolist())
    return _draw_dashed(lines)


def _draw_dashed(lines: str) -> str:
    """Draw dark dashes on a white line, visible on bars and between them."""
    white = f'<path d="{lines}" stroke="#ffffff" stroke-width="2.5" stroke-opacity="0.8" fill="none"/>'
    return f'{white}<path d="{lines}" stroke="{_INK}" stroke-width="1.2" stroke-dasharray="5 3" fill="none"/>'


def _draw_labels(frame: _Frame, ticks: list[Tick]) -> str:
    heights = frame.y(np.array([position for position, _ in ticks])).tolist()
    drawn = [
        _draw_text(text, frame.left - 8, y + 4, anchor="end", size=11, fill=_INK)
        for (_, text), y in zip(ticks, heights, strict=True)
    ]
    for position, text in make_row_ticks(frame.rows):
        x = frame.left + position * frame.width
        drawn.append(f'<path d="M{x:.2f} {frame.bottom:g}v5" stroke="{_FAINT}"/>')
        # The last label must stay inside the chart.
        anchor = "end" if x + _LETTER * len(text) / 2 > _WIDTH else "middle"
        drawn.append(_draw_text(text, x, frame.bottom + 20, anchor=anchor, size=11, fill=_INK))
    return "".join(drawn)


def _draw_titles(frame: _Frame, found: FileInspection, column: ColumnInspection, clustering: Clustering) -> str:
    axis = f"{_shorten(column.name, 40)}{', by rank' if _is_ranked(column) else ''}"
    y = frame.top + frame.height / 2
    name = _draw_text(axis, 0, 0, anchor="middle", size=12, fill=_FAINT)
    middle = frame.left + frame.width / 2
    return "".join(
        (
            _draw_text(_make_title(found, column, longest=100), 24, 30, size=17, fill=_INK, weight="600"),
            _draw_text(_describe_overlap(clustering), 24, 52, size=13, fill=_INK),
            _draw_text(_describe_extent(found, column), 24, 70, size=12, fill=_FAINT),
            _draw_text("row of the file", middle, frame.bottom + 38, anchor="middle", size=12, fill=_FAINT),
            f'<g transform="translate(18 {y:g}) rotate(-90)">{name}</g>',
        )
    )


def _draw_legend(frame: _Frame, ranges: Ranges, unknown: npt.NDArray[np.bool_], row_groups: int) -> str:
    unit = "page" if ranges.unit == PAGES else "row group"
    square = '<rect x="{x:g}" y="{y:g}" width="11" height="11" {style}/>'
    line = _draw_dashed("M{x:g} {y:g}m5 -3v17")
    is_shaded = len(ranges.rows) - int(unknown.sum()) - int(ranges.has_no_values.sum()) > MAX_BARS
    bar = f"from min to max of {unit}s, darker where more of them" if is_shaded else f"from min to max of a {unit}"
    entries = [(square, f'fill="{_BAR}" fill-opacity="0.85"', bar)]
    if 1 < row_groups <= _MAX_LINES + 1:
        entries.append((line, "", "a new row group"))
    if (ranges.has_no_values & (ranges.rows > 0)).any():
        entries.append((square, f'fill="{_NULLS}"', f"{unit}s of NULL only"))
    if unknown.any():
        entries.append((square, f'fill="{_UNKNOWN}" fill-opacity="0.3"', f"{unit}s without known bounds"))
    x, y = frame.left, _HEIGHT - 22
    drawn = []
    for shape, style, text in entries:
        drawn.append(shape.format(x=x, y=y, style=style) + _draw_text(text, x + 17, y + 10, size=11, fill=_FAINT))
        x += 17 + _LETTER * len(text) + 18
    return "".join(drawn)


# --- Texts -----------------------------------------------------------------------------------------------------------


def format_percent(share: float) -> str:
    """Return a share as a percentage.

    >>> format_percent(0.00123), format_percent(0.0512), format_percent(1.0)
    ('0.12 %', '5.1 %', '100 %')
    """
    number = share * 100
    return f"{number:.2f} %" if number < 1 else f"{number:.1f} %" if number < 10 else f"{number:.0f} %"


def _describe_overlap(clustering: Clustering) -> str:
    unit = "page" if clustering.unit == PAGES else "row group"
    return (
        f"Overlap {format_percent(clustering.overlap)}: a typical value is in the range of "
        f"{_format_number(clustering.units_per_value)} of {format_count(clustering.units, unit)}"
    )


def _format_number(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0") if number < 10 else f"{number:,.0f}"


def _describe_extent(found: FileInspection, column: ColumnInspection) -> str:
    groups = format_count(found.row_groups.num_rows, "row group")
    source = "" if column.ranges.unit == PAGES else "; not every row group has a page index for this column"
    ranks = "; heights are ranks in the order of the values, not distances" if _is_ranked(column) else ""
    return f"{found.rows:,} rows in {groups}{source}{ranks}"


def _make_title(found: FileInspection, column: ColumnInspection, longest: int) -> str:
    name = found.location.rstrip("/").rpartition("/")[2]
    return f"{_shorten(column.name, longest // 2)} in {_shorten(name, longest // 2)}"


def _is_ranked(column: ColumnInspection) -> bool:
    data_type = column.row_groups["min"].type
    return any(
        is_kind(data_type) for is_kind in (pa.types.is_string, pa.types.is_binary, pa.types.is_fixed_size_binary)
    )


def _shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _escape_xml(text: str) -> str:
    """Escape text for XML, which cannot hold control characters even as references."""
    return escape("".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text))


def _draw_text(
    text: str, x: float, y: float, *, size: int, fill: str, anchor: str = "start", weight: str | None = None
) -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    look = f'font-size="{size}" fill="{fill}" text-anchor="{anchor}"{bold}'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{_escape_xml(text)}</text>'


def _make_document(found: FileInspection, column: ColumnInspection, clustering: Clustering, body: Iterable[str]) -> str:
    description = f"{_describe_overlap(clustering)}. {_describe_extent(found, column)}."
    content = "\n".join(part for part in body if part)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" \
height="{_HEIGHT}" role="img" aria-labelledby="title description" \
font-family="system-ui, 'Segoe UI', Helvetica, Arial, sans-serif">
<title id="title">{_escape_xml(f"Ranges of the column {_make_title(found, column, longest=400)}")}</title>
<desc id="description">{_escape_xml(description)}</desc>
<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>
{content}
</svg>
"""


# --- Axes: positions of values between 0 and 1, and ticks -------------------------------------------------------------
#
# Numbers, dates and times are drawn to scale. Strings and binary values have an order but no distances, so they are
# drawn by their rank among all bounds.

Positions = npt.NDArray[np.floating[Any]]
Tick = tuple[float, str]
"""A position and its label."""

MAX_TICKS = 7
MAX_LABEL_LENGTH = 24


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """The positions of the bounds of some ranges, and the ticks."""

    lower: Positions
    upper: Positions
    ticks: list[Tick]


def make_value_axis(lower: pa.Array, upper: pa.Array) -> Axis:
    """Return the axis for known bounds; there must be at least one."""
    data_type = lower.type
    if types.is_text(data_type) or types.is_bytes(data_type):
        return _make_ranked_axis(lower, upper)
    if pa.types.is_floating(data_type) or pa.types.is_decimal(data_type):
        return _make_float_axis(*(np.asarray(pc.cast(bounds, pa.float64(), safe=False)) for bounds in (lower, upper)))
    return _make_integer_axis(lower, upper)


def make_row_ticks(rows: int) -> list[Tick]:
    """Return the ticks of an axis over the rows of a file."""
    return [(value / rows, f"{value:,}") for value in _choose_integer_steps(0, rows)] if rows else []


# --- Strings ---------------------------------------------------------------------------------------------------------


def _make_ranked_axis(lower: pa.Array, upper: pa.Array) -> Axis:
    first, last = rank_bounds(lower, upper)
    highest = int(last.max())
    scale = 1 / highest if highest else 1.0
    shift = 0.0 if highest else 0.5
    wanted = np.unique(np.linspace(0, highest, min(MAX_TICKS, highest + 1)).round().astype(np.int64))
    ranks, where = np.unique(np.concatenate([first, last]), return_index=True)
    bounds = pa.chunked_array([lower, upper]).combine_chunks()
    labels = bounds.take(pa.array(where[np.searchsorted(ranks, wanted)]))
    ticks = [(rank * scale + shift, _format_label(value)) for rank, value in zip(wanted.tolist(), labels, strict=True)]
    return Axis(first * scale + shift, last * scale + shift, ticks)


def _format_label(value: pa.Scalar) -> str:
    text = value.as_py()
    return _shorten(text.hex() if isinstance(text, bytes) else text or "''", MAX_LABEL_LENGTH)


# --- Floats ----------------------------------------------------------------------------------------------------------


def _make_float_axis(lower: Positions, upper: Positions) -> Axis:
    both = np.concatenate([lower, upper])
    finite = both[np.isfinite(both)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    # Halved, because the difference of the two may overflow.
    span = high / 2 - low / 2
    if not span > 0:
        # Infinities beside a single value.
        around = [(0.5, f"{low:g}")] if len(finite) else []
        sides = {-math.inf: 0.0, math.inf: 1.0}
        locate = np.vectorize(lambda value: sides.get(value, 0.5), otypes=[np.float64])
        return Axis(locate(lower), locate(upper), around)

    def position(values: Positions) -> Positions:
        return np.clip((values / 2 - low / 2) / span, 0, 1)

    ticks = [(float(position(np.array([value]))[0]), text) for value, text in _choose_fraction_steps(low, high)]
    return Axis(position(lower), position(upper), ticks)


def _choose_fraction_steps(low: float, high: float) -> Iterator[tuple[float, str]]:
    rough = (high / MAX_TICKS) - (low / MAX_TICKS)
    if rough <= 0 or not math.isfinite(1 / rough):
        # Too close together for further ticks.
        yield low, f"{low:g}"
        yield high, f"{high:g}"
        return
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    first = math.ceil(low / step)
    for number in range(first, first + MAX_TICKS + 2):
        value = number * step
        if value > high:
            return
        is_plain = digits <= 12 and abs(value) < 1e12
        yield value, f"{value + 0.0:,.{digits}f}" if is_plain else f"{value:.6g}"


# --- Integers, dates, times ------------------------------------------------------------------------------------------


def _make_integer_axis(lower: pa.Array, upper: pa.Array) -> Axis:
    numbers = [_to_integers(bounds) for bounds in (lower, upper)]
    low, high = int(numbers[0].min()), int(numbers[1].max())
    if low == high:
        middle = np.full(len(lower), 0.5)
        return Axis(middle, middle, [(0.5, text) for _, text in _choose_ticks(low, high, lower.type)][:1])
    span = high - low

    def position(values: npt.NDArray[Any]) -> Positions:
        # The distance from the lowest always fits unsigned 64 bits, by wrapping around.
        lowest = np.array([low], values.dtype).view(np.uint64)
        return (values.view(np.uint64) - lowest).astype(np.float64) / span

    ticks = [((value - low) / span, text) for value, text in _choose_ticks(low, high, lower.type)]
    return Axis(position(numbers[0]), position(numbers[1]), ticks)


def _to_integers(bounds: pa.Array) -> npt.NDArray[Any]:
    data_type = bounds.type
    if pa.types.is_temporal(data_type):
        bounds = bounds.view(pa.int32() if data_type.bit_width == 32 else pa.int64())
    kind = pa.uint64() if pa.types.is_unsigned_integer(data_type) else pa.int64()
    return np.asarray(pc.cast(bounds, kind))


def _choose_ticks(low: int, high: int, data_type: pa.DataType) -> list[tuple[int, str]]:
    if pa.types.is_boolean(data_type):
        return [(value, str(bool(value)).lower()) for value in range(low, high + 1)]
    if pa.types.is_date(data_type):
        per_second = 1 / 86_400 if pa.types.is_date32(data_type) else 1_000
        return _choose_time_ticks(low, high, "D" if pa.types.is_date32(data_type) else "ms", per_second)
    if pa.types.is_timestamp(data_type):
        return _choose_time_ticks(low, high, data_type.unit, types.UNITS_PER_SECOND[data_type.unit])
    if pa.types.is_time(data_type):
        found = _choose_time_ticks(low, high, data_type.unit, types.UNITS_PER_SECOND[data_type.unit])
        return [(value, text.rpartition(" ")[2]) for value, text in found]
    unit = f" {data_type.unit}" if pa.types.is_duration(data_type) else ""
    return [(value, f"{value:,}{unit}") for value in _choose_integer_steps(low, high)]


def _choose_integer_steps(low: int, high: int) -> list[int]:
    rough = max(1, -(-(high - low) // MAX_TICKS))
    power = 10 ** (len(str(rough)) - 1)
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = -(-low // step) * step
    return list(range(first, high + 1, step)) or [low]


# --- Time ticks ------------------------------------------------------------------------------------------------------

_STEPS = (
    *((10.0**-power * factor, 10 ** (9 - power) * factor, "ns") for power in range(9, 0, -1) for factor in (1, 2, 5)),
    *((count, count, "s") for count in (1, 2, 5, 10, 15, 30)),
    *((count * 60, count, "m") for count in (1, 2, 5, 10, 15, 30)),
    *((count * 3_600, count, "h") for count in (1, 2, 3, 6, 12)),
    *((count * 86_400, count, "D") for count in (1, 2, 5, 10)),
    *((count * 2_629_746, count, "M") for count in (1, 2, 3, 6)),
    *((10.0**power * factor * 31_556_952, 10**power * factor, "Y") for power in range(12) for factor in (1, 2, 5)),
)
"""The approximate seconds of a step, and the step as a count of a numpy unit."""


def _choose_time_ticks(low: int, high: int, unit: str, per_second: float) -> list[tuple[int, str]]:
    rough = (high - low) / per_second / MAX_TICKS
    _, count, step_unit = next((step for step in _STEPS if step[0] >= rough), _STEPS[-1])
    if low == high or not (_fits_unit(low, unit, step_unit) and _fits_unit(high, unit, step_unit)):
        return [(value, _format_time(value, unit)) for value in dict.fromkeys((low, high))]
    first, last = _convert_unit(low, unit, step_unit), _convert_unit(high, unit, step_unit)
    numbers = range(first // count * count, last + 1, count)
    ticks = [(_convert_unit(number, step_unit, unit), _format_time(number, step_unit)) for number in numbers]
    inside = [(value, text) for value, text in ticks if low <= value <= high]
    return inside or [(low, _format_time(low, unit))]


def _fits_unit(value: int, unit: str, step_unit: str) -> bool:
    """Return whether a time fits the unit of the steps: numpy counts in 64 bits and overflows silently."""
    if step_unit != "ns":
        return True
    nanoseconds = {"D": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    return abs(value) * nanoseconds < 2**63


def _convert_unit(value: int, unit: str, other_unit: str) -> int:
    """Convert a count of a unit since 1970 to another unit, rounded down."""
    times = np.array([value], np.int64).astype(f"datetime64[{unit}]").astype(f"datetime64[{other_unit}]")
    return int(times.astype(np.int64)[0])


def _format_time(value: int, unit: str) -> str:
    shown = "m" if unit == "h" else unit
    time = np.array([value], np.int64).astype(f"datetime64[{unit}]").astype(f"datetime64[{shown}]")[0]
    text = str(time).replace("T", " ")
    return text.rstrip("0").rstrip(".") if "." in text else text

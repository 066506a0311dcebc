"""Selections compared with naive booleans: every operation, on sizes around word and container boundaries."""

from __future__ import annotations

import pickle
import tracemalloc
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64, FrozenBitMap

import tamis.parquet
from tamis.errors import InvalidArgument
from tamis.parquet.selection.row_selection import RowSelection
from tamis.parquet.selection.runs import serialise_runs, split_at_containers

Mask = npt.NDArray[np.bool_]

SIZES = (0, 1, 2, 7, 63, 64, 65, 127, 128, 129, 65535, 65536, 65537, 131071, 131072, 131073)
LARGEST = 2**63 - 1

totals = st.one_of(st.sampled_from(SIZES), st.integers(0, 200))


@cache
def ranges_within(total: int, count: int = 8) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Ranges in any order, overlapping, touching or empty, with bounds near each other and near the edges."""
    near = [edge + step for edge in (0, 64, 65536, total // 2, total) for step in (-2, -1, 0, 1, 2)]
    bounds = st.one_of(st.sampled_from([bound for bound in near if 0 <= bound <= total]), st.integers(0, total))
    pairs = st.tuples(bounds, bounds).map(lambda pair: (min(pair), max(pair)))
    return st.lists(pairs, max_size=count)


@st.composite
def bits(draw: st.DrawFn, count: int) -> Mask:
    drawn = draw(st.integers(0, 2**count - 1)).to_bytes(count // 8 + 1, "little")
    return np.unpackbits(np.frombuffer(drawn, np.uint8), count=count, bitorder="little").astype(bool)


@st.composite
def masks(draw: st.DrawFn, total: int | None = None) -> Mask:
    rows = draw(totals) if total is None else total
    if rows <= 200 and draw(st.booleans()):
        return draw(bits(rows))
    mask = make_mask(draw(ranges_within(rows)), rows)
    if draw(st.booleans()):
        # A row range in which nearly every second row starts a run, possibly across the edge of a container.
        start = draw(st.sampled_from((0, max(0, rows - 100), min(rows, 65536 - 50))))
        mask[start : start + 100] ^= draw(bits(min(100, rows - start)))
    return mask


@st.composite
def mask_pairs(draw: st.DrawFn) -> tuple[Mask, Mask]:
    first = draw(masks())
    return first, draw(masks(first.size))


@st.composite
def row_groups(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Draw the row counts of the row groups of a file, some of them empty, and the indices of the kept row groups."""
    rows = draw(st.lists(st.one_of(st.integers(0, 5), st.sampled_from((63, 64, 65, 65535, 65536))), max_size=6))
    return rows, [row_group for row_group in range(len(rows)) if draw(st.booleans())]


def make_mask(ranges: list[tuple[int, int]], total: int) -> Mask:
    mask = np.zeros(total, dtype=bool)
    for start, end in ranges:
        mask[start:end] = True
    return mask


def assert_selects(selection: RowSelection, mask: Mask) -> None:
    """Check that the selection holds these rows, in normal form."""
    ranges = selection.ranges()
    assert selection.total == mask.size
    assert np.array_equal(make_mask(ranges, mask.size), mask)
    assert all(start < end for start, end in ranges)
    assert all(before[1] < after[0] for before, after in pairwise(ranges))
    assert selection.starts.dtype == selection.ends.dtype == np.int64
    assert not selection.starts.flags.writeable
    assert not selection.ends.flags.writeable
    assert (selection.num_runs, selection.row_count) == (len(ranges), int(mask.sum()))
    assert type(selection.total) is type(selection.row_count) is type(selection.num_runs) is int
    assert (selection.is_empty, selection.is_all) == (not mask.any(), bool(mask.all()))


# --- Creation ---------------------------------------------------------------------------------------------------------


@given(st.data(), totals)
def test_ranges_in_any_order_are_normalised(data: st.DataObject, total: int) -> None:
    ranges = data.draw(ranges_within(total, count=20))
    expected = make_mask(ranges, total)
    made = RowSelection.from_ranges(ranges, total)
    assert_selects(made, expected)
    starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
    assert RowSelection.from_ranges(np.array(ranges, dtype=np.uint32).reshape(-1, 2), total) == made
    assert RowSelection.from_ranges(iter(ranges), np.int64(total)) == made
    assert RowSelection(starts, ends, total) == made
    assert RowSelection(np.array(starts, np.int32), np.array(ends, np.uint64), total) == made
    assert RowSelection.from_ranges(data.draw(st.permutations(ranges)), total) == made


@given(masks())
def test_masks_there_and_back(mask: Mask) -> None:
    selection = RowSelection.from_mask(mask)
    assert_selects(selection, mask)
    assert RowSelection.from_mask(mask.tolist()) == selection
    assert RowSelection.from_mask(pa.array(mask)) == selection
    padded = pa.array(np.concatenate(([True] * 3, mask, [True] * 5)))
    assert RowSelection.from_mask(padded.slice(3, mask.size)) == selection
    parts = pa.chunked_array([pa.array(mask[:5]), pa.array(mask[5:])])
    assert RowSelection.from_mask(parts) == selection

    assert selection.to_numpy_mask().dtype == np.bool_
    assert np.array_equal(selection.to_numpy_mask(), mask)
    assert selection.to_mask().equals(pa.array(mask, pa.bool_()))


@given(masks(), st.integers(0, 2**32))
def test_indices_there_and_back(mask: Mask, seed: int) -> None:
    indices = np.flatnonzero(mask)
    selection = RowSelection.from_indices(indices, mask.size)
    assert_selects(selection, mask)
    assert selection.to_indices().dtype == np.int64
    assert np.array_equal(selection.to_indices(), indices)
    shuffled = np.random.default_rng(seed).permutation(np.concatenate((indices, indices[:10])))
    assert RowSelection.from_indices(shuffled.astype(np.uint32), mask.size) == selection
    assert RowSelection.from_indices(indices.tolist(), mask.size) == selection


@pytest.mark.parametrize("total", SIZES)
def test_all_and_none(total: int) -> None:
    assert_selects(RowSelection.all(total), np.ones(total, bool))
    assert_selects(RowSelection.none(total), np.zeros(total, bool))
    assert ~RowSelection.all(total) == RowSelection.none(total)
    assert ~RowSelection.none(total) == RowSelection.all(total)


def test_a_selection_does_not_change_with_the_arrays_it_was_made_of() -> None:
    starts, ends, mask = np.array([3]), np.array([5]), np.array([True, False])
    ranged, masked = RowSelection(starts, ends, 10), RowSelection.from_mask(mask)
    starts[0], mask[0] = 0, False
    assert (ranged.ranges(), masked.ranges()) == ([(3, 5)], [(0, 1)])
    with pytest.raises(ValueError, match="read-only"):
        ranged.starts[0] = 1


@pytest.mark.parametrize(
    ("ranges", "shown"),
    [
        ([(-1, 5)], r"\[-1, 5\) in 10 rows"),
        ([(0, 3), (5, 11)], r"\[5, 11\) in 10 rows"),
        ([(0, 3), (6, 5)], r"\[6, 5\) in 10 rows"),
        ([(12, 12)], r"\[12, 12\) in 10 rows"),
        ([(0, 2**64)], "63 bits"),
        (np.array([[0, 2**63]], np.uint64), "at most 9223372036854775807"),
        ([(0.0, 2.0)], "whole numbers"),
        ([(0, 1), (2,)], "whole numbers"),
        ([(0, 1, 2)], "pairs"),
        ([0, 1], "pairs"),
        ((np.array([0, 4]), np.array([2, 6])), r"RowSelection\(starts, ends, total\)"),
    ],
)
def test_invalid_ranges_are_rejected(ranges: object, shown: str) -> None:
    with pytest.raises(InvalidArgument, match=shown):
        RowSelection.from_ranges(ranges, 10)  # type: ignore[arg-type]


def test_other_invalid_input_is_rejected() -> None:
    with pytest.raises(InvalidArgument, match="NULL"):
        RowSelection.from_mask(pa.array([True, None, False]))
    with pytest.raises(InvalidArgument, match="NULL"):
        RowSelection.from_mask(pa.chunked_array([[True], [None]], pa.bool_()))
    with pytest.raises(InvalidArgument, match="booleans"):
        RowSelection.from_mask(np.array([0, 1]))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="booleans"):
        RowSelection.from_mask(np.zeros((2, 2), bool))
    for wrong in (-1, 10):
        with pytest.raises(InvalidArgument, match=f"no row {wrong} in 10 rows"):
            RowSelection.from_indices([3, wrong, 5], 10)
    with pytest.raises(InvalidArgument, match="whole numbers"):
        RowSelection.from_indices(pa.array([1, None]), 10)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="one dimension"):
        RowSelection.from_indices(np.zeros((2, 2), int), 10)
    with pytest.raises(InvalidArgument, match=r"shapes are \(1,\) and \(2,\)"):
        RowSelection([0], [1, 2], 10)
    for total in (-1, 2**63):
        with pytest.raises(InvalidArgument, match=f"rows, found {total}"):
            RowSelection.none(total)


# --- Algebra ----------------------------------------------------------------------------------------------------------


@given(mask_pairs())
def test_algebra_is_that_of_booleans(pair: tuple[Mask, Mask]) -> None:
    first, second = pair
    one, other = RowSelection.from_mask(first), RowSelection.from_mask(second)
    assert_selects(one & other, first & second)
    assert_selects(one | other, first | second)
    assert_selects(one - other, first & ~second)
    assert_selects(~one, ~first)
    assert one.intersection(other) == one & other
    assert one.union(other) == one | other
    assert one.difference(other) == one - other
    assert one.invert() == ~one
    assert (one == other) == np.array_equal(first, second)


@given(masks())
def test_selections_that_hold_all_or_nothing_are_neutral(mask: Mask) -> None:
    selection, rows = RowSelection.from_mask(mask), mask.size
    everything, nothing = RowSelection.all(rows), RowSelection.none(rows)
    assert selection & everything == everything & selection == selection | nothing == nothing | selection == selection
    assert selection | everything == everything | selection == everything
    assert selection & nothing == nothing & selection == selection - selection == nothing
    assert selection - nothing == ~~selection == selection


def test_selections_over_different_totals_cannot_be_combined() -> None:
    one, other = RowSelection.all(10), RowSelection.all(12)
    for operation in (RowSelection.union, RowSelection.intersection, RowSelection.difference, RowSelection.relative_to):
        with pytest.raises(InvalidArgument, match="over 10 rows cannot be combined with one over 12"):
            operation(one, other)
    with pytest.raises(InvalidArgument, match=r"10 rows are selected, but .* over 12"):
        one.and_then(other)
    with pytest.raises(TypeError):
        np.array([True]) & one
    with pytest.raises(TypeError):
        one | np.array([True])  # type: ignore[operator]


# --- Selections of other rows -----------------------------------------------------------------------------------------


@given(st.data(), masks())
def test_and_then_narrows_the_selected_rows_and_relative_to_undoes_it(data: st.DataObject, mask: Mask) -> None:
    inner = data.draw(masks(int(mask.sum())))
    expected = np.zeros_like(mask)
    expected[np.flatnonzero(mask)[inner]] = True
    outer, narrowing = RowSelection.from_mask(mask), RowSelection.from_mask(inner)
    narrowed = outer.and_then(narrowing)
    assert_selects(narrowed, expected)
    assert_selects(narrowed.relative_to(outer), inner)


@given(mask_pairs())
def test_rows_outside_the_outer_selection_are_an_error(pair: tuple[Mask, Mask]) -> None:
    wanted, at_hand = pair
    missing = np.flatnonzero(wanted & ~at_hand)
    selection, outer = RowSelection.from_mask(wanted), RowSelection.from_mask(at_hand)
    if missing.size:
        with pytest.raises(InvalidArgument, match=f"row {missing[0]} is selected, but it is not among"):
            selection.relative_to(outer)
    else:
        assert_selects(selection.relative_to(outer), wanted[at_hand])


@given(st.data(), masks())
def test_positions_within_pages_that_were_read(data: st.DataObject, mask: Mask) -> None:
    bounds = sorted(bound for pair in data.draw(ranges_within(mask.size)) for bound in pair)
    pages = list(pairwise(bounds))
    read = [page for page in pages if data.draw(st.booleans())]
    rows = np.concatenate([np.arange(0), *(np.arange(start, end) for start, end in read)])
    selection = RowSelection.from_mask(mask & make_mask(read, mask.size))
    positions = selection.positions_within(read)
    assert np.array_equal(rows[positions], selection.to_indices())
    assert np.array_equal(selection.positions_within(np.array(read, np.int64).reshape(-1, 2)), positions)


def test_pages_out_of_order_or_missing_are_refused() -> None:
    selection = RowSelection.from_ranges([(5, 8)], 20)
    assert selection.positions_within([(0, 2), (4, 6), (6, 6), (6, 20)]).tolist() == [3, 4, 5]
    for ranges in ([(6, 20), (0, 6)], [(0, 10), (5, 20)]):
        with pytest.raises(InvalidArgument, match="sorted"):
            selection.positions_within(ranges)
    with pytest.raises(InvalidArgument, match="row 7 is selected"):
        selection.positions_within([(0, 7), (8, 20)])
    with pytest.raises(InvalidArgument, match=r"invalid range \[0, 21\)"):
        selection.positions_within([(0, 21)])


@given(st.data(), masks())
def test_slices_count_from_their_start(data: st.DataObject, mask: Mask) -> None:
    for start, end in data.draw(ranges_within(mask.size)):
        assert_selects(RowSelection.from_mask(mask).slice(start, np.int64(end - start)), mask[start:end])


def test_slices_beyond_the_rows_are_refused() -> None:
    for start, length in ((-1, 2), (5, 6), (11, 0), (5, -1)):
        with pytest.raises(InvalidArgument, match="invalid range"):
            RowSelection.all(10).slice(start, length)


@given(st.data(), row_groups())
def test_split_at_row_groups_and_concat(data: st.DataObject, groups: tuple[list[int], list[int]]) -> None:
    rows, _ = groups
    mask = data.draw(masks(sum(rows)))
    selection = RowSelection.from_mask(mask)
    parts = selection.split(rows)
    for part, expected in zip(parts, np.split(mask, np.cumsum(rows)[:-1]) if rows else [], strict=True):
        assert_selects(part, expected)
    assert RowSelection.concat(parts) == selection
    assert_selects(RowSelection.concat(iter(parts)), mask)


def test_mismatched_row_groups_are_rejected() -> None:
    selection = RowSelection.all(10)
    with pytest.raises(InvalidArgument, match="over 10 rows cannot be split into row groups with 9 rows"):
        selection.split([4, 5])
    with pytest.raises(InvalidArgument, match="non-negative"):
        selection.split([11, -1])
    with pytest.raises(InvalidArgument, match="more than 9223372036854775807 rows"):
        selection.split([LARGEST, LARGEST, 12])
    with pytest.raises(InvalidArgument, match="over 10 rows does not match the kept row groups, which have 5"):
        selection.in_file([0], [5, 5])
    with pytest.raises(InvalidArgument, match="over 10 rows does not match a file of 15 rows"):
        selection.in_row_groups([0], [5, 10])
    for kept in ([1, 0], [0, 0], [0, 2], [-1, 0]):
        with pytest.raises(InvalidArgument, match="ascending numbers below 2"):
            selection.in_file(kept, [5, 5])


# --- Kept row groups and the file -------------------------------------------------------------------------------------


@given(st.data(), row_groups())
def test_P6_dropped_row_groups_shift_positions(data: st.DataObject, groups: tuple[list[int], list[int]]) -> None:
    rows, kept = groups
    mask = data.draw(masks(sum(rows[row_group] for row_group in kept)))
    # Computed naively: each row of the file, and whether its row group is kept.
    group_of_row = np.repeat(np.arange(len(rows)), rows)
    is_kept = np.isin(group_of_row, kept)
    in_file = np.zeros(sum(rows), bool)
    in_file[is_kept] = mask

    selection = RowSelection.from_mask(mask)
    whole = selection.in_file(kept, rows)
    assert_selects(whole, in_file)
    assert selection.in_file(np.array(kept, int), np.array(rows)) == whole
    assert whole.in_row_groups(kept, rows) == selection
    anywhere = data.draw(masks(sum(rows)))
    assert_selects(RowSelection.from_mask(anywhere).in_row_groups(kept, rows), anywhere[is_kept])


def test_P6_a_kept_row_group_without_rows_between_dropped_ones_adds_no_run() -> None:
    selection, kept, rows = RowSelection.all(10), [0, 2, 4], [5, 7, 0, 7, 5]
    assert_selects(selection.in_file(kept, rows), make_mask([(0, 5), (19, 24)], 24))
    assert selection.in_file(kept, rows).in_row_groups(kept, rows) == selection


def test_P6_rows_of_a_file_whose_first_and_middle_row_groups_were_dropped(tmp_path: Path) -> None:
    path = tmp_path / "four_groups.parquet"
    pq.write_table(pa.table({"row": list(range(40))}), path, row_group_size=10)
    file, kept = pq.ParquetFile(path), [1, 3]
    rows = [file.metadata.row_group(row_group).num_rows for row_group in range(4)]
    selection = RowSelection.from_ranges([(8, 12), (19, 20)], 20)

    read = file.read_row_groups(kept)["row"].combine_chunks()
    positions = selection.in_file(kept, rows).to_indices()
    assert positions.tolist() == [18, 19, 30, 31, 39]
    assert read.filter(selection.to_mask()).to_pylist() == positions.tolist()
    assert read.take(pa.array(selection.to_indices())).to_pylist() == positions.tolist()
    assert selection.in_file(kept, rows).ranges() == [(18, 20), (30, 32), (39, 40)]


def test_P5_deletes_by_position_in_the_file_meet_the_kept_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "deletes.parquet"
    pq.write_table(pa.table({"row": list(range(40))}), path, row_group_size=10)
    kept, rows, deleted = [1, 3], [10] * 4, BitMap64([0, 18, 25, 39])
    left = RowSelection.all(20) - RowSelection.from_roaring(deleted, 40).in_row_groups(kept, rows)
    read = pq.ParquetFile(path).read_row_groups(kept).filter(left.to_mask())["row"].to_pylist()
    assert read == [row for row in [*range(10, 20), *range(30, 40)] if row not in deleted]


def test_P4_a_row_group_without_a_selected_row_leaves_the_others_alone() -> None:
    parts = RowSelection.from_ranges([(0, 5), (20, 25)], 30).split([10, 10, 0, 10])
    assert [part.ranges() for part in parts] == [[(0, 5)], [], [], [(0, 5)]]
    assert [part.total for part in parts] == [10, 10, 0, 10]


# --- Ranges such as pages ---------------------------------------------------------------------------------------------


@given(st.data(), masks())
def test_selected_rows_of_each_range(data: st.DataObject, mask: Mask) -> None:
    ranges = data.draw(ranges_within(mask.size, count=20))
    starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
    selection = RowSelection.from_mask(mask)
    counts = [int(mask[start:end].sum()) for start, end in ranges]
    assert selection.overlaps(np.array(starts, np.int32), np.array(ends)).tolist() == [count > 0 for count in counts]


def test_P3_pages_are_wanted_up_to_the_last_selected_row() -> None:
    selection = RowSelection.from_ranges([(9, 21)], 40)
    assert selection.overlaps([0, 10, 20, 30], [10, 20, 30, 40]).tolist() == [True, True, True, False]
    assert selection.overlaps([0, 9, 21], [9, 21, 40]).tolist() == [False, True, False]
    with pytest.raises(InvalidArgument, match=r"invalid range \[30, 41\)"):
        selection.overlaps([30], [41])
    with pytest.raises(InvalidArgument, match=r"invalid range \[5, 4\)"):
        selection.overlaps([5], [4])


# --- Roaring ----------------------------------------------------------------------------------------------------------


@given(masks())
def test_roaring_there_and_back(mask: Mask) -> None:
    selection, rows = RowSelection.from_mask(mask), np.flatnonzero(mask).tolist()
    narrow, wide = selection.to_roaring(), selection.to_roaring64()
    assert (type(narrow), type(wide)) == (BitMap, BitMap64)
    assert narrow == BitMap(rows)
    assert wide == BitMap64(rows)
    assert narrow.serialize() == BitMap.deserialize(narrow.serialize()).serialize()
    for bitmap in (narrow, wide, FrozenBitMap(rows), BitMap(rows, optimize=False)):
        assert_selects(RowSelection.from_roaring(bitmap, mask.size), mask)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_random_rows_over_several_containers(share: float) -> None:
    """A bitmap stores few rows as arrays, many as bits and nearly all as runs."""
    random = np.random.default_rng(5)
    first, second = random.random(200_001) < share, random.random(200_001) < share
    one, other = RowSelection.from_mask(first), RowSelection.from_mask(second)
    assert_selects(one, first)
    assert_selects(one & other, first & second)
    assert_selects(one | other, first | second)
    assert_selects(one.and_then(other.slice(0, one.row_count)).relative_to(one), second[: one.row_count])
    assert one.to_roaring() == BitMap(np.flatnonzero(first))
    assert one.to_roaring64() == BitMap64(np.flatnonzero(first))
    assert RowSelection.from_roaring(one.to_roaring(), one.total) == one
    assert RowSelection.from_roaring(one.to_roaring64(), one.total) == one
    assert RowSelection.from_roaring(BitMap(np.flatnonzero(first)), one.total) == one


@pytest.mark.parametrize("containers", [1, 3, 4, 5, 9, 65536])
def test_bytes_of_runs_are_those_that_roaring_writes(containers: int) -> None:
    first = np.arange(containers, dtype=np.int64) * 65536 + 10
    starts = np.sort(np.concatenate((first, first + 9_000)))
    ends = np.sort(np.concatenate((first + 8_000, first + 9_500)))
    bitmap = RowSelection(starts, ends, 2**32).to_roaring()
    assert bitmap.get_statistics()["n_run_containers"] == containers
    assert serialise_runs(*split_at_containers(starts, ends)) == bitmap.serialize()


@given(st.data(), st.sampled_from((2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**33 + 65536, 2**36)))
def test_roaring_of_rows_around_the_limits_of_32_bits(data: st.DataObject, total: int) -> None:
    bounds = [bound for edge in (0, 2**31, 2**32, 2**33, total) for bound in range(edge - 2, edge + 3)]
    bound = st.sampled_from([bound for bound in bounds if 0 <= bound <= total])
    pairs = data.draw(st.lists(st.tuples(bound, st.integers(0, 70_000)), max_size=5))
    ranges = [(start, min(start + length, total)) for start, length in pairs]
    selection, expected = RowSelection.from_ranges(ranges, total), BitMap64()
    for start, end in ranges:
        if start < end:
            expected.add_range(start, end)
    assert selection.to_roaring64() == expected
    assert RowSelection.from_roaring(expected, total) == selection
    if total <= 2**32:
        assert BitMap64(selection.to_roaring()) == expected
        assert RowSelection.from_roaring(selection.to_roaring(), total) == selection


def test_32_bits_hold_exactly_2_to_the_32_rows() -> None:
    full = RowSelection.all(2**32).to_roaring()
    assert (len(full), full.max()) == (2**32, 2**32 - 1)
    assert RowSelection.from_roaring(full, 2**32).is_all
    # The total decides, not the selected rows: otherwise the error would depend on the data.
    with pytest.raises(InvalidArgument, match=r"4294967297 rows .*: use to_roaring64\(\)"):
        RowSelection.none(2**32 + 1).to_roaring()
    assert len(RowSelection.all(2**32 + 1).to_roaring64()) == 2**32 + 1


def test_one_long_run_of_a_bitmap_takes_no_memory_for_each_row() -> None:
    for bitmap in (BitMap(), BitMap64()):
        bitmap.add_range(7, 2**31)
        tracemalloc.start()
        try:
            selection = RowSelection.from_roaring(bitmap, 2**31)
            assert selection.ranges() == [(7, 2**31)]
            assert len(selection.to_roaring()) == len(selection.to_roaring64()) == 2**31 - 7
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 32 * 1024 * 1024


def test_bitmaps_out_of_range_are_rejected() -> None:
    for bitmap in (BitMap([3, 10]), BitMap64([3, 10])):
        assert RowSelection.from_roaring(bitmap, 11).ranges() == [(3, 4), (10, 11)]
        with pytest.raises(InvalidArgument, match="row 10 of the bitmap is out of range: the selection has 10 rows"):
            RowSelection.from_roaring(bitmap, 10)
    with pytest.raises(InvalidArgument, match="row 18446744073709551615 of the bitmap"):
        RowSelection.from_roaring(BitMap64([2**64 - 1]), LARGEST)
    with pytest.raises(InvalidArgument, match=r"found set"):
        RowSelection.from_roaring({1, 2}, 10)  # type: ignore[arg-type]


# --- Large totals, and as a value -------------------------------------------------------------------------------------


def test_P9_more_rows_than_32_bits_count() -> None:
    total = LARGEST
    selection = RowSelection.from_ranges([(2**31 - 1, 2**31 + 1), (2**62, total)], total)
    assert (~~selection, ~selection | selection) == (selection, RowSelection.all(total))
    assert selection.row_count == 2 + total - 2**62
    assert selection.slice(2**62 - 1, 3).ranges() == [(1, 3)]
    assert [part.row_count for part in selection.split([2**31, total - 2**31])] == [1, selection.row_count - 1]
    assert RowSelection.concat([RowSelection.all(total - 1), RowSelection.all(1)]).is_all
    with pytest.raises(InvalidArgument, match="total of a selection must be"):
        RowSelection.concat([RowSelection.all(total), RowSelection.all(1)])


@given(mask_pairs())
def test_equal_rows_are_equal_values(pair: tuple[Mask, Mask]) -> None:
    one, other = RowSelection.from_mask(pair[0]), RowSelection.from_mask(pair[1])
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    assert hash(again) == hash(one)
    assert not again.starts.flags.writeable
    assert len({one, again, other}) == (1 if np.array_equal(*pair) else 2)


def test_a_selection_is_not_a_container() -> None:
    nothing = RowSelection.none(5)
    assert nothing != RowSelection.none(6)
    assert nothing != []
    assert (nothing or RowSelection.all(5)) is nothing
    with pytest.raises(TypeError, match="no len"):
        len(nothing)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not iterable"):
        iter(nothing)  # type: ignore[call-overload]


def test_the_repr_stays_short() -> None:
    assert repr(RowSelection.none(5)) == "RowSelection(0 of 5 rows)"
    assert repr(RowSelection.all(5)) == "RowSelection(5 of 5 rows: [0, 5))"
    many = RowSelection.from_indices(range(0, 2000, 2), 2000)
    assert repr(many) == "RowSelection(1000 of 2000 rows: [0, 1) [2, 3) [4, 5) [6, 7) … 1000 runs)"


def test_the_public_name_is_the_class() -> None:
    assert tamis.parquet.RowSelection is RowSelection

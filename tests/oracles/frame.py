"""One frame for all oracles: what a format gives, and the properties that hold for every format.

A format writes a random table into a folder, and gives the oracle (DuckDB) its rows. From that follow

| property | what holds |
|---|---|
| O1 | every subset of levels returns the rows for which the predicate is TRUE, and as many are counted |
| O2 | the rows of p, of NOT p and of p IS NULL are all rows |
| O3 | a unit with a row for which p is TRUE is kept |
| O4 | a fully matched unit has only such rows |
| O5 | with weaker statistics no kept unit becomes skipped, and no unit becomes fully matched |
| O6 | a unit that both p and NOT p skip has only rows for which p is NULL |
| O9 | what files prove about conjuncts changes neither the rows nor the row groups and pages that are read |

O1, O2 and O9 need a `RowTable`, O3 to O6 a `UnitTable`, whose units are files, pages, or other units with metadata.
(O7, policies, is in `tests/query`, and O8, plans by workers equal local ones, in `tests/engines`.)
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.answers.oracle import evaluate_predicates
from builders.effort import IS_THOROUGH
from builders.values.choices import Choices
from builders.values.predicates import OraclePredicate, make_unknown_test, negate_predicate
from tamis.expr.nodes import Expr, and_
from tamis.formats.source import LEVELS
from tamis.scan.scan import Scan, get_planner
from tamis.tuning import DEFAULT_TUNING, Tuning

SUBSETS = [subset for size in range(len(LEVELS) + 1) for subset in itertools.combinations(LEVELS, size)]

ROW = "row_id"
"""The column that identifies rows, in all tables but single files."""

Unit = Hashable
Kept = Mapping[Unit, bool]
"""The units that a predicate keeps, and whether each is fully matched."""


# --- What a format gives ----------------------------------------------------------------------------------------------


class OracleTable(Protocol):
    """A random table, with predicates about it."""

    predicates: Sequence[OraclePredicate]
    notes: object
    """What was done to the table, for the message of a failed check."""

    @property
    def oracle_rows(self) -> pa.Table:
        """The rows as the oracle reads them."""
        ...


@dataclass
class RowTable:
    """A table that is scanned; each format overrides what is special about it."""

    rows: pa.Table
    predicates: Sequence[OraclePredicate]
    notes: object = ""

    @property
    def oracle_rows(self) -> pa.Table:
        return self.rows

    def scan(self, where: Expr | None = None, **options: Any) -> Scan:
        raise NotImplementedError

    def project(self, choices: Choices) -> tuple[list[str] | None, pa.Table]:
        """Return the columns to scan, and the rows with just these."""
        return None, self.rows

    def is_same(self, found: pa.Table, expected: pa.Table) -> bool:
        """Return whether a scan found the expected rows, values and types included."""
        raise NotImplementedError

    def identify(self, rows: pa.Table) -> list[Hashable]:
        """Return a key for each row that identifies it, or at least its values."""
        return rows[ROW].to_pylist()

    def check_plan(self, scan: Scan) -> None:
        """Check the plan of a scan, before it is read."""

    def check_more(self, where: Expr, levels: Sequence[str], expected: pa.Table, tuning: Tuning) -> None:
        """Check what only this format promises for a scan."""


class UnitTable(OracleTable, Protocol):
    """A table whose metadata describes units of rows."""

    def list_units(self) -> Mapping[Unit, Sequence[int]]:
        """Return the rows of each unit, as positions in `oracle_rows`."""
        ...

    def prune(self, predicate: OraclePredicate, levels: Sequence[str], tuning: Tuning) -> Kept: ...

    def weaken(self, choices: Choices) -> None:
        """Remove some of the metadata, or make bounds wider."""
        ...


@dataclass(frozen=True)
class Format:
    """A kind of table: how to write a random one, and how many examples to run."""

    name: str
    """Shown in the name of a test, with the ids of the traps that its random tables may contain."""
    write: Callable[[Choices, Path, int], Any]
    """Writes a table into a folder, and draws so many predicates about it."""
    times: int = 1
    one_in: int = 1
    fewest: int = 1
    """The number of examples: so many times those of the profile, or one in so many, but not fewer than these."""
    tuning: Tuning = DEFAULT_TUNING
    """The thresholds of all examples."""
    vary: Callable[[Choices, Tuning], Tuning] = lambda choices, tuning: tuning
    """Chooses the thresholds of each scan, given those of the format."""
    fixed_levels: tuple[Sequence[str], ...] = (LEVELS,)
    """The levels of O1, beside a random subset."""
    unit_levels: Callable[[Choices], Iterable[Sequence[str]]] = lambda choices: (LEVELS,)
    """The levels of O3, O4 and O6."""
    weaker_levels: Sequence[str] = LEVELS
    """The levels of O5."""
    predicates: Mapping[str, int] | None = None
    """How many predicates an example has, by property, if not as many as usual."""
    fully_matched_is_monotone: bool = True
    """Whether weaker statistics never make a unit fully matched."""

    DEFAULT_PREDICATES: ClassVar[dict[str, int]] = {
        "O1": 3,
        "O2": 2,
        "O3": 4,
        "O5": 4,
        "O9": 3,
        "O10": 3,
        "limit": 2,
        "versions": 1,
    }

    def count_predicates(self, property_: str) -> int:
        return (self.predicates or {}).get(property_, self.DEFAULT_PREDICATES[property_])

    def check(self, property_: str, check: Callable[[Format, Choices, Any], None], *, one_in: int = 1) -> None:
        """Run a check for as many random tables as the format has examples; `one_in` takes fewer of them."""

        def run(data: st.DataObject) -> None:
            choices = Choices(data.draw)
            with tempfile.TemporaryDirectory() as folder:
                check(self, choices, self.write(choices, Path(folder), self.count_predicates(property_)))

        # Hypothesis remembers failing examples under the name of a function.
        run.__name__ = re.sub(r"\W+", "_", f"{check.__name__}_{self.name}")
        most = settings().max_examples if IS_THOROUGH else settings().max_examples // 2
        examples = max(self.fewest, most * self.times // self.one_in)
        settings(max_examples=max(1, examples // one_in))(given(st.data())(run))()


def parametrize_formats(formats: Sequence[Format]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("format", formats, ids=[each.name for each in formats])


# --- Rows: O1, O2, O9 -------------------------------------------------------------------------------------------------


def evaluate_masks(table: OracleTable) -> list[pa.BooleanArray]:
    """Return for each predicate the mask of rows for which it is TRUE."""
    answers = evaluate_predicates(table.oracle_rows, [predicate.sql for predicate in table.predicates])
    return [pa.array([answer is True for answer in each], pa.bool_()) for each in answers]


def check_levels(format: Format, choices: Choices, table: RowTable) -> None:
    """O1: a full scan has all rows, and scans with some levels have the rows for which the predicate is TRUE."""
    columns, rows = table.project(choices)
    _check_rows(table, table.scan(columns=columns, tuning=format.tuning), rows, "all rows")
    for predicate, mask in zip(table.predicates, evaluate_masks(table), strict=True):
        for levels in (*format.fixed_levels, choices.one_of(SUBSETS)):
            columns, rows = table.project(choices)
            tuning = format.vary(choices, format.tuning)
            scan = table.scan(predicate.expr, columns=columns, levels=levels, tuning=tuning)
            table.check_plan(scan)
            _check_rows(table, scan, rows.filter(mask), predicate, levels, tuning)
            table.check_more(predicate.expr, levels, rows.filter(mask), tuning)
            count = table.scan(predicate.expr, levels=levels, tuning=tuning).count()
            assert count == mask.true_count, (predicate, levels, tuning, table.notes)


def _check_rows(table: RowTable, scan: Scan, expected: pa.Table, *context: object) -> None:
    found = scan.to_arrow()
    assert found.schema.names == expected.schema.names, (*context, table.notes)
    assert table.is_same(found, expected), (*context, table.notes, found.to_string(), expected.to_string())


def check_all_subsets(format: Format, choices: Choices, table: RowTable) -> None:
    """O1 for all subsets of levels, one by one."""
    expected = Counter(table.identify(table.rows.filter(evaluate_masks(table)[0])))
    for levels in SUBSETS:
        found = table.scan(table.predicates[0].expr, levels=levels, tuning=format.tuning).to_arrow()
        assert Counter(table.identify(found)) == expected, (table.predicates[0], levels, table.notes)


def check_three_parts(format: Format, choices: Choices, table: RowTable) -> None:
    """O2: p, NOT p and p IS NULL partition the rows."""
    everything = Counter(table.identify(table.rows))
    for index, predicate in enumerate(table.predicates):
        for levels in (LEVELS,) if index else (LEVELS, choices.one_of(SUBSETS)):
            tuning = format.vary(choices, format.tuning)
            parts = (predicate, negate_predicate(predicate), make_unknown_test(predicate))
            scans = [table.scan(part.expr, levels=levels, tuning=tuning) for part in parts]
            found = [scan.to_arrow() for scan in scans]
            assert [scan.count() for scan in scans] == [rows.num_rows for rows in found], (predicate, table.notes)
            together = Counter(each for rows in found for each in table.identify(rows))
            assert together == everything, (predicate, levels, tuning, table.notes)


def check_proofs(format: Format, choices: Choices, table: RowTable) -> None:
    """O9: a scan that proves nothing again below files reads the same row groups and pages, and tests no more."""
    masks = evaluate_masks(table)
    mask = reduce(pc.and_, masks)
    where = and_(*(predicate.expr for predicate in table.predicates))
    for levels in (LEVELS, choices.one_of(SUBSETS)):
        tuning = format.vary(choices, format.tuning)
        scan = table.scan(where, levels=levels, tuning=tuning)
        planner = get_planner(scan)
        planned, again = (
            {
                (task.path, task.row_group): (task.row_count, task.bytes, task.selection, set(task.residual))
                for task in planner.plan_listing(listing).tasks()
                # No conjunct has to skip a row group without rows.
                if task.row_count
            }
            for listing in (planner.listing, replace(planner.listing, matched=None))
        )
        assert planned.keys() == again.keys(), (where, levels, tuning, table.notes)
        for key, (*read, tested) in planned.items():
            *read_again, tested_again = again[key]
            assert read == read_again, (where, levels, tuning, key, table.notes)
            assert tested <= tested_again, (where, levels, tuning, key, table.notes)
        found = Counter(table.identify(scan.to_arrow()))
        assert found == Counter(table.identify(table.rows.filter(mask))), (where, levels, tuning, table.notes)


def check_limit(format: Format, choices: Choices, table: RowTable) -> None:
    """A limit returns so many of the matching rows."""
    limit = choices.number(0, 6)
    wanted = [(None, table.rows)]
    wanted += [
        (predicate.expr, table.rows.filter(mask))
        for predicate, mask in zip(table.predicates, evaluate_masks(table), strict=True)
    ]
    for where, expected in wanted:
        found = Counter(table.identify(table.scan(where, limit=limit, tuning=format.tuning).to_arrow()))
        assert found.total() == min(limit, expected.num_rows), (where, table.notes)
        assert found <= Counter(table.identify(expected)), (where, table.notes)
        count = table.scan(where, limit=limit, tuning=format.tuning).count()
        assert count == min(limit, expected.num_rows), (where, table.notes)


def check_file_batches(format: Format, choices: Choices, table: RowTable) -> None:
    """O10: the batches of a plan have every file of the table, and their selection vectors select those of the plan."""
    files = table.scan().plan("files").files
    for where in (None, *(predicate.expr for predicate in table.predicates)):
        levels = choices.some_of(list(LEVELS), 0, len(LEVELS)) if choices.one_of([True, False]) else LEVELS
        limit = choices.one_of([None, None, choices.number(0, 6)])
        scan = table.scan(where, levels=levels, limit=limit, tuning=format.vary(choices, format.tuning))
        plan = scan.plan(choices.one_of(["files", "files", "pages"]))
        batches = list(plan.file_batches())
        found = pa.Table.from_batches([each.batch for each in batches], files.schema)
        assert _identify_files(found) == _identify_files(files), where
        selected = pa.Table.from_batches([each.batch.filter(each.selection) for each in batches], files.schema)
        columns = [name for name in plan.files.column_names if not name.endswith("_to_read")]
        assert _identify_files(selected) == _identify_files(plan.files.select(columns)), (where, levels, limit)


def _identify_files(files: pa.Table) -> list[str]:
    """Return the files with all that is known of them, but row counts, which not every plan reads."""
    return sorted(map(repr, files.drop_columns(["num_records"]).to_pylist()))


# --- Units: O3 to O6 --------------------------------------------------------------------------------------------------


def check_units(format: Format, choices: Choices, table: UnitTable) -> None:
    """O3, O4 and O6 for units."""
    units = table.list_units()
    for predicate, answers in zip(
        table.predicates, evaluate_predicates(table.oracle_rows, [each.sql for each in table.predicates]), strict=True
    ):
        for levels in format.unit_levels(choices):
            kept = table.prune(predicate, levels, format.tuning)
            _check_kept(units, kept, answers, predicate, levels, table.notes)
            opposite = [None if answer is None else not answer for answer in answers]
            kept_by_opposite = table.prune(negate_predicate(predicate), levels, format.tuning)
            _check_kept(units, kept_by_opposite, opposite, negate_predicate(predicate), levels, table.notes)
            for unit in units.keys() - kept.keys() - kept_by_opposite.keys():
                assert all(answers[row] is None for row in units[unit]), ("O6", predicate, levels, unit, table.notes)


def _check_kept(
    units: Mapping[Unit, Sequence[int]], kept: Kept, answers: Sequence[bool | None], *context: object
) -> None:
    for unit, rows in units.items():
        assert unit in kept or not any(answers[row] is True for row in rows), ("O3", *context, unit)
    for unit in (unit for unit, fully_matched in kept.items() if fully_matched):
        assert all(answers[row] is True for row in units[unit]), ("O4", *context, unit)


def check_weaker_statistics(format: Format, choices: Choices, table: UnitTable) -> None:
    """O5; and O3 and O4 with weaker statistics."""
    units, levels = table.list_units(), format.weaker_levels
    answers = evaluate_predicates(table.oracle_rows, [each.sql for each in table.predicates])
    before = [table.prune(predicate, levels, format.tuning) for predicate in table.predicates]
    table.weaken(choices)
    for predicate, known, each in zip(table.predicates, before, answers, strict=True):
        found = table.prune(predicate, levels, format.tuning)
        assert known.keys() <= found.keys(), (predicate, table.notes)
        _check_kept(units, found, each, predicate, levels, table.notes)
        if format.fully_matched_is_monotone:
            # A unit that was skipped before may now be kept and fully matched, for example one without rows.
            assert all(known[unit] or not found[unit] for unit in known), (predicate, table.notes)


# --- For formats whose units are files --------------------------------------------------------------------------------


@dataclass
class FileUnits:
    """The files of a table as units, by their paths."""

    oracle_rows: pa.Table
    predicates: Sequence[OraclePredicate]
    notes: object
    open: Callable[[], tamis.Table]
    rows_of_files: Mapping[str, Sequence[int]]
    """The ids of the rows of each file that are not deleted."""
    weaken_files: Callable[[Choices], None]
    root: str = ""
    """The prefix of planned paths, which the paths of `rows_of_files` lack."""

    def __post_init__(self) -> None:
        self._table = self.open()

    def list_units(self) -> Mapping[Unit, Sequence[int]]:
        positions = {row: position for position, row in enumerate(self.oracle_rows[ROW].to_pylist())}
        return {path: [positions[row] for row in rows] for path, rows in self.rows_of_files.items()}

    def prune(self, predicate: OraclePredicate, levels: Sequence[str], tuning: Tuning) -> Kept:
        listing = get_planner(self._table.scan(predicate.expr, levels=levels, tuning=tuning)).listing
        paths = [path.removeprefix(self.root) for path in listing.files["path"].to_pylist()]
        return dict(zip(paths, listing.fully_matched.tolist(), strict=True))

    def weaken(self, choices: Choices) -> None:
        self.weaken_files(choices)
        self._table = self.open()


# --- Comparing rows ---------------------------------------------------------------------------------------------------


def make_column_texts(rows: pa.Table, plain: Callable[[pa.Array], pa.Array]) -> list[str]:
    """Return columns as texts that distinguish NaN, the sign of zero, a NULL in a struct, and a NULL struct.

    The children of a NULL struct may have any values. `plain` turns values into comparable ones.
    """

    def text(values: pa.Array) -> str:
        if pa.types.is_struct(values.type):
            return repr([values.is_valid().to_pylist(), *map(text, values.flatten())])
        return repr(plain(values).to_pylist())

    return [text(pa.concat_arrays(column.chunks)) for column in rows.columns] if rows.num_rows else []


# --- For formats with versions ----------------------------------------------------------------------------------------


@dataclass
class VersionedTable:
    """A table with the rows of each of its versions, the newest last."""

    folder: Path
    predicates: Sequence[OraclePredicate]
    notes: object
    versions: Sequence[tuple[int, pa.Table]]
    option: str
    """The option of `tamis.open` that names a version."""
    is_same: Callable[[pa.Table, pa.Table], bool]


def check_versions(format: Format, choices: Choices, table: VersionedTable) -> None:
    """O1 for every version, both opened and refreshed from an older one."""
    (predicate,) = table.predicates
    newest_version, newest_rows = table.versions[-1]
    for version, rows in choices.some_of(table.versions, 1, 3):
        opened = tamis.open(table.folder, tuning=format.tuning, **{table.option: version})
        assert opened.version == version
        assert opened.scan().count() == rows.num_rows
        refreshed = opened.refresh()
        assert refreshed.version == newest_version
        for found, expected in ((opened, rows), (refreshed, newest_rows)):
            (answers,) = evaluate_predicates(expected, [predicate.sql])
            mask = pa.array([answer is True for answer in answers], pa.bool_())
            scanned = found.scan(predicate.expr).to_arrow()
            assert table.is_same(scanned, expected.filter(mask)), (predicate, version, found.version, table.notes)

"""Delta tables for the oracles: histories written by hand, and tables that deltalake wrote."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tamis
from builders.answers.same_rows import has_same_rows
from builders.delta.cases import draw_delta_case
from builders.delta.deltalake_cases import draw_deltalake_case
from builders.delta.weaken_statistics import weaken_statistics
from builders.parquet.tuning import BY_PAGES
from builders.values.choices import Choices, SeededChoices
from oracles.frame import ROW, FileUnits, Format, RowTable, VersionedTable
from tamis.expr.nodes import Expr
from tamis.formats.delta.planning import file_batches
from tamis.scan.scan import Scan
from tamis.tuning import Tuning


def vary_planning(choices: Choices, tuning: Tuning) -> Tuning:
    """Return a tuning that reads files of a log one by one or together, with much memory, little or none."""
    return replace(
        tuning,
        max_files_while_reading=choices.one_of([tuning.max_files_while_reading, 1, 3]),
        max_cached_files_together=choices.one_of([tuning.max_cached_files_together, 1, 3]),
        min_share_to_decode_all=choices.one_of([tuning.min_share_to_decode_all, 0.0, 2.0]),
        max_cached_log_bytes=choices.one_of([tuning.max_cached_log_bytes, 0, 5000]),
    )


def is_same(found: pa.Table, expected: pa.Table) -> bool:
    return has_same_rows(found.sort_by(ROW), expected)


@dataclass
class DeltaRows(RowTable):
    table: tamis.Table = None  # type: ignore[assignment]
    columns: list[str] | None = None

    def scan(self, where: Expr | None = None, **options: Any) -> Scan:
        return self.table.scan(where, **options)

    def project(self, choices: Choices) -> tuple[list[str] | None, pa.Table]:
        return self.columns, self.rows

    def is_same(self, found: pa.Table, expected: pa.Table) -> bool:
        return is_same(found, expected)


# --- Written by hand --------------------------------------------------------------------------------------------------


def write_rows(choices: Choices, folder: Path, predicates: int) -> DeltaRows:
    case = draw_delta_case(choices, folder, predicates)
    return DeltaRows(case.rows(), case.predicates, "", tamis.open(folder))


def write_units(choices: Choices, folder: Path, predicates: int) -> FileUnits:
    case = draw_delta_case(choices, folder, predicates)
    rows_of_files = {path: stored.live_rows[ROW].to_pylist() for path, stored in case.versions[-1].items()}
    return FileUnits(
        case.rows(), case.predicates, "", lambda: tamis.open(folder), rows_of_files, _make_weaken(folder), f"{folder}/"
    )


def write_versions(choices: Choices, folder: Path, predicates: int) -> VersionedTable:
    case = draw_delta_case(choices, folder, predicates)
    versions = [(version, case.rows(version)) for version in range(len(case.versions))]
    return VersionedTable(folder, case.predicates, "", versions, "version", is_same)


def _make_weaken(folder: Path, *, by_seed: bool = False) -> Any:
    def weaken(choices: Choices) -> None:
        weaken_statistics(folder, SeededChoices(choices.number(0, 1_000_000)) if by_seed else choices)
        file_batches.FILE_BATCH_CACHE.clear()

    return weaken


# --- Written by deltalake ---------------------------------------------------------------------------------------------


def write_deltalake_rows(choices: Choices, folder: Path, predicates: int) -> DeltaRows:
    case = draw_deltalake_case(choices, folder, predicates)
    table = tamis.open(folder)
    assert set(table.schema.names) == set(case.rows.column_names)
    return DeltaRows(case.rows, case.predicates, case.done, table, [f"`{name}`" for name in case.rows.column_names])


def write_deltalake_units(choices: Choices, folder: Path, predicates: int) -> FileUnits:
    case = draw_deltalake_case(choices, folder, predicates)
    rows_of_files = _read_rows_of_files(tamis.open(folder))
    live = sorted(row for rows in rows_of_files.values() for row in rows)
    assert live == sorted(case.rows[ROW].to_pylist()), case.done
    # Deltalake writes files in no fixed order, so that Hypothesis would see other choices each time.
    weaken = _make_weaken(folder, by_seed=True)
    return FileUnits(
        case.rows, case.predicates, case.done, lambda: tamis.open(folder), rows_of_files, weaken, f"{folder}/"
    )


def _read_rows_of_files(table: tamis.Table) -> dict[str, list[int]]:
    """Return the rows of each file of a table without deletion vectors."""
    source = table._source
    (name,) = source.snapshot.metadata.to_physical_path((ROW,))
    return {
        path.removeprefix(f"{source.storage.root}/"): pq.ParquetFile(path).read(columns=[name])[name].to_pylist()
        for path in table.files()["path"].to_pylist()
    }


# Each example writes a table.
_SHARED: dict[str, Any] = {"one_in": 4, "tuning": BY_PAGES}

DELTA = Format("delta D1 D6 D15 D16 D19", write_rows, vary=vary_planning, **_SHARED)
DELTA_FILES = Format("files of delta", write_units, **_SHARED)
DELTA_VERSIONS = Format("delta D17", write_versions, **_SHARED)
DELTALAKE = Format("deltalake", write_deltalake_rows, predicates={"O1": 2}, **_SHARED)
DELTALAKE_FILES = Format("files of deltalake", write_deltalake_units, predicates={"O3": 3, "O5": 3}, **_SHARED)

"""Iceberg tables for the oracles: written by hand in all versions, and tables that pyiceberg wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tamis
from builders.iceberg.cases import draw_iceberg_case
from builders.iceberg.weaken_statistics import weaken_statistics
from builders.parquet.tuning import BY_PAGES
from builders.pyiceberg.cases import draw_pyiceberg_case
from builders.values.choices import Choices, SeededChoices
from oracles.frame import ROW, FileUnits, Format, RowTable, VersionedTable, make_column_texts
from tamis.expr.nodes import Expr
from tamis.scan.scan import Scan


def is_same(found: pa.Table, expected: pa.Table) -> bool:
    texts = [make_column_texts(each, lambda values: values) for each in (found.sort_by(ROW), expected)]
    return found.schema.equals(expected.schema) and texts[0] == texts[1]


@dataclass
class IcebergRows(RowTable):
    table: tamis.Table = None  # type: ignore[assignment]

    def scan(self, where: Expr | None = None, **options: Any) -> Scan:
        return self.table.scan(where, **options)

    def is_same(self, found: pa.Table, expected: pa.Table) -> bool:
        return is_same(found, expected)


# --- Written by hand --------------------------------------------------------------------------------------------------


def write_rows(choices: Choices, folder: Path, predicates: int) -> IcebergRows:
    case = draw_iceberg_case(choices, folder, predicates)
    return IcebergRows(case.rows(), case.predicates, case.done, tamis.open(folder))


def write_units(choices: Choices, folder: Path, predicates: int) -> FileUnits:
    case = draw_iceberg_case(choices, folder, predicates)
    kinds = {each["id"]: each["type"] for each in case.table.fields if isinstance(each["type"], str)}

    def weaken(choices: Choices) -> None:
        if not case.table.manifests_in_metadata:
            weaken_statistics(folder, choices, kinds)

    # Paths are those in the folder. Metadata may name another location.
    rows_of_files = {
        stored.file.path.replace(case.table.location, str(case.table.folder), 1): stored.live_rows[ROW].to_pylist()
        for stored in case.live
    }
    return FileUnits(case.rows(), case.predicates, case.done, lambda: tamis.open(folder), rows_of_files, weaken)


def write_versions(choices: Choices, folder: Path, predicates: int) -> VersionedTable:
    case = draw_iceberg_case(choices, folder, predicates)
    versions = [(snapshot, case.rows(state)) for state, (snapshot, _) in enumerate(case.states)]
    return VersionedTable(folder, case.predicates, case.done, versions, "snapshot_id", is_same)


# --- Written by pyiceberg ---------------------------------------------------------------------------------------------


def write_pyiceberg_rows(choices: Choices, folder: Path, predicates: int) -> IcebergRows:
    case = draw_pyiceberg_case(choices, folder, predicates)
    return IcebergRows(case.rows, case.predicates, case.done, tamis.open(case.metadata))


def write_pyiceberg_units(choices: Choices, folder: Path, predicates: int) -> FileUnits:
    case = draw_pyiceberg_case(choices, folder, predicates)
    live = set(case.rows[ROW].to_pylist())
    rows_of_files = {
        path: [row for row in pq.ParquetFile(path).read(columns=[ROW])[ROW].to_pylist() if row in live]
        for path in tamis.open(folder).files()["path"].to_pylist()
    }
    assert sorted(row for rows in rows_of_files.values() for row in rows) == sorted(live), case.done

    def weaken(choices: Choices) -> None:
        # File names differ each time, so that Hypothesis would see other choices.
        weaken_statistics(folder, SeededChoices(choices.number(0, 1_000_000)), {1: "long"})

    return FileUnits(case.rows, case.predicates, case.done, lambda: tamis.open(folder), rows_of_files, weaken)


# Each example writes a table, and a commit of pyiceberg is slow.
_BY_HAND: dict[str, Any] = {"one_in": 6, "tuning": BY_PAGES}
_BY_PYICEBERG: dict[str, Any] = {"one_in": 12, "tuning": BY_PAGES}

ICEBERG = Format("iceberg I1 I3 I5 I6 I7 I9 I10", write_rows, **_BY_HAND)
ICEBERG_FILES = Format("files of iceberg", write_units, predicates={"O3": 5}, **_BY_HAND)
ICEBERG_SNAPSHOTS = Format("iceberg I8", write_versions, **_BY_HAND)
PYICEBERG = Format("pyiceberg", write_pyiceberg_rows, predicates={"O1": 2}, **_BY_PYICEBERG)
PYICEBERG_FILES = Format("files of pyiceberg", write_pyiceberg_units, predicates={"O3": 3, "O5": 3}, **_BY_PYICEBERG)

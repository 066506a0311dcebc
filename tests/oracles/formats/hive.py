"""Hive-style tables for the oracles: partitions by directories, files of narrower types or without some columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import tamis
from builders.hive.scan_cases import draw_scan_case
from builders.values.by_type import to_oracle_column
from builders.values.choices import Choices
from oracles.frame import ROW, Format, RowTable, make_column_texts
from tamis.expr.nodes import Expr
from tamis.scan.scan import Scan


@dataclass
class HiveTable(RowTable):
    table: tamis.Table = None  # type: ignore[assignment]

    def scan(self, where: Expr | None = None, **options: Any) -> Scan:
        return self.table.scan(where, **options)

    def project(self, choices: Choices) -> tuple[list[str] | None, pa.Table]:
        return self.rows.column_names, self.rows

    def is_same(self, found: pa.Table, expected: pa.Table) -> bool:
        # The first file defines the types, and timestamps of other files may have other units.
        return make_column_texts(found.sort_by(ROW), _to_plain) == make_column_texts(expected, _to_plain)


def _to_plain(values: pa.Array) -> pa.Array:
    return to_oracle_column(values) if pa.types.is_timestamp(values.type) else values


def write_hive(choices: Choices, folder: Path, predicates: int) -> HiveTable:
    case = draw_scan_case(choices, predicates)
    case.write(folder / "t")
    return HiveTable(case.rows, case.predicates, "", tamis.open(folder / "t", partitioning=case.partitioning))


HIVE = Format("hive", write_hive)

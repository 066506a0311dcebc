"""Files from before schema evolution: renamed, promoted and added fields, defaults, ids or names in files, and values
that are constant for a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from builders.parquet.evolved_files import StoredFiles, draw_evolved_case
from builders.parquet.tuning import PRUNE_PAGES
from builders.values.choices import Choices
from oracles.frame import ROW, Format, RowTable, make_column_texts
from tamis.expr.nodes import Expr
from tamis.scan.scan import Scan
from tamis.tuning import Tuning


@dataclass
class EvolvedTable(RowTable):
    table: StoredFiles = None  # type: ignore[assignment]

    def scan(self, where: Expr | None = None, *, tuning: Tuning, **options: Any) -> Scan:
        return Scan(self.table.with_tuning(tuning), where, **options)

    def is_same(self, found: pa.Table, expected: pa.Table) -> bool:
        return make_column_texts(found.sort_by(ROW), _to_plain) == make_column_texts(expected, _to_plain)

    def check_more(self, where: Expr, levels: Sequence[str], expected: pa.Table, tuning: Tuning) -> None:
        planned = self.scan(where, levels=levels, tuning=tuning)
        planned.plan()
        assert planned.to_arrow().num_rows == expected.num_rows


def _to_plain(values: pa.Array) -> pa.Array:
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def write_evolved(choices: Choices, folder: Path, predicates: int) -> EvolvedTable:
    case = draw_evolved_case(choices, predicates)
    return EvolvedTable(case.rows, case.predicates, "", case.write(folder))


EVOLVED = Format("evolved files I5 T11", write_evolved, one_in=2, fewest=10, tuning=PRUNE_PAGES)

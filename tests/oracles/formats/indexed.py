"""Tables with a statistics index for the oracles: folders, and every version of Delta tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import tamis
from builders.hive.scan_cases import HiveCase, draw_scan_case
from builders.values.choices import Choices
from oracles.formats import delta
from oracles.formats.hive import HiveTable
from oracles.frame import Format, VersionedTable
from tamis.formats.source import LEVELS


def build_hive_index(case: HiveCase, table: tamis.Table) -> None:
    """Build an index of some columns, some with Bloom filters and NaN counts."""
    partitions = {"region", "day"}
    leaves = {
        f"{field.name}.{child.name}" if pa.types.is_struct(field.type) else field.name: child.type
        for field in table.schema
        if field.name not in partitions and not pa.types.is_list(field.type)
        for child in (field.type if pa.types.is_struct(field.type) else [field])
    }
    names = list(leaves)
    bloom = [name for name, kind in leaves.items() if not pa.types.is_boolean(kind) and case.choices.flag(2)]
    floats = [name for name, kind in leaves.items() if pa.types.is_floating(kind) and case.choices.flag(2)]
    tamis.index.build(
        table.uri,
        columns=case.choices.one_of([None, names, names[:1]]),
        bloom=bloom,
        count_nan=floats,
        # Such a large rate gives many false positives.
        false_positives=case.choices.one_of([0.01, 0.5]),
        partitioning=case.partitioning,
    )


def write_hive(choices: Choices, folder: Path, predicates: int) -> HiveTable:
    case = draw_scan_case(choices, predicates)
    case.write(folder / "t")
    build_hive_index(case, tamis.open(folder / "t", partitioning=case.partitioning))
    table = tamis.open(folder / "t", partitioning=case.partitioning)
    return HiveTable(case.rows, case.predicates, "with an index", table)


def write_delta_versions(choices: Choices, folder: Path, predicates: int) -> VersionedTable:
    found = delta.write_versions(choices, folder, predicates)
    table = tamis.open(folder)
    names = [
        f"`{field.name}`"
        for field in table.schema
        if field.name not in table.partition_columns
        and not pa.types.is_nested(field.type)
        and not pa.types.is_boolean(field.type)
    ]
    result = tamis.index.build(folder, bloom=[name for name in names if choices.flag()], false_positives=0.3)
    assert result.left_out == 0, result.left_out_because
    return found


# An index is built for each example.
INDEXED_HIVE = Format(
    "hive with an index", write_hive, one_in=5, fewest=5, fixed_levels=(LEVELS, ("files",), ("files", "bloom"))
)
INDEXED_DELTA_VERSIONS = Format("delta with an index D6 D16 D17 D19", write_delta_versions, one_in=6, fewest=5)

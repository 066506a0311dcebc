"""The statistics that Delta on Spark wrote, against the rows of the files that they describe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tamis.expr.nodes import Column
from tamis.formats.delta.planning.partition_values import encode_partition_values
from tamis.formats.delta.schema import TableMetadata, parse_metadata
from tamis.formats.delta.statistics.file_statistics import make_statistics_metadata
from tamis.skipping.metadata import metadata_name

TEXT_MAP = pa.map_(pa.string(), pa.string())


def list_tables(golden: Path) -> Iterator[tuple[Path, TableMetadata, list[dict[str, Any]]]]:
    """Yield every table with JSON commits: its directory, its newest metadata, and all files that were ever added."""
    for log in sorted(golden.glob("delta*/**/_delta_log")):
        lines = [line for path in sorted(log.glob("0*.json")) for line in path.read_text().splitlines()]
        actions = [json.loads(line) for line in lines if line.startswith(('{"add"', '{"metaData"'))]
        metadata = [action["metaData"] for action in actions if "metaData" in action]
        if metadata:
            yield log.parent, parse_metadata(metadata[-1], log.parent.name), [a["add"] for a in actions if "add" in a]


def read_file_column(data: pa.Table, path: tuple[str, ...], target: pa.DataType) -> pa.ChunkedArray | None:
    if path[0] not in data.column_names:
        return None
    values = data[path[0]]
    for name in path[1:]:
        values = pc.struct_field(values, [name])
    return values.cast(target)


def list_leaves(metadata: TableMetadata) -> list[Column]:
    found = []
    for field in metadata.fields:
        if field.kind == "struct":
            found += [Column((field.name, each.name), type=each.data_type) for each in field.children]
        elif field.name not in metadata.partition_columns:
            found.append(Column((field.name,), type=field.data_type))
    return [column for column in found if not pa.types.is_nested(column.type)]


def test_T8_D19_bounds_hold_for_the_rows_of_every_golden_file(golden: Path) -> None:
    checked = 0
    for folder, metadata, adds in list_tables(golden):
        for add in adds:
            path = folder / unquote(add["path"])
            if add.get("stats") is None or add.get("deletionVector") or not path.is_file():
                continue
            data = pq.read_table(path, partitioning=None, coerce_int96_timestamp_unit="us")
            columns = list_leaves(metadata)
            found = make_statistics_metadata(pa.array([add["stats"]]), None, columns, metadata)
            assert found["row_count"].to_pylist() == [data.num_rows]
            for column in columns:
                values = read_file_column(data, metadata.to_physical_path(column.path), column.type)
                checked += values is not None and check(column, values, found)
    assert checked > 200


def check(column: Column, values: pa.ChunkedArray, found: dict[str, pa.Array]) -> bool:
    nulls = found[metadata_name("null_count", column.path)][0].as_py()
    assert nulls in (None, values.null_count)
    if metadata_name("lower", column.path) not in found:
        return False
    lower, upper = (found[metadata_name(kind, column.path)][0] for kind in ("lower", "upper"))
    low, high = pc.min_max(values).values()
    if not (lower.is_valid and upper.is_valid):
        return False
    assert pc.less_equal(lower, low).as_py(), (column, lower, low)
    assert pc.greater_equal(upper, high).as_py(), (column, upper, high)
    for kind, bound, value in (("lower", lower, low), ("upper", upper, high)):
        if found[metadata_name(f"{kind}_exact", column.path)][0].as_py():
            assert bound == value
    return True


def test_D3_D5_partition_values_of_every_golden_file_are_read(golden: Path) -> None:
    checked = 0
    for _, metadata, adds in list_tables(golden):
        maps = pa.array([list(add["partitionValues"].items()) for add in adds], TEXT_MAP)
        typed = encode_partition_values(maps, None, metadata).expand()
        found = typed.values
        assert not typed.wrong
        assert found.column_names == list(metadata.partition_columns)
        for name in metadata.partition_columns:
            physical = metadata.to_physical_path((name,))[0]
            texts = [add["partitionValues"].get(physical) for add in adds]
            assert [value is None for value in found[name].to_pylist()] == [text in (None, "") for text in texts]
            checked += len(texts)
    assert checked > 50

"""Delta tables with rows: Parquet files under a hand-made log, with the statistics of a real writer.

log = DeltaLog(tmp_path, {"id": "long"}, features=["deletionVectors"])
log.commit(data_file(log, "1.parquet", pa.table({"id": [1, 2, 3]}), deleted=[0]))
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from builders.delta.log import Action, DeltaLog, add
from builders.delta.statistics import SPARK, format_bounds
from tamis.expr.evaluate import to_physical_value

AS_WRITTEN = "as written"
"""Use the statistics that Delta on Spark writes for every column."""

_MAGIC = struct.pack("<I", 1681511377)
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def data_file(
    log: DeltaLog,
    path: str,
    rows: pa.Table,
    partition_values: Mapping[str, str | None] | None = None,
    *,
    stats: str | None = AS_WRITTEN,
    deleted: Sequence[int] = (),
    options: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Action:
    """Write a data file and return the action that adds it. Its path is percent-encoded in the log."""
    file = log.table / path
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file, **(options or {}))
    stats_field = {"stats": compute_statistics(rows) if stats == AS_WRITTEN else stats} if stats is not None else {}
    vector = {"deletionVector": make_inline_vector(deleted)} if deleted else {}
    size = {"size": file.stat().st_size}
    return add(quote(path, safe="/=@"), partition_values, **size | stats_field | vector | fields)


def compute_statistics(rows: pa.Table, *, tight: bool = True, without: Iterable[str] = (), writer: str = SPARK) -> str:
    """Return the statistics of rows in JSON as a writer spells them, without those of some columns."""
    kinds: dict[str, dict[str, str]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for name in rows.column_names:
        if name not in set(without):
            for kind, text in zip(kinds, compute_column_statistics(rows[name].combine_chunks(), writer), strict=True):
                if text is not None:
                    kinds[kind][name] = text
    statistics = {"numRecords": str(rows.num_rows)} | {kind: format_json_object(texts) for kind, texts in kinds.items()}
    return format_json_object(statistics if tight else statistics | {"tightBounds": "false"})


def compute_column_statistics(column: pa.Array, writer: str) -> tuple[str | None, str | None, str | None]:
    """Return the smallest and the largest value and the number of NULLs in JSON; for a struct, an object by field."""
    if pa.types.is_struct(column.type):
        inner = {
            field.name: compute_column_statistics(pc.struct_field(column, field.name), writer) for field in column.type
        }
        smallest, largest, nulls = (
            format_json_object({name: text for name, texts in inner.items() if (text := texts[kind]) is not None})
            for kind in range(3)
        )
        return smallest, largest, nulls
    if pa.types.is_nested(column.type):
        return None, None, str(column.null_count)
    smallest_value, largest_value = format_bounds([to_physical_value(value) for value in column], column.type, writer)
    return smallest_value, largest_value, str(column.null_count)


def format_json_object(texts: Mapping[str, str]) -> str:
    """Return a JSON object of values that are JSON already, so that decimals keep their digits."""
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in texts.items()) + "}"


def make_inline_vector(rows: Sequence[int]) -> dict[str, Any]:
    """Return the descriptor of a deletion vector that is stored inline in the log."""
    content = _MAGIC + BitMap64(rows).serialize()
    return {
        "storageType": "i",
        "pathOrInlineDv": encode_z85(content),
        "sizeInBytes": len(content),
        "cardinality": len(set(rows)),
    }


def write_vector(table: Path, rows: Sequence[int], before: bytes = b"") -> dict[str, Any]:
    """Write a deletion vector to a file, after other bytes, and return its descriptor."""
    name = uuid.uuid4()
    content = _MAGIC + BitMap64(rows).serialize()
    framed = struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))
    (table / f"deletion_vector_{name}.bin").write_bytes(b"\x01" + before + framed)
    return {
        "storageType": "u",
        "pathOrInlineDv": encode_z85(name.bytes),
        "offset": 1 + len(before),
        "sizeInBytes": len(content),
        "cardinality": len(set(rows)),
    }


def encode_z85(content: bytes) -> str:
    """Return bytes in Z85, computed digit by digit from its definition. Zeros pad the last four bytes."""
    padded = content + b"\0" * (-len(content) % 4)
    numbers = [int.from_bytes(padded[start : start + 4], "big") for start in range(0, len(padded), 4)]
    return "".join(_Z85[number // 85**power % 85] for number in numbers for power in (4, 3, 2, 1, 0))

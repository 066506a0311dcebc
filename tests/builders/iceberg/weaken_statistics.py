"""Weaken the statistics of an Iceberg table: remove counts, bounds and summaries, and widen bounds."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from builders.iceberg.avro_files import edit_avro, read_avro
from builders.values.choices import Choices

_MAPS = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


def weaken_statistics(folder: Path, choices: Choices, kinds: dict[int, str]) -> None:
    """Change the manifests and the manifest lists of a table in place.

    `kinds` are the column types by field id, for bounds that are widened.
    """
    lists = sorted((folder / "metadata").glob("snap-*.avro"))
    manifests = {
        Path(record["manifest_path"]).name
        for path in lists
        for record in read_avro(path)
        if record.get("content", 0) == 0
    }
    sizes = {
        name: edit_avro(
            folder / "metadata" / name, lambda records: [_weaken_entry(each, choices, kinds) for each in records]
        )
        for name in sorted(manifests)
    }
    for path in lists:
        edit_avro(path, lambda records: [_weaken_list_record(each, choices, sizes) for each in records])


def _weaken_entry(entry: dict[str, Any], choices: Choices, kinds: dict[int, str]) -> dict[str, Any]:
    file = entry["data_file"]
    for name in _MAPS:
        if file.get(name) is None:
            continue
        if choices.flag(8):
            file[name] = None
            continue
        file[name] = [each for each in file[name] if not choices.flag(6)]
        if name.endswith("bounds"):
            for each in file[name]:
                if choices.flag(4):
                    each["value"] = _widen_bound(
                        each["value"], kinds.get(each["key"], ""), is_lower=name.startswith("lower")
                    )
    return entry


def _widen_bound(bound: bytes, kind: str, *, is_lower: bool) -> bytes:
    step = -1 if is_lower else 1
    match kind:
        case "long" | "timestamp" | "timestamptz" if len(bound) == 8:
            (value,) = struct.unpack("<q", bound)
            return struct.pack("<q", max(-(2**63), min(value + step, 2**63 - 1)))
        case "string" | "binary":
            return bound[: len(bound) - 1 if kind == "binary" else 0] if is_lower else bound + b"\x01"
    return bound


def _weaken_list_record(record: dict[str, Any], choices: Choices, sizes: dict[str, int]) -> dict[str, Any]:
    name = Path(record["manifest_path"]).name
    record["manifest_length"] = sizes.get(name, record["manifest_length"])
    if choices.flag(3):
        record["partitions"] = None
    for each in record.get("partitions") or []:
        if choices.flag(3):
            each["contains_nan"] = None
        if choices.flag(3) and each["lower_bound"] is not None:
            # A summary without bounds would mean that all values are NULL.
            each["contains_null"] = True
    return record

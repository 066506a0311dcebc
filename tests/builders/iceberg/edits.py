"""Metadata of Iceberg tables changed by hand, for what no builder writes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro


def edit_metadata(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change the newest of the metadata files that `IcebergFolder` wrote, and tell where it is."""
    place = max((folder / "metadata").glob("v*.metadata.json"), key=lambda each: int(each.name[1:].split(".")[0]))
    told = json.loads(place.read_text())
    change(told)
    place.write_text(json.dumps(told))
    return place


def add_column(folder: Path, number: int, name: str, kind: Any) -> None:
    """A column of the current schema that nobody wrote."""

    def change(told: dict[str, Any]) -> None:
        told["schemas"][-1]["fields"].append({"id": number, "name": name, "required": False, "type": kind})
        told["last-column-id"] = max(number, told["last-column-id"])

    edit_metadata(folder, change)


def edit_manifest_list(metadata: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change every row of the manifest list of the current snapshot, in place."""
    told = json.loads(metadata.read_bytes())
    current = next(each for each in told["snapshots"] if each["snapshot-id"] == told["current-snapshot-id"])
    path = Path(current["manifest-list"].removeprefix("file://"))
    reader = fastavro.reader(io.BytesIO(path.read_bytes()))
    rows = [change(row) for row in reader]
    with path.open("wb") as file:
        fastavro.writer(file, reader.writer_schema, rows)

"""Metadata of Iceberg tables changed by hand, for what no builder writes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro


def edit_metadata(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change the newest metadata file of an `IcebergFolder`, and return its path."""
    file_path = max((folder / "metadata").glob("v*.metadata.json"), key=lambda each: int(each.name[1:].split(".")[0]))
    content = json.loads(file_path.read_text())
    change(content)
    file_path.write_text(json.dumps(content))
    return file_path


def add_column(folder: Path, number: int, name: str, kind: Any) -> None:
    """Add a column to the current schema that no file has."""

    def change(content: dict[str, Any]) -> None:
        content["schemas"][-1]["fields"].append({"id": number, "name": name, "required": False, "type": kind})
        content["last-column-id"] = max(number, content["last-column-id"])

    edit_metadata(folder, change)


def edit_manifest_list(metadata: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change every row of the manifest list of the current snapshot, in place."""
    content = json.loads(metadata.read_bytes())
    current = next(each for each in content["snapshots"] if each["snapshot-id"] == content["current-snapshot-id"])
    path = Path(current["manifest-list"].removeprefix("file://"))
    reader = fastavro.reader(io.BytesIO(path.read_bytes()))
    rows = [change(row) for row in reader]
    with path.open("wb") as file:
        fastavro.writer(file, reader.writer_schema, rows)

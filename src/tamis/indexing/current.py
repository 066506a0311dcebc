"""The small file that makes an index current: what it is of, and of which parts it consists.

Everything else of an index is written aside, under names that were never used before, and is there for nobody until
this file names it. It is replaced in one step, so that whoever was killed while building left the old one in force.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import xxhash

from tamis.errors import CorruptFile, UnsupportedFeature, to_one_line
from tamis.indexing.spec import FORMAT, Asked, IndexSpec
from tamis.io.listing import FileEntry

CURRENT = "current.json"

PART_SUFFIX = ".tamis"
"""Parts are Parquet files, and have another suffix so that no `**/*.parquet` takes them for data."""

PART_NAME = re.compile(rf"part-[0-9a-f]{{32}}\{PART_SUFFIX}")


@dataclass(frozen=True, slots=True)
class Part:
    """A Parquet file of entries, a row for each data file."""

    name: str
    size: int
    files: int
    footer_hash: str
    """Of the bytes of its footer: another file of the same length does not pass for it."""

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "size": self.size, "files": self.files, "footer_hash": self.footer_hash}

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> Part:
        name = str(given["name"])
        if PART_NAME.fullmatch(name) is None:
            raise ValueError(f"no part is called {name!r}")
        return Part(name, int(given["size"]), int(given["files"]), str(given["footer_hash"]))


@dataclass(frozen=True, slots=True)
class Sample:
    """The schema of one file, as its footer has it: the one from which a folder takes its columns."""

    file: FileEntry
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Current:
    """An index, as `current.json` describes it."""

    build: str
    built_at: str
    """In UTC, as in 2024-03-01T12:00:00Z."""
    table_format: str
    table_version: int | None
    asked: Asked
    spec: IndexSpec
    parts: tuple[Part, ...]
    files: int
    """How many data files it describes, as of the version or the moment at which it was built."""
    rows: int
    total_bytes: int
    sample: Sample | None = None

    def to_bytes(self) -> bytes:
        content = {
            "format": FORMAT,
            "build": self.build,
            "built_at": self.built_at,
            "table": {"format": self.table_format, "version": self.table_version},
            "asked": self.asked.to_dict(),
            "spec": self.spec.to_dict(),
            "parts": [part.to_dict() for part in self.parts],
            "files": self.files,
            "rows": self.rows,
            "bytes": self.total_bytes,
            "sample": None if self.sample is None else _sample_to_dict(self.sample),
        }
        return json.dumps(content | {"checksum": _checksum(content)}, indent=1).encode()

    @staticmethod
    def from_bytes(text: bytes, place: str) -> Current:
        """Read what `to_bytes` wrote; anything else is a CorruptFile, or an UnsupportedFeature where it is newer."""
        try:
            content = json.loads(text)
            written = content.pop("checksum")
            if content["format"] != FORMAT:
                raise UnsupportedFeature(
                    f"the index at '{place}' has format {content['format']!r}, this version of Tamis reads {FORMAT}: "
                    "build it again"
                )
            _check(written, content)
            table = content["table"]
            return Current(
                content["build"],
                content["built_at"],
                table["format"],
                table["version"],
                Asked.from_dict(content["asked"]),
                IndexSpec.from_dict(content["spec"]),
                tuple(Part.from_dict(part) for part in content["parts"]),
                content["files"],
                content["rows"],
                content["bytes"],
                None if content["sample"] is None else _sample_from_dict(content["sample"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, pa.ArrowException, OSError) as error:
            raise CorruptFile(f"the index at '{place}' is damaged ({to_one_line(error)}): build it again") from error


def _check(written: object, content: Mapping[str, Any]) -> None:
    if written != _checksum(content):
        raise ValueError("its checksum is wrong")


def _checksum(content: Mapping[str, Any]) -> str:
    return xxhash.xxh64_hexdigest(json.dumps(content, sort_keys=True).encode())


def _sample_to_dict(sample: Sample) -> dict[str, Any]:
    return {
        "path": sample.file.path,
        "size": sample.file.size,
        "modified_ns": sample.file.modified_ns,
        "schema": b64encode(sample.schema.serialize().to_pybytes()).decode(),
    }


def _sample_from_dict(given: Mapping[str, Any]) -> Sample:
    schema = pa.ipc.read_schema(pa.py_buffer(b64decode(given["schema"])))
    return Sample(FileEntry(given["path"], given["size"], given["modified_ns"]), schema)

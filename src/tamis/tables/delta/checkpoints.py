"""Checkpoints: of which parts one consists, and the protocol and the metadata that it has.

A classic checkpoint is one Parquet file or several; a V2 checkpoint has a top file, JSON or Parquet, that names the
sidecars with the files of the table. Which of the two a single Parquet file is shows in what it holds. A checkpoint of
which anything is missing is no use at all, but says nothing that older checkpoints and commits do not say as well.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile, MissingFile
from tamis.io.listing import list_directory
from tamis.io.storage import Storage
from tamis.io.threads import LOCAL_PATIENCE, run_in_threads
from tamis.parquet.footer import Footer, load_footer
from tamis.tables.delta.checkpoint_rows import all_null, read_row_group
from tamis.tables.delta.checkpoint_schema import check_columns
from tamis.tables.delta.commits import ActionLines, read_actions
from tamis.tables.delta.log import FOLDER, Checkpoint, LogFile

SIDECARS = "_sidecars"

_REQUIRED = {"protocol": "minReaderVersion", "metaData": "id", "sidecar": "path"}
"""Actions of which a checkpoint has few, and a field of each that is never null."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenedCheckpoint:
    """A checkpoint all of whose files are there."""

    checkpoint: Checkpoint
    protocol: dict[str, Any] | None
    metadata: dict[str, Any] | None
    parts: tuple[LogFile, ...]
    """The Parquet files that add files: its own, or sidecars."""
    lines: ActionLines | None
    """Of a JSON top file: it may add files by itself."""
    note: str | None = None
    """What a report says of it: something that is odd, and changes no row."""


def open_checkpoint(storage: Storage, checkpoint: Checkpoint) -> OpenedCheckpoint:
    """What a checkpoint is made of. One that is damaged is a CorruptFile, one that lacks a file a MissingFile."""
    if checkpoint.files[0].path.endswith(".json"):
        return _open_json(storage, checkpoint)
    footers = run_in_threads(
        lambda file: load_footer(storage, file.path, file.size, file.modified_ns),
        checkpoint.files,
        storage.threads,
        patience=LOCAL_PATIENCE if storage.is_local else 0.0,
    )
    files = [_Opened(storage, file, *loaded) for file, loaded in zip(checkpoint.files, footers, strict=True)]
    for file in files:
        check_columns(file.footer.schema.arrow, file.place)
    own = tuple(file.file for file in files if file.may_have_files)
    found = [file.few_actions() for file in files]
    sidecars, note = find_sidecars(storage, [row for few in found for row in few["sidecar"]], checkpoint)
    protocol, metadata = (_only(name, found, files[0].place) for name in ("protocol", "metaData"))
    return OpenedCheckpoint(checkpoint, protocol, metadata, (*own, *sidecars), None, note)


def _open_json(storage: Storage, checkpoint: Checkpoint) -> OpenedCheckpoint:
    lines = read_actions(storage, checkpoint.files)
    sidecars, note = find_sidecars(storage, list(lines.all("sidecar")), checkpoint)
    return OpenedCheckpoint(checkpoint, lines.newest("protocol"), lines.newest("metaData"), sidecars, lines, note)


@dataclass(frozen=True, slots=True)
class _Opened:
    storage: Storage
    file: LogFile
    footer: Footer
    content: pa.Buffer | None

    @property
    def place(self) -> str:
        return self.storage.place(self.file.path)

    @property
    def may_have_files(self) -> bool:
        schema = self.footer.schema.arrow
        if "add" in schema.names and self.footer.schema.lacks(("add", "path")):
            raise CorruptFile(f"the checkpoint '{self.place}' adds files without their paths")
        groups = range(self.footer.metadata.num_row_groups)
        return any(not all_null(self.footer, group, ("add", "path")) for group in groups)

    def few_actions(self) -> Mapping[str, Sequence[dict[str, Any]]]:
        """The actions of which there are few, by their kinds, as JSON would have them: kept with the footer."""
        return self.footer.keep("few actions", self._read_few_actions)

    def _read_few_actions(self) -> Mapping[str, Sequence[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {action: [] for action in _REQUIRED}
        for group in range(self.footer.metadata.num_row_groups):
            present = [pair for pair in _REQUIRED.items() if not all_null(self.footer, group, pair)]
            if not present:
                continue
            columns = [(action,) for action, _ in present]
            file = self.file
            for batch in read_row_group(self.storage, file.path, file.size, self.footer, group, columns, self.content):
                for action, required in present:
                    rows = batch.column(action)
                    rows = rows.filter(pc.struct_field(rows, required).is_valid())
                    try:
                        found[action] += map(without_nulls, rows.to_pylist(maps_as_pydicts="lossy"))
                    except (ValueError, OverflowError) as error:  # no UTF-8, or no time that Python knows
                        raise CorruptFile(f"the checkpoint '{self.place}' is damaged in {action}: {error}") from error
        return found


def without_nulls(action: dict[str, Any]) -> dict[str, Any]:
    """An action of a checkpoint, where what a commit leaves out is null."""
    return {
        name: without_nulls(value) if name == "format" and isinstance(value, dict) else value
        for name, value in action.items()
        if value is not None
    }


def _only(action: str, found: Sequence[Mapping[str, Sequence[dict[str, Any]]]], place: str) -> dict[str, Any] | None:
    rows = [row for few in found for row in few[action]]
    if any(row != rows[0] for row in rows):
        raise CorruptFile(f"the checkpoint '{place}' has {len(rows)} different actions {action}: it has one")
    return rows[0] if rows else None


def find_sidecars(
    storage: Storage, actions: Sequence[dict[str, Any]], checkpoint: Checkpoint
) -> tuple[tuple[LogFile, ...], str | None]:
    """The sidecars that actions name, and a note where one is named twice: it is read once.

    All lie in one folder, so the name is all that counts of a path.
    """
    if not actions:
        return (), None
    note = None
    place = storage.place(checkpoint.files[0].path)
    folder = f"{storage.root}/{FOLDER}/{SIDECARS}"
    listing = list_directory(storage, folder)
    columns = (listing.file_paths, listing.file_sizes, listing.file_modified_ns)
    known = {
        posixpath.basename(path): (path, size, modified_ns)
        for path, size, modified_ns in zip(*(column.to_pylist() for column in columns), strict=True)
    }
    found: dict[str, LogFile] = {}
    for action in actions:
        name, size = action.get("path"), action.get("sizeInBytes")
        if not isinstance(name, str):
            raise CorruptFile(f"the checkpoint '{place}' names a sidecar without a path")
        file = known.get(posixpath.basename(unquote(name)))
        if file is None:
            raise MissingFile(f"the sidecar '{storage.place(folder)}/{name}' of the checkpoint '{place}' is gone")
        if size is not None and size != file[1]:
            raise CorruptFile(
                f"the sidecar '{storage.place(file[0])}' has {file[1]} bytes, and the checkpoint '{place}' says {size}"
            )
        if file[0] in found:
            note = f"the checkpoint '{place}' names the sidecar '{storage.place(file[0])}' twice: it is read once"
        found[file[0]] = LogFile(*file, checkpoint.version, checkpoint.version)
    return tuple(found.values()), note

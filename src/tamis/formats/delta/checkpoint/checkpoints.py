"""Checkpoints: their parts, their protocol and their metadata.

A classic checkpoint is one Parquet file or several. A V2 checkpoint has a top file, JSON or Parquet, that lists the
sidecars, which hold the `add` actions. Whether a single Parquet file is a classic or a V2 checkpoint shows in its
content. An incomplete checkpoint is unusable, but older checkpoints and commits hold the same actions.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from tamis.formats.delta.checkpoint.checkpoint_rows import check_columns, is_all_null
from tamis.formats.delta.log.commits import ActionLines, read_actions
from tamis.formats.delta.log.log_segment import LOG_DIRECTORY, Checkpoint, LogFile
from tamis.formats.errors import make_corrupt_log_error, make_missing_log_file_error
from tamis.io.listing import list_directory
from tamis.io.storage import Storage
from tamis.io.threads import LOCAL_SOLO_SECONDS, run_in_threads
from tamis.parquet.footer.footer import Footer, load_footer
from tamis.parquet.reading.row_group_reader import read_row_group

SIDECAR_DIRECTORY = "_sidecars"

_REQUIRED = {"protocol": "minReaderVersion", "metaData": "id", "sidecar": "path", "domainMetadata": "domain"}
"""The actions that are read whole when a checkpoint is opened, with a field of each that is never null."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenedCheckpoint:
    """A complete checkpoint."""

    checkpoint: Checkpoint
    protocol: dict[str, Any] | None
    metadata: dict[str, Any] | None
    parts: tuple[LogFile, ...]
    """The Parquet files with `add` actions: files of the checkpoint itself, or sidecars."""
    lines: ActionLines | None
    """The lines of a JSON top file, which may hold `add` actions too."""
    domains: tuple[dict[str, Any], ...] = ()
    """The `domainMetadata` actions."""
    note: str | None = None
    """A note for the report, on an irregularity that does not change any row."""


def open_checkpoint(storage: Storage, checkpoint: Checkpoint) -> OpenedCheckpoint:
    """Read a checkpoint's schema, protocol, metadata and list of parts.

    A damaged checkpoint raises CorruptFile, one that lacks a file raises MissingFile.
    """
    if checkpoint.files[0].path.endswith(".json"):
        return _open_json(storage, checkpoint)
    footers = run_in_threads(
        lambda file: load_footer(storage, file.path, file.size, file.modified_ns),
        checkpoint.files,
        storage.threads,
        patience=LOCAL_SOLO_SECONDS if storage.is_local else 0.0,
    )
    files = [_OpenedFile(storage, file, *loaded) for file, loaded in zip(checkpoint.files, footers, strict=True)]
    for file in files:
        check_columns(file.footer.schema.arrow, file.location)
    own = tuple(file.file for file in files if file.may_have_adds)
    found = [file.get_small_actions() for file in files]
    sidecars, note = find_sidecars(storage, [row for actions in found for row in actions["sidecar"]], checkpoint)
    protocol, metadata = (_get_only(name, found, files[0].location) for name in ("protocol", "metaData"))
    domains = tuple(row for actions in found for row in actions["domainMetadata"])
    return OpenedCheckpoint(checkpoint, protocol, metadata, (*own, *sidecars), None, domains, note)


def _open_json(storage: Storage, checkpoint: Checkpoint) -> OpenedCheckpoint:
    lines = read_actions(storage, checkpoint.files)
    sidecars, note = find_sidecars(storage, list(lines.all("sidecar")), checkpoint)
    protocol, metadata = lines.get_newest("protocol"), lines.get_newest("metaData")
    return OpenedCheckpoint(checkpoint, protocol, metadata, sidecars, lines, tuple(lines.all("domainMetadata")), note)


@dataclass(frozen=True, slots=True)
class _OpenedFile:
    storage: Storage
    file: LogFile
    footer: Footer
    content: pa.Buffer | None

    @property
    def location(self) -> str:
        return self.storage.format_path(self.file.path)

    @property
    def may_have_adds(self) -> bool:
        schema = self.footer.schema.arrow
        if "add" in schema.names and self.footer.schema.lacks(("add", "path")):
            raise make_corrupt_log_error(f"the checkpoint '{self.location}' has no column add.path")
        groups = range(self.footer.metadata.num_row_groups)
        return any(not is_all_null(self.footer, group, ("add", "path")) for group in groups)

    def get_small_actions(self) -> Mapping[str, Sequence[dict[str, Any]]]:
        """Return the actions of `_REQUIRED` by name, as in JSON; cached with the footer."""
        return self.footer.get_cached("small actions", self._read_small_actions)

    def _read_small_actions(self) -> Mapping[str, Sequence[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {action: [] for action in _REQUIRED}
        for group in range(self.footer.metadata.num_row_groups):
            present = [pair for pair in _REQUIRED.items() if not is_all_null(self.footer, group, pair)]
            if not present:
                continue
            columns = [(action,) for action, _ in present]
            file = self.file
            for batch in read_row_group(self.storage, file.path, file.size, self.footer, group, columns, self.content):
                for action, required in present:
                    rows = batch.column(action)
                    rows = rows.filter(pc.struct_field(rows, required).is_valid())
                    try:
                        found[action] += map(drop_null_fields, rows.to_pylist(maps_as_pydicts="lossy"))
                    except (ValueError, OverflowError) as error:  # invalid UTF-8, or a time out of Python's range
                        if action == "domainMetadata":
                            continue  # it only describes the table
                        raise make_corrupt_log_error(
                            f"the checkpoint '{self.location}' has a damaged {action} action: {error}"
                        ) from error
        return found


def drop_null_fields(action: dict[str, Any]) -> dict[str, Any]:
    """Remove null fields from a checkpoint's action: a commit leaves them out."""
    return {
        name: drop_null_fields(value) if name == "format" and isinstance(value, dict) else value
        for name, value in action.items()
        if value is not None
    }


def _get_only(
    action: str, found: Sequence[Mapping[str, Sequence[dict[str, Any]]]], location: str
) -> dict[str, Any] | None:
    rows = [row for actions in found for row in actions[action]]
    if any(row != rows[0] for row in rows):
        raise make_corrupt_log_error(
            f"the checkpoint '{location}' has {len(rows)} different {action} actions, expected one"
        )
    return rows[0] if rows else None


def find_sidecars(
    storage: Storage, actions: Sequence[dict[str, Any]], checkpoint: Checkpoint
) -> tuple[tuple[LogFile, ...], str | None]:
    """Return the sidecars that `sidecar` actions list, and a note where one is listed twice: it is read once.

    All sidecars are in one directory, so only the last part of each path matters.
    """
    if not actions:
        return (), None
    note = None
    location = storage.format_path(checkpoint.files[0].path)
    folder = f"{storage.root}/{LOG_DIRECTORY}/{SIDECAR_DIRECTORY}"
    known = {posixpath.basename(file.path): file for file in list_directory(storage, folder).list_entries()}
    found: dict[str, LogFile] = {}
    for action in actions:
        name, size = action.get("path"), action.get("sizeInBytes")
        if not isinstance(name, str):
            raise make_corrupt_log_error(f"the checkpoint '{location}' has a sidecar action without a path")
        file = known.get(posixpath.basename(unquote(name)))
        if file is None:
            raise make_missing_log_file_error(
                f"the sidecar '{storage.format_path(folder)}/{name}' of the checkpoint '{location}' is gone"
            )
        if size is not None and size != file.size:
            raise make_corrupt_log_error(
                f"the sidecar '{storage.format_path(file.path)}' has {file.size} bytes, expected {size} by the "
                f"checkpoint '{location}'"
            )
        if file.path in found:
            sidecar = storage.format_path(file.path)
            note = f"the checkpoint '{location}' lists the sidecar '{sidecar}' twice: it is read once"
        version = checkpoint.version
        found[file.path] = LogFile(file.path, file.size, file.modified_ns, version, version)
    return tuple(found.values()), note

"""The options of the data source `tamis`: which table, which version of it, which rows.

| option                        | meaning                                                             |
|-------------------------------|---------------------------------------------------------------------|
| `path`                        | the table, as in `load(path)`                                       |
| `filter`                      | SQL text: for what Spark does not push, such as OR and functions    |
| `version`, `timestamp`        | a version of a Delta table                                          |
| `format`                      | `delta`, `hive` or `parquet`, where it should not be found out      |
| `pushdown`                    | `true`: Spark's filters prune too; for DataFrames of one query only |
| `storage.…`                   | an option of the storage: `storage.aws_region`                      |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tamis.errors import InvalidArgument
from tamis.table import Table, open_table

_NAMES = ("path", "filter", "version", "timestamp", "format", "pushdown")
_STORAGE = "storage."


@dataclass(frozen=True)
class SourceOptions:
    """What the options of a read say."""

    path: str
    filter: str | None = None
    version: int | None = None
    timestamp: str | None = None
    format: str | None = None
    pushdown: bool = False
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @staticmethod
    def of(options: Mapping[str, str]) -> SourceOptions:
        given: dict[str, Any] = {str(name).lower(): value for name, value in options.items()}
        storage = {name.removeprefix(_STORAGE): value for name, value in given.items() if name.startswith(_STORAGE)}
        unknown = sorted(name for name in given if name not in _NAMES and not name.startswith(_STORAGE))
        if unknown:
            raise InvalidArgument(
                f"the data source tamis has no option {unknown[0]!r}. Options: {', '.join(_NAMES)}, and {_STORAGE}… "
                f"for those of the storage, as {_STORAGE}aws_region"
            )
        if not given.get("path"):
            raise InvalidArgument("the data source tamis needs the place of a table: .load('s3://bucket/table')")
        version = given.get("version")
        if version is not None and not str(version).strip().isdigit():
            raise InvalidArgument(f"the option version is a whole number from 0 on, not {version!r}")
        pushdown = str(given.get("pushdown", "false")).strip().lower()
        if pushdown not in ("true", "false"):
            raise InvalidArgument(f"the option pushdown is true or false, not {given['pushdown']!r}")
        return SourceOptions(
            given["path"],
            given.get("filter"),
            None if version is None else int(version),
            given.get("timestamp"),
            given.get("format"),
            pushdown == "true",
            tuple(storage.items()),
        )

    def open(self) -> Table:
        return open_table(
            self.path,
            self.format,
            self.version,
            self.timestamp,
            storage_options=dict(self.storage) or None,
        )

    def pinned(self, table: Table) -> SourceOptions:
        """The same table at the version that was opened, whatever is committed meanwhile."""
        return self if table.version is None else replace(self, version=table.version, timestamp=None)

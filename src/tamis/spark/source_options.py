"""The options of the data source `tamis`: which table, which version of it, which rows.

| option                        | meaning                                                             |
|-------------------------------|---------------------------------------------------------------------|
| `path`                        | the table, as in `load(path)`; its name, where there is a catalog   |
| `filter`                      | SQL text: for what Spark does not push, such as OR and functions    |
| `version`, `timestamp`        | a version of a Delta table                                          |
| `snapshot_id`, `ref`, `timestamp` | a snapshot of an Iceberg table                                  |
| `catalog`, `catalog.…`        | the name, or the properties, of a catalog of Iceberg tables         |
| `format`                      | `delta`, `iceberg`, `hive` or `parquet`, where it should not be found out |
| `pushdown`                    | `true`: Spark's filters prune too; for DataFrames of one query only |
| `index`                       | where the statistics index is, or `false` to use none               |
| `merge_schema`, `allow_outside`, `relocate`, `partitioning.…` | as the arguments of `tamis.open` of these names |
| `int96`                       | `instant` or `local`, as the argument of `tamis.open`               |
| `storage.…`                   | an option of the storage: `storage.aws_region`                      |

Names are taken in any case and with underscores or without; `versionAsOf` and `timestampAsOf` are known too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tamis.errors import InvalidArgument
from tamis.table import Table, open_table, source_of

_NAMES = (
    "path",
    "filter",
    "version",
    "timestamp",
    "snapshot_id",
    "ref",
    "catalog",
    "format",
    "pushdown",
    "index",
    "merge_schema",
    "allow_outside",
    "relocate",
    "int96",
)
_STORAGE, _CATALOG, _PARTITIONING = "storage.", "catalog.", "partitioning."

_SPELLINGS = {name.replace("_", ""): name for name in _NAMES} | {"versionasof": "version", "timestampasof": "timestamp"}
"""What options may be called, in small letters and without underscores: `mergeSchema` and `versionAsOf`, as Spark's."""


@dataclass(frozen=True)
class SourceOptions:
    """What the options of a read say."""

    path: str
    filter: str | None = None
    version: int | None = None
    timestamp: str | None = None
    format: str | None = None
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    snapshot_id: int | None = None
    ref: str | None = None
    catalog: str | None = None
    catalog_properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    pushdown: bool = False
    index: str | bool | None = None
    merge_schema: bool = False
    allow_outside: bool = False
    relocate: bool = True
    partitioning: tuple[tuple[str, str], ...] = ()
    int96: Any = "instant"

    @staticmethod
    def of(options: Mapping[str, str]) -> SourceOptions:
        given: dict[str, Any] = {}
        for name, value in options.items():
            small = str(name).lower()
            is_part = small.startswith((_STORAGE, _CATALOG, _PARTITIONING))
            known = small if is_part else _SPELLINGS.get(small.replace("_", ""))
            if known is None:
                raise InvalidArgument(
                    f"the data source tamis has no option {name!r}. Options: {', '.join(_NAMES)}, and {_STORAGE}… "
                    f"for those of the storage, as {_STORAGE}aws_region, {_CATALOG}… for those of a catalog, "
                    f"{_PARTITIONING}… for types of partition columns"
                )
            if known in given:
                raise InvalidArgument(f"the option {known} is given twice, once as {name!r}")
            given[known] = value
        if not given.get("path"):
            raise InvalidArgument("the data source tamis needs the place of a table: .load('s3://bucket/table')")
        index = given.get("index")
        return SourceOptions(
            given["path"],
            given.get("filter"),
            _number(given, "version"),
            given.get("timestamp"),
            given.get("format"),
            _beginning(given, _STORAGE),
            _number(given, "snapshot_id"),
            given.get("ref"),
            given.get("catalog"),
            _beginning(given, _CATALOG),
            _truth(given, "pushdown", default=False),
            _TRUTHS.get(str(index).strip().lower(), index),
            _truth(given, "merge_schema", default=False),
            _truth(given, "allow_outside", default=False),
            _truth(given, "relocate", default=True),
            _beginning(given, _PARTITIONING),
            str(given.get("int96", "instant")).strip().lower(),
        )

    def open(self) -> Table:
        properties = dict(self.catalog_properties)
        if properties and self.catalog is not None:
            properties["name"] = self.catalog
        return open_table(
            self.path,
            self.format,
            self.version,
            self.timestamp,
            self.snapshot_id,
            self.ref,
            dict(self.storage) or None,
            properties or self.catalog,
            partitioning=dict(self.partitioning) or None,
            merge_schema=self.merge_schema,
            allow_outside=self.allow_outside,
            relocate=self.relocate,
            index=self.index,
            int96=self.int96,
        )

    def pinned(self, table: Table) -> SourceOptions:
        """The same table as it was opened, whatever is committed meanwhile."""
        if table.format == "iceberg":
            return self._pinned_iceberg(table)
        return self if table.version is None else replace(self, version=table.version, timestamp=None)

    def _pinned_iceberg(self, table: Table) -> SourceOptions:
        """By the metadata file, which nobody changes, and which tells the schema too: that of a snapshot may differ."""
        # Few need what it imports.
        from tamis.tables.iceberg.table import IcebergTable

        source = source_of(table)
        assert isinstance(source, IcebergTable)
        given = source.storage.given
        storage = self.storage if given is None else tuple((name, str(value)) for name, value in given[1].items())
        place = source.metadata.place
        return replace(self, path=place, storage=storage, format="iceberg", catalog=None, catalog_properties=())


_TRUTHS = {"true": True, "false": False}


def _truth(given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    found = _TRUTHS.get(str(given.get(name, default)).strip().lower())
    if found is None:
        raise InvalidArgument(f"the option {name} is true or false, not {given[name]!r}")
    return found


def _number(given: Mapping[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is not None and not str(value).strip().isdigit():
        raise InvalidArgument(f"the option {name} is a whole number from 0 on, not {value!r}")
    return None if value is None else int(value)


def _beginning(given: Mapping[str, Any], start: str) -> tuple[tuple[str, str], ...]:
    """The options whose names begin so, without that beginning."""
    return tuple((name.removeprefix(start), value) for name, value in given.items() if name.startswith(start))

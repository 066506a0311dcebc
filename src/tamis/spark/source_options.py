"""The options of the data source `tamis`: the table, its version, and a filter.

| option                        | meaning                                                             |
|-------------------------------|---------------------------------------------------------------------|
| `path`                        | the table, as in `load(path)`; with a catalog, its name             |
| `filter`                      | SQL text, for filters that Spark does not push (OR, functions)      |
| `version`, `timestamp`        | a version of a Delta table                                          |
| `snapshot_id`, `ref`, `timestamp` | a snapshot of an Iceberg table                                  |
| `catalog`, `catalog.…`        | the name, or the properties, of a catalog of Iceberg tables         |
| `format`                      | `delta`, `iceberg`, `hive` or `parquet`, instead of detecting it    |
| `pushdown`                    | `true`: Spark's filters prune too; for DataFrames of one query only |
| `index`                       | the location of the statistics index, or `false` to use none        |
| `merge_schema`, `allow_outside`, `relocate`, `partitioning.…` | as the arguments of `tamis.open` of these names |
| `int96`                       | `to_instant` or `local`, as the argument of `tamis.open`               |
| `storage.…`                   | a storage option, such as `storage.aws_region`                      |

Names are case-insensitive, with or without underscores; `versionAsOf` and `timestampAsOf` are accepted too.
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
"""Accepted option names, in lower case and without underscores: also Spark's `mergeSchema` and `versionAsOf`."""


@dataclass(frozen=True)
class SourceOptions:
    """The parsed options of a read."""

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
            lowered = str(name).lower()
            has_prefix = lowered.startswith((_STORAGE, _CATALOG, _PARTITIONING))
            known = lowered if has_prefix else _SPELLINGS.get(lowered.replace("_", ""))
            if known is None:
                raise InvalidArgument(
                    f"the data source tamis has no option {name!r}. Options: {', '.join(_NAMES)}, {_STORAGE}… for "
                    f"storage options (such as {_STORAGE}aws_region), {_CATALOG}… for catalog properties, and "
                    f"{_PARTITIONING}… for the types of partition columns"
                )
            if known in given:
                raise InvalidArgument(f"the option {known} is given twice, once as {name!r}")
            given[known] = value
        if not given.get("path"):
            raise InvalidArgument("the data source tamis needs the path of a table: .load('s3://bucket/table')")
        index = given.get("index")
        return SourceOptions(
            given["path"],
            given.get("filter"),
            _parse_number(given, "version"),
            given.get("timestamp"),
            given.get("format"),
            _select_prefixed(given, _STORAGE),
            _parse_number(given, "snapshot_id"),
            given.get("ref"),
            given.get("catalog"),
            _select_prefixed(given, _CATALOG),
            _parse_boolean(given, "pushdown", default=False),
            _BOOLEANS.get(str(index).strip().lower(), index),
            _parse_boolean(given, "merge_schema", default=False),
            _parse_boolean(given, "allow_outside", default=False),
            _parse_boolean(given, "relocate", default=True),
            _select_prefixed(given, _PARTITIONING),
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
        """Return options that open the same version of the table again, regardless of later commits."""
        if table.format == "iceberg":
            return self._pin_iceberg(table)
        return self if table.version is None else replace(self, version=table.version, timestamp=None)

    def _pin_iceberg(self, table: Table) -> SourceOptions:
        """Return options that open the metadata file: it never changes, and the schema of a snapshot may differ."""
        # Imported lazily: Iceberg's dependencies are optional.
        from tamis.tables.iceberg.table import IcebergTable

        source = source_of(table)
        assert isinstance(source, IcebergTable)
        given = source.storage.given
        storage = self.storage if given is None else tuple((name, str(value)) for name, value in given[1].items())
        path = source.metadata.file_location
        return replace(self, path=path, storage=storage, format="iceberg", catalog=None, catalog_properties=())


_BOOLEANS = {"true": True, "false": False}


def _parse_boolean(given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    found = _BOOLEANS.get(str(given.get(name, default)).strip().lower())
    if found is None:
        raise InvalidArgument(f"the option {name} must be true or false, not {given[name]!r}")
    return found


def _parse_number(given: Mapping[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is not None and not str(value).strip().isdigit():
        raise InvalidArgument(f"the option {name} must be a nonnegative integer, not {value!r}")
    return None if value is None else int(value)


def _select_prefixed(given: Mapping[str, Any], start: str) -> tuple[tuple[str, str], ...]:
    """Return the options whose names start with a prefix, without it."""
    return tuple((name.removeprefix(start), value) for name, value in given.items() if name.startswith(start))

"""Which columns of files are read for what a scan returns and tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa

from tamis.errors import UnsupportedFeature
from tamis.parquet.conform import Constants, describe_shredded_variant
from tamis.parquet.leaves import FileSchema, list_flat_paths
from tamis.parquet.matching import find_path
from tamis.scan.projection import Path, narrow
from tamis.scan.residual import Residual
from tamis.scan.tasks import ScanTask, as_type


class Reading:
    """How tasks are read of which the same part of the filter remains."""

    def __init__(
        self,
        schema: pa.Schema,
        projection: Iterable[Path],
        partition_columns: tuple[str, ...],
        residual: Residual | None,
    ) -> None:
        self.residual = residual
        self._table = schema
        tested = [column.path for column in residual.columns] if residual is not None else []
        self.schema = narrow(schema, (*projection, *tested))
        self.constants = [name for name in self.schema.names if name in partition_columns]
        self.of_files = pa.schema([field for field in self.schema if field.name not in partition_columns])
        self.can_join = not any(pa.types.is_dictionary(data_type) for data_type in _all_types(self.of_files))
        self._leaves: dict[FileSchema, dict[str, list[int]]] = {}

    def leaves(self, schema: FileSchema) -> list[int]:
        """The leaves to read of files with a schema."""
        return sorted(leaf for found in self.leaves_by_column(schema).values() for leaf in found)

    def leaves_by_column(self, schema: FileSchema) -> dict[str, list[int]]:
        """The leaves to read of files with a schema, by the column of the table that needs them."""
        found = self._leaves.get(schema)
        if found is None:
            found = {field.name: self._find_leaves(schema, field) for field in self.of_files}
            self._leaves[schema] = found
        return found

    def _find_leaves(self, schema: FileSchema, field: pa.Field) -> list[int]:
        paths = list_flat_paths([field])
        _refuse_shredded(self._table, schema, paths)
        return sorted({leaf for path in paths for leaf in schema.find_leaves_to_read(path)})

    def constants_of(self, task: ScanTask) -> Constants:
        """The partition values of a task that are read."""
        values = task.partition_values
        return {name: as_type(values[name], self.schema.field(name).type) for name in self.constants}

    def lacking(self, task: ScanTask, schema: FileSchema) -> Constants:
        """The values of columns that a file of a schema does not have, where they are known otherwise."""
        if not task.where_absent:
            return {}
        found = self.leaves_by_column(schema)
        return {
            key: value
            for key, value in task.where_absent.items()
            if (key in found and not found[key] if isinstance(key, str) else key[0] in found)
        }


def _all_types(schema: pa.Schema) -> Iterator[pa.DataType]:
    waiting = [field.type for field in schema]
    while waiting:
        data_type = waiting.pop()
        yield data_type
        waiting += [data_type.field(index).type for index in range(data_type.num_fields)]


def _refuse_shredded(table: pa.Schema, schema: FileSchema, paths: Collection[Path]) -> None:
    """An error for variants whose values a file has, in part or whole, in columns of their own types.

    Where the table has those columns too, of whatever type, it is a struct to the table, and is read as that.
    """
    for *parents, name in paths:
        typed = (*parents, "typed_value")
        if (
            name == "metadata"
            and (*parents, "value") in paths
            and find_path(table, typed) is None
            and schema.find(typed) is not None
        ):
            raise UnsupportedFeature(describe_shredded_variant(".".join(parents)))

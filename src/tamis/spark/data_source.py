"""The data source `tamis`, for `spark.read.format("tamis")` and `CREATE TEMPORARY VIEW … USING tamis`.

Spark runs it in separate Python processes: one plans the query, others read. Spark keeps the filters it pushed into a
DataFrame or view, and applies them again to other queries of the same DataFrame: after `df.where("k = 3")`, a
`df.count()` would count only the rows with k = 3. So filters are pushed only if the option `pushdown` declares that a
DataFrame is used for one query; the option `filter` belongs to the DataFrame and is always safe. With `pushdown`, later
versions of Spark also push limits and columns; until then a schema given by the user prunes columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tamis.errors import ExpressionError, InvalidArgument
from tamis.expr.bind import bind
from tamis.expr.expression_json import expression_from_json, expression_to_json
from tamis.expr.nodes import Expr
from tamis.expr.sql import parse_sql
from tamis.scan.task_data import get_task_reader
from tamis.spark.handler import quoted
from tamis.spark.pushed_filters import from_filter
from tamis.spark.source_options import SourceOptions
from tamis.spark.task_runner import packed_tasks, read_packed, reader_text
from tamis.spark.types import asked_schema, fit_rows, row_schema, spark_schema
from tamis.table import Table


class TamisDataSource(DataSource):  # type: ignore[misc]  # mypy does not look into pyspark
    """The data source `tamis`."""

    @classmethod
    def name(cls) -> str:
        return "tamis"

    def schema(self) -> StructType:
        return spark_schema(row_schema(SourceOptions.of(self.options).open().schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = SourceOptions.of(self.options)
        return PushingReader(options, schema) if options.pushdown else PlainReader(options, schema)


class PlainReader(DataSourceReader):  # type: ignore[misc]
    """Reads the columns of a schema, and the rows that match the option `filter`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        # All attributes are plain data, because Spark sends the reader to other processes.
        self.options = options
        self.schema_text = schema.json()
        self.pushed: list[dict[str, Any]] = []
        self.limit: int | None = None

    def partitions(self) -> Sequence[InputPartition]:
        table = self.options.open()
        where: list[Any] = [expression_from_json(each) for each in self.pushed]
        if self.options.filter is not None:
            where.append(parse_sql(self.options.filter))
        columns = columns_of_schema(self._schema(), table)
        scan = table.scan(where, columns, self.limit)
        reader = get_task_reader(scan)
        text = reader_text(reader)
        tasks = scan.plan().tasks
        return [InputPartition((text, packed)) for packed in packed_tasks(reader, enough(tasks, self.limit))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return  # Spark creates an empty partition if there are none
        asked = self._schema()
        for batch in read_packed(*partition.value):
            yield fit_rows(batch, asked_schema(batch.schema, asked))

    def _schema(self) -> StructType:
        return StructType.fromJson(json.loads(self.schema_text))


class PushingReader(PlainReader):
    """Accepts each of Spark's filters that the table supports: for a single query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        table = self.options.open()
        # This query must not see commits between this call and the next one.
        self.options = self.options.pinned(table)
        for each in filters:
            expression = from_filter(each)
            if expression is None or not _can_bind(expression, table):
                yield each  # Spark applies it
            else:
                self.pushed.append(expression_to_json(expression))

    if hasattr(DataSourceReader, "pushLimit"):

        def pushLimit(self, limit: int) -> bool:  # noqa: N802
            """Accept a limit, as later versions of Spark push it; Spark still applies it itself."""
            self.limit = limit
            return True

    if hasattr(DataSourceReader, "pruneColumns"):

        def pruneColumns(self, required: StructType) -> StructType:  # noqa: N802
            """Accept the required columns, as later versions of Spark push them."""
            self.schema_text = required.json()
            return required


def _can_bind(expression: Expr, table: Table) -> bool:
    try:
        bind(expression, table.schema, table.name)
    except ExpressionError:
        return False
    return True


def enough(tasks: Iterable[Any], limit: int | None) -> Iterator[Any]:
    """Yield tasks until they are guaranteed to hold as many rows as the limit."""
    certain = 0
    for task in tasks:
        yield task
        certain += 0 if task.residual else task.row_count
        if limit is not None and certain >= limit:
            return


def columns_of_schema(schema: StructType, table: Table) -> list[str]:
    """Return the quoted columns of a table that a schema requests, after checking their names and types."""
    stored = row_schema(table.schema)
    if not schema.fields:
        raise InvalidArgument("the schema has no columns: name at least one")
    names = []
    for field in schema.fields:
        known = [each for each in stored if each.name.casefold() == field.name.casefold()]
        exact = [each for each in known if each.name == field.name] or known
        if len(exact) != 1:
            raise InvalidArgument(
                f"the schema has the column {field.name!r}, which {table.name} does not have. Columns: "
                f"{', '.join(table.schema.names)}"
            )
        own = spark_schema(pa.schema(exact)).fields[0]
        if own.dataType.simpleString().casefold() != field.dataType.simpleString().casefold():
            raise InvalidArgument(
                f"the schema has {field.name} as {field.dataType.simpleString()}, but in {table.name} it is "
                f"{own.dataType.simpleString()}: use that type, and cast the column afterwards"
            )
        names.append(quoted(exact[0].name))
    return names

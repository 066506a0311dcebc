"""Tables under policies: they show what a principal may see."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import PurePosixPath
from typing import Any, NoReturn

import pyarrow as pa

from tamis.errors import AccessDenied, InvalidArgument, TableError, suggest_method_arguments
from tamis.expr.functions.table import type_of
from tamis.expr.nodes import TRUE, AnyExpr, Column, Expr, Name, and_, find_columns, replace_columns, split_conjuncts
from tamis.expr.normalise import normalise
from tamis.expr.sql.printer import to_display_sql
from tamis.formats.source import LEVELS, HasCatalogNames, TableSource
from tamis.query.plan.nodes import Named
from tamis.query.policies.apply_policies import BoundPolicy, bind_policy, list_visible_texts
from tamis.query.policies.leakproof import is_leakproof
from tamis.query.policies.model import Policies, TablePolicy
from tamis.query.policies.protected_reading import (
    REVEALING_ERRORS,
    UNREADABLE,
    Projection,
    redact_errors,
    redact_errors_of,
)
from tamis.scan.planning.plan import ScanPlan, describe_files
from tamis.scan.planning.projection import Path, narrow_schema, resolve_projection
from tamis.scan.reading.residual import Residual, check_functions
from tamis.scan.reading.task_reader import project_batch
from tamis.scan.report.report import Report
from tamis.scan.scan import LazyScan, Scan, ScanRequest, describe_scan
from tamis.skipping.predicate import is_partition_text, make_predicate, restore_partition_texts
from tamis.table import Table, TableDescription, get_source
from tamis.tuning import Tuning, check_tuning

# --- Protected scan -------------------------------------------------------------------------------------------------
#
# A scan of a table under a policy: it returns visible rows, and reveals nothing else.


REDACTED_SCAN_NOTE = "The table is under a policy: what is read of it is not shown."


def mask_schema(schema: pa.Schema, policy: BoundPolicy) -> pa.Schema:
    """Return the columns of a table as a principal sees them under a policy."""
    return pa.schema(
        [
            field.with_type(type_of(policy.masks[field.name])) if field.name in policy.masks else field
            for field in schema
        ]
    )


@suggest_method_arguments("Scan")
class ProtectedScan(LazyScan):
    """A scan that applies a policy first. The user's filter sees visible rows and masked values only.

    `scan_again` makes the scan of another request, under the policy of that time.
    """

    def __init__(
        self,
        source: TableSource,
        policy: BoundPolicy,
        request: ScanRequest,
        scan_again: Callable[[ScanRequest], ProtectedScan],
    ) -> None:
        self._request = request
        self._scan_again = scan_again
        self._table = source.name
        self._format = source.format
        visible = mask_schema(source.schema, policy)
        texts = list_visible_texts(source, policy)
        predicate = make_predicate(request.where, visible, source.name, partition_texts=texts)
        check_functions(predicate.expr, visible)
        self._predicate = predicate
        self._projection = resolve_projection(request.columns, visible, source.name)
        self._schema = narrow_schema(visible, self._projection)
        below: list[Expr] = []
        above: list[Expr] = []
        for conjunct in split_conjuncts(predicate.expr):
            is_raw = all(column.path[0] not in policy.masks for column in find_columns(conjunct))
            is_below = is_raw and is_leakproof(conjunct)
            if not is_below and any(is_partition_text(column.path[0]) for column in find_columns(conjunct)):
                raise InvalidArgument(
                    f"{source.name} is under a policy, where a partition filter cannot be combined with OR with "
                    f"conditions that are tested after it, as in {to_display_sql(conjunct)}: write the filter as SQL"
                )
            (below if is_below else above).append(restore_partition_texts(conjunct))
        self._residual = Residual(above) if above else None
        paths = [*self._projection, *(column.path for column in find_columns(and_(*above)))]
        self._scan = Scan(
            source,
            and_(policy.rows, *below),
            _find_raw_columns(paths, policy, source.schema),
            request.limit if not above else None,
            request.levels,
        )
        self._masked = _make_masking(paths, policy, self._scan.schema)

    @property
    def schema(self) -> pa.Schema:
        """The columns that the scan returns."""
        return self._schema

    def filter(self, where: object) -> ProtectedScan:
        """Return this scan with one more filter."""
        return self._scan_again(self._request.filter(where))

    def select(self, *columns: Any) -> ProtectedScan:
        """Return a scan of some of the columns: `scan.select("id", "address.city")`, or a list of names."""
        return self._scan_again(self._request.select(columns, self._schema, self._table))

    def limit(self, count: int) -> ProtectedScan:
        """Return a scan of at most `count` of the visible rows."""
        return self._scan_again(self._request.limit_rows(count))

    def plan(self, depth: str = "pages") -> ScanPlan:
        """Return the request. The plan does not show what would be read of a table under a policy."""
        names = tuple(".".join(path) for path in self._projection)
        report = Report(self._table, self._format, self._predicate.text, names, note=REDACTED_SCAN_NOTE)
        nothing = pa.table(
            {name: pa.array([], pa.string() if name == "path" else pa.int64()) for name in _FILE_COLUMNS}
        )
        return ScanPlan(describe_files(nothing), depth, report)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the visible rows, batch by batch."""
        remaining = self._request.limit
        for batch in redact_errors_of(map(self._masked, self._scan.to_batches())):
            visible = batch if self._residual is None else self._residual.filter(batch)
            visible = project_batch(visible, self._schema).slice(0, remaining)
            if remaining is not None:
                remaining -= visible.num_rows
            if visible.num_rows:
                yield visible
            if remaining == 0:
                return

    def count(self) -> int:
        """Return how many visible rows match."""
        if self._residual is None:
            with redact_errors():
                return self._scan.count()
        return sum(batch.num_rows for batch in self.to_batches())

    def to_spark(self, spark: Any, *, reader: str = "auto") -> Any:
        """Return the visible rows as a Spark DataFrame. They are read here: Spark's plans would show hidden files."""
        return spark.createDataFrame(self.to_arrow())

    @property
    def report(self) -> Report | None:
        """None: a report would describe hidden rows."""
        return None

    @property
    def bytes_read(self) -> int:
        """0: the number would describe hidden rows."""
        return 0

    def __repr__(self) -> str:
        return describe_scan(self._table, self._schema, self._predicate.text, self._request.limit)

    def _repr_html_(self) -> str:
        return self.plan()._repr_html_()


_FILE_COLUMNS = ("path", "size")


def _find_raw_columns(paths: Sequence[Path], policy: BoundPolicy, schema: pa.Schema) -> list[Any]:
    """Return the raw columns that a scan must read for visible ones."""
    needed: dict[Path, None] = {}
    for path in paths:
        mask = policy.masks.get(path[0])
        for raw in [path] if mask is None else [column.path for column in find_columns(mask)]:
            needed[raw] = None
    # Where all masks are constants, one column carries the number of rows.
    return [Name(path, exact=True) for path in needed or [(schema.names[0],)]]


def _make_masking(paths: Sequence[Path], policy: BoundPolicy, schema: pa.Schema) -> Projection:
    """Return the projection from raw to visible columns."""
    names = dict.fromkeys(path[0] for path in paths)
    exprs = [policy.masks[name] if name in policy.masks else Column((name,), schema.field(name).type) for name in names]
    visible = pa.schema([(name, type_of(expr)) for name, expr in zip(names, exprs, strict=True)])
    return Projection([Named(*each) for each in zip(names, exprs, strict=True)], visible)


def list_policy_names(source: TableSource) -> tuple[str, ...]:
    """Return the names under which policies find a table: its location, also with links resolved, its name, and its
    names in its catalog."""
    locations = [source.storage.uri]
    if source.storage.is_local:
        locations.append(os.path.realpath(source.storage.uri))
    in_catalog = source.names_in_catalog if isinstance(source, HasCatalogNames) else ()
    return tuple(dict.fromkeys((*locations, source.name, *in_catalog)))


@contextmanager
def redact_catalog_errors(policies: Policies | None) -> Iterator[None]:
    """Redact errors while a table of a catalog is opened, where there are policies."""
    try:
        yield
    except REVEALING_ERRORS:
        if policies is None:
            raise
        raise TableError(UNREADABLE) from None


@contextmanager
def redact_opening_errors(
    location: str | os.PathLike[str], policies: Policies | None, principal: str | None
) -> Iterator[None]:
    """Redact errors about files while a table is opened, unless the principal may read all of it."""
    try:
        yield
    except REVEALING_ERRORS:
        if policies is None:
            raise
        uri = os.fspath(location)
        found = policies.find_policy((uri, os.path.realpath(uri), PurePosixPath(uri).name), principal)
        if found is None or (not found.masks and _keeps_all_rows(found.rows)):
            raise
        raise TableError(UNREADABLE) from None


def _keeps_all_rows(rows: AnyExpr) -> bool:
    """Return whether a row filter is TRUE whatever the columns of the table are."""
    return normalise(replace_columns(rows, lambda leaf: Column(leaf.path, None))) == TRUE


Around = Callable[[TableSource], Sequence[Sequence[str]]]
"""Returns the names of registered tables that are a table, or contain it."""


def _bind(policy: TablePolicy, source: TableSource, principal: str | None) -> BoundPolicy:
    return bind_policy(policy, source.schema, source.name, principal, source.partition_texts)


def protect_table(
    table: Table, policies: Policies | None, principal: str | None, around: Around = lambda source: ()
) -> Table | ProtectedTable:
    """Return the table as a principal may see it; AccessDenied where the principal may not see it at all."""
    if policies is None:
        return table
    source = get_source(table)
    found = policies.find_policy(list_policy_names(source), principal, around(source))
    if found is None or not _bind(found, source, principal).restricts:
        return table
    return ProtectedTable(table, policies, principal, around)


def _refuse(what: str) -> Callable[..., NoReturn]:
    """Return a method of a protected table that is refused."""

    def refuse(table: ProtectedTable, *args: object, **options: object) -> NoReturn:
        raise AccessDenied(f"{table.name} is under a policy: {what} would reveal rows that it hides")

    return refuse


@suggest_method_arguments("Table")
class ProtectedTable:
    """A table under a policy, which is looked up for each scan. It has a table, and exposes only the methods below: see
    `tests/test_protected_interface.py`.
    """

    def __init__(self, table: Table, policies: Policies, principal: str | None, around: Around) -> None:
        self._table = table
        self._source = get_source(table)
        self._policies = policies
        self._principal = principal
        self._around = around

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._table.name

    @property
    def format(self) -> str:
        """`delta`, `iceberg`, `hive` or `parquet`."""
        return self._table.format

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._table.uri

    @property
    def schema(self) -> pa.Schema:
        """The columns as the principal sees them: a masked column has the type of its mask."""
        return mask_schema(self._source.schema, self._policy())

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The partition columns, as those of a `Table`."""
        return self._table.partition_columns

    @property
    def version(self) -> int | None:
        """The version that was opened; of an Iceberg table the snapshot."""
        return self._table.version

    num_files = size_in_bytes = column_mapping_mode = property(_refuse("its files"))
    files = files_dataframe = _refuse("its files")
    stats_column = _refuse("its statistics")
    history = _refuse("its history")
    verify = _refuse("what its levels keep")
    at = _refuse("another version")
    """A policy is about the table as it was opened, and may not fit an older version."""

    def scan(
        self,
        where: object = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        *,
        levels: Collection[str] = LEVELS,
        tuning: Tuning | None = None,
    ) -> ProtectedScan:
        """Return a lazy scan of the visible rows for which `where` is TRUE."""
        source = self._source if tuning is None else self._source.with_tuning(check_tuning(tuning))
        return self._scan(source, ScanRequest.parse(where, columns, limit, levels))

    def _scan(self, source: TableSource, request: ScanRequest) -> ProtectedScan:
        return ProtectedScan(source, self._policy(), request, partial(self._scan, source))

    def refresh(self) -> ProtectedTable:
        """Return the table at its newest version, under the same policies."""
        with redact_errors():
            table = self._table.refresh()
        return ProtectedTable(table, self._policies, self._principal, self._around)

    def count(self, where: object = None) -> int:
        """Return how many rows are visible, or for how many of them `where` is TRUE."""
        return self.scan(where).count()

    def head(self, count: int = 5) -> ProtectedScan:
        """Return a scan of at most `count` visible rows."""
        return self.scan(limit=count)

    def describe(self) -> TableDescription:
        """Return what is visible of the table. Files, bytes and rows are not."""
        return TableDescription(
            self.name, self.format, self.uri, self.version, self.schema, self.partition_columns, None, None, None
        )

    def _policy(self) -> BoundPolicy:
        found = self._policies.find_policy(list_policy_names(self._source), self._principal, self._around(self._source))
        if found is None:
            return BoundPolicy()
        return _bind(found, self._source, self._principal)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a table cannot be pickled: send its URI, and its version, and open it there with tamis.open")

    def __repr__(self) -> str:
        return repr(self._table)


def get_unprotected_source(table: Table | ProtectedTable) -> TableSource:
    """Return the format's implementation of a table, for a session that applies its own policies."""
    return table._source if isinstance(table, ProtectedTable) else get_source(table)

"""Sessions: tables opened with shared options, planned in this process or on Spark, queried with SQL.

>>> connection = tamis.connect(spark=spark)                            # doctest: +SKIP
>>> connection.open("s3://lake/orders").scan("day = '2024-03-01'")     # doctest: +SKIP
>>> connection.register("orders", connection.open("s3://lake/orders")) # doctest: +SKIP
>>> connection.sql("SELECT count(*) FROM orders")                      # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn, cast, overload

from tamis.errors import (
    AccessDenied,
    InvalidArgument,
    MissingValue,
    ParseError,
    UnsupportedFeature,
    add_article,
    check_flags,
    suggest_arguments,
    suggest_method_arguments,
)
from tamis.formats.jobs import AUTO, LOCAL, SPARK, Engine, Planning, check_mode, get_job_engines
from tamis.formats.open_source import attach_catalog, is_catalog, open_source
from tamis.formats.source import TABLE_FORMATS, Versioned
from tamis.index.finding import find_index
from tamis.io.storage_options import check_storage_options
from tamis.skipping.handler import ExpressionHandler, check_handler
from tamis.table import Table
from tamis.tuning import Tuning, check_tuning

if TYPE_CHECKING:
    import pyarrow as pa

    from tamis.formats.source import TableSource
    from tamis.parquet.footer.leaves import Int96
    from tamis.query.catalog import Catalog
    from tamis.query.connectors.memory_connector import FrameRows
    from tamis.query.policies import Policies, PolicySource
    from tamis.query.policies.protected_table import ProtectedTable
    from tamis.query.query import CompiledQuery, Query, Rules
    from tamis.query.sql.parameters import Arguments
    from tamis.query.sql.table_versions import TableState

_CATALOG_OPTIONS = {"storage_options": None, "relocate": True, "allow_outside": False}
"""Arguments of `Session.attach` that apply to catalogs only, with their defaults."""


SPARK_DIALECT, DUCKDB_DIALECT = "spark", "duckdb"

if TYPE_CHECKING:
    from typing import Generic

    from typing_extensions import TypeVar

    Answer = TypeVar("Answer", default=Any)

    class _Answering(Generic[Answer]):
        pass

else:
    Answer = object

    class _Answering:
        """The type parameter, what `sql` returns, matters only to type checkers."""

        def __class_getitem__(cls, answer: object) -> type:
            return cls


@suggest_method_arguments("Session")
class Session(_Answering[Answer]):
    """Opens tables, and runs SQL over registered tables. `tamis.connect` makes it."""

    def __init__(
        self,
        spark: Any = None,
        *,
        planning: str = AUTO,
        policies: PolicySource | None = None,
        storage_options: Mapping[str, Any] | None = None,
        tuning: Tuning | None = None,
        handler: ExpressionHandler | None = None,
    ) -> None:
        check_mode(planning)
        if spark is None and planning == SPARK:
            raise InvalidArgument(
                "planning='spark' needs a Spark session: tamis.connect(spark=spark, planning='spark')"
            )
        self._spark = None if spark is None else get_job_engines().make_spark(spark)
        self._spark_session = spark
        self._mode = LOCAL if spark is None else planning
        self._policies = _load_policies(policies)
        check_storage_options(storage_options)
        self._storage_options = storage_options
        self._tuning = check_tuning(tuning)
        self._handler = check_handler(handler)
        self._principal: str | None = None
        self._catalog_of: dict[str, Catalog] = {}
        """The catalog, made on first use and shared with the sessions of other principals."""
        self._catalog_lock = Lock()

    @property
    def planning(self) -> str:
        """`auto`, `local` or `spark`."""
        return self._mode

    @property
    def engine(self) -> Engine:
        """The engine that runs jobs: Spark where the session has it, unless `planning` is `local`."""
        return get_job_engines().make_local() if self._spark is None or self._mode == LOCAL else self._spark

    @property
    def principal(self) -> str | None:
        """The principal whose policies apply; None without one."""
        return self._principal

    def as_principal(self, name: str) -> Session[Answer]:
        """Return the session for a principal: the same tables, under the policies for that principal."""
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"a principal must be a non-empty text, found {name!r}")
        other: Session[Answer] = Session.__new__(Session)
        other.__dict__.update(self.__dict__)
        other._principal = name
        return other

    # --- Tables -------------------------------------------------------------------------------------------------------

    def open(
        self,
        uri: str | os.PathLike[str],
        format: str | None = None,
        version: int | None = None,
        timestamp: object = None,
        snapshot_id: int | None = None,
        ref: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        catalog: object = None,
        *,
        changes: tuple[int, int | None] | None = None,
        partitioning: Mapping[str, str | pa.DataType] | None = None,
        merge_schema: bool = False,
        allow_outside: bool = False,
        relocate: bool = True,
        index: str | os.PathLike[str] | bool | None = None,
        int96: Int96 = "instant",
        tuning: Tuning | None = None,
        handler: ExpressionHandler | None = None,
    ) -> Table | ProtectedTable:
        """Open a table, with the arguments of `tamis.open`. Policies of the session apply to it.

        `storage_options`, `tuning` and `handler` are by default those of the session.
        """
        if handler is not None and self._policies is not None:
            # It would see the metadata of rows that the policies hide.
            raise AccessDenied("a session with policies has one handler: give it to tamis.connect(handler=…)")
        open_table = partial(
            self._open_source,
            uri,
            format,
            version=version,
            timestamp=timestamp,
            snapshot_id=snapshot_id,
            ref=ref,
            storage_options=storage_options,
            catalog=catalog,
            changes=changes,
            partitioning=partitioning,
            merge_schema=merge_schema,
            allow_outside=allow_outside,
            relocate=relocate,
            index=index,
            int96=int96,
            tuning=tuning,
            handler=handler,
        )
        if self._policies is None:
            return Table(open_table())
        from tamis.query.policies.protected_table import protect_table, redact_opening_errors

        with redact_opening_errors(uri, self._policies, self._principal):
            table = Table(open_table())
        return protect_table(table, self._policies, self._principal, self._find_names_around)

    def _find_names_around(self, source: TableSource) -> Sequence[Sequence[str]]:
        """Return the names of registered tables that are this table, or contain it."""
        return self._catalog.find_enclosing_names(source) if "catalog" in self._catalog_of else ()

    def _open_source(self, uri: str | os.PathLike[str], format: str | None = None, **options: Any) -> TableSource:
        planning = None if self._spark is None or self._mode == LOCAL else Planning(self._spark, self._mode)
        own = {"storage_options": self._storage_options, "tuning": self._tuning, "handler": self._handler}
        options |= {name: value for name, value in own.items() if options.get(name) is None}
        return open_source(uri, format, **options, planning=planning, find_index=find_index)

    def register(self, name: str, table: Any) -> Session[Answer]:
        """Register a table under a name for SQL: an opened table, its URI, or rows that Arrow can read."""
        if isinstance(table, str) and not isinstance(cast(object, name), str):
            kind = add_article(type(name).__name__)
            raise InvalidArgument(f"register takes the name first, found {kind}: c.register({table!r}, …)")
        if isinstance(table, str | os.PathLike):
            table = Table(self._open_source(table))
        from tamis.query.policies.protected_table import ProtectedTable, get_unprotected_source, list_policy_names

        if not isinstance(table, Table | ProtectedTable):
            rows = None if self._spark_session is None else self._to_frame_rows(table)
            self._catalog.register_rows(name, table if rows is None else rows)
            return self
        if isinstance(table, ProtectedTable) and self._policies is None:
            raise AccessDenied(f"{table.name} is under the policies of another session: register it there")
        # A query sees it through the policies of its session, whichever session opened it.
        source = get_unprotected_source(table)
        self._catalog.register_source(name, source, list_policy_names(source))
        return self

    def attach(
        self,
        name: str,
        database: Any = None,
        *,
        catalog: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        relocate: bool = True,
        allow_outside: bool = False,
    ) -> Session[Answer]:
        """Attach a database, with tables `name.table`, or a catalog, with tables `name.namespace.table`.

        `database` is a URI or a connector (`tamis.Connector`). `catalog` is an Iceberg catalog: one of pyiceberg's, or
        the properties or the name of one. `storage_options`, `relocate` and `allow_outside` are those of `tamis.open`
        for the tables of the catalog.
        """
        options = {"storage_options": storage_options, "relocate": relocate, "allow_outside": allow_outside}
        if (database is None) == (catalog is None):
            raise InvalidArgument(
                "attach a database by its URI, c.attach('pg', 'postgresql://…'), or an Iceberg catalog, "
                "c.attach('prod', catalog={'type': 'rest', 'uri': '…'})"
            )
        if catalog is not None or is_catalog(database):
            self._attach_catalog(name, database if catalog is None else catalog, options)
            return self
        for option, default in _CATALOG_OPTIONS.items():
            if options[option] is not default:
                raise InvalidArgument(f"{option}= applies to a catalog, and {name!r} is a database: leave it out")
        if hasattr(database, "push_filter") and hasattr(database, "read"):
            self._catalog.attach(name, database)
        else:
            from tamis.formats.database import open_database
            from tamis.query.connectors.database_connector import DatabaseConnector

            self._catalog.attach(name, DatabaseConnector(name, open_database(database)))
        return self

    def _attach_catalog(self, name: str, catalog: Any, options: Mapping[str, Any]) -> None:
        from tamis.query.policies.protected_table import list_policy_names, redact_catalog_errors

        check_storage_options(options.get("storage_options"))
        check_flags(**{name: given for name, given in options.items() if name != "storage_options"})

        def open_table(identifier: str, loaded: object) -> TableSource:
            with redact_catalog_errors(self._policies):
                return self._open_source(identifier, catalog=loaded, **options)

        self._catalog.attach_lake(name, attach_catalog(name, catalog, open_table, list_policy_names))

    def unregister(self, name: str) -> Session[Answer]:
        """Remove a registered table. Earlier queries keep it."""
        self._catalog.unregister(name)
        return self

    def detach(self, name: str) -> Session[Answer]:
        """Remove an attached database or catalog, and close its connections."""
        self._catalog.detach(name)
        return self

    def close(self) -> None:
        """Close the connections to all databases. Sessions of other principals share them, and are closed too."""
        if "catalog" in self._catalog_of:
            self._catalog.detach_all()

    def __enter__(self) -> Session[Answer]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def tables(self) -> list[str]:
        """The names of registered tables, and of tables in attached databases that list them."""
        return self._catalog.table_names()

    @property
    def _catalog(self) -> Catalog:
        found = self._catalog_of.get("catalog")
        if found is not None:
            return found
        # The engine takes a tenth of a second to load, and few sessions query.
        from tamis.query.catalog import Catalog

        with self._catalog_lock:
            # Another thread may have made it meanwhile, and registered tables in it.
            if "catalog" not in self._catalog_of:
                opener = _Opener(self._open_source, has_policies=self._policies is not None)
                # Under policies, queries reach registered tables alone.
                find_frame = self._find_spark_table if self._spark_session and self._policies is None else None
                self._catalog_of["catalog"] = Catalog(opener, find_frame)
            return self._catalog_of["catalog"]

    def _to_frame_rows(self, frame: Any) -> FrameRows | None:
        """Return a DataFrame of Spark for queries; None for any other object."""
        from tamis.query.connectors.memory_connector import FrameRows
        from tamis.query.engine import spark_queries

        schema = spark_queries().find_frame_schema(frame)
        return None if schema is None else FrameRows(frame, schema)

    def _find_spark_table(self, parts: Sequence[str]) -> FrameRows | None:
        from tamis.query.engine import spark_queries

        frame = spark_queries().find_table(self._spark_session, parts)
        return None if frame is None else self._to_frame_rows(frame)

    # --- SQL ----------------------------------------------------------------------------------------------------------

    def sql(
        self, query: str, args: Arguments | None = None, *, rules: Rules = True, dialect: str = SPARK_DIALECT
    ) -> Answer:
        """Return a query over the registered tables, in Spark's dialect; on a Spark session, its DataFrame.

        `args` are the values of its parameters: a mapping for `:name`, or a list for `?`. With `dialect="duckdb"` the
        query has DuckDB's syntax and semantics, with `$name` for named parameters. It runs on the embedded engine, in
        sessions without Spark and without policies. `rules` switches rules of the optimizer off by name, as in
        `{"push_limit_into_scan": False}`; False switches off all.
        """
        # The engine takes a tenth of a second to load, and few sessions query.
        from tamis.query.query import Query

        if _is_duckdb(dialect):
            found = self._make_duckdb_query(query, args, rules)
            found.check()
            return cast(Answer, Query(found))
        exact = self._run_case_sensitive(query, args)
        if exact is not None:
            return cast(Answer, exact)
        try:
            found = self._query(query, args, rules)
        except (ParseError, MissingValue):
            if self._spark_session is None or self._policies is not None or args is not None:
                raise
            as_written = self._run_as_written(query)
            if as_written is None:
                raise
            return cast(Answer, as_written)
        if self._spark_session is not None:
            return cast(Answer, found.to_spark(self._spark_session))
        found.check(only_if_doubtful=True)
        return cast(Answer, Query(found))

    def _run_case_sensitive(self, query: str, arguments: Arguments | None) -> Any:
        """Return Spark's DataFrame for a query in which the case of names matters; None for others."""
        if self._spark_session is None or self._policies is not None or not isinstance(query, str):
            return None
        from tamis.query.catalog import VisibleTables
        from tamis.query.engine import spark_queries

        def make_frame(name: str) -> Any:
            return self._query(f"SELECT * FROM {name}", None, True).to_spark(self._spark_session)

        tables = VisibleTables(self._catalog, None, self._principal)
        return spark_queries().make_case_sensitive_dataframe(
            self._spark_session, query, arguments, tables, make_frame, self._catalog.check_spelling
        )

    def _run_as_written(self, query: str) -> Any:
        """Return Spark's DataFrame for a query with unsupported syntax; None if Spark does not accept it either."""
        from tamis.query.engine import spark_queries

        def find_frame(name: str) -> Any:
            is_known = self._catalog.find((name,)) is not None
            return self.sql(f"SELECT * FROM `{name.replace('`', '``')}`") if is_known else None

        return spark_queries().make_text_dataframe(self._spark_session, query, find_frame)

    def explain(
        self,
        query: str,
        args: Arguments | None = None,
        *,
        format: str = "text",
        rules: Rules = True,
        dialect: str = SPARK_DIALECT,
    ) -> str:
        """Return the plans of a query, the effect of each rule, and what each scan will read, as `text` or as `json`.

        `args`, `rules` and `dialect` are those of `sql`.
        """
        if _is_duckdb(dialect):
            found = self._make_duckdb_query(query, args, rules)
            found.check()
            return found.explain(format)
        found = self._query(query, args, rules)
        # A check by Spark takes longer than everything else.
        found.check(self._spark_session, only_if_doubtful=self._spark_session is not None)
        return found.explain(format)

    def _query(self, query: str, arguments: Arguments | None, rules: Rules) -> CompiledQuery:
        from tamis.query.catalog import VisibleTables
        from tamis.query.query import CompiledQuery

        tables = VisibleTables(self._catalog, self._policies, self._principal)
        # Without policies and principals current_user() is Spark's user.
        knows_principal = self._spark_session is None or self._policies is not None or self._principal is not None
        # A query keeps the databases of the time when it was made.
        connectors = dict(self._catalog.connectors)
        return CompiledQuery(
            query,
            tables,
            connectors,
            rules,
            arguments=arguments,
            principal=self._principal,
            knows_principal=knows_principal,
            on_spark=self._spark_session is not None,
            tuning=self._tuning,
            **self._spark_settings,
        )

    def _make_duckdb_query(self, query: str, arguments: Arguments | None, rules: Rules) -> CompiledQuery:
        if self._spark_session is not None:
            raise InvalidArgument(
                "dialect='duckdb' runs on the embedded engine, and this session runs its queries on Spark: register "
                "the tables in a session without Spark, tamis.connect(), or write the query in Spark's dialect"
            )
        from tamis.query.catalog import VisibleTables
        from tamis.query.engine import query_engine

        tables = VisibleTables(self._catalog, self._policies, self._principal)
        connectors = dict(self._catalog.connectors)
        return query_engine().compile_duckdb_query(
            query, tables, connectors, rules, arguments=arguments, tuning=self._tuning
        )

    @property
    def _spark_settings(self) -> dict[str, Any]:
        if self._spark_session is None:
            return {}
        from tamis.query.engine import spark_queries

        zone, is_ansi = spark_queries().get_settings(self._spark_session)
        return {"zone": zone, "is_ansi": is_ansi}

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session cannot be pickled: make one where it is needed, with tamis.connect()")

    def __repr__(self) -> str:
        return f"<tamis.Session on {self.engine.name}, planning={self._mode!r}>"


class _Opener:
    """Opens tables that queries name by location or version, unless policies forbid it."""

    def __init__(self, open_source: Callable[..., TableSource], *, has_policies: bool) -> None:
        self._open_source = open_source
        self._has_policies = has_policies

    def open_path(self, path: str, format: str) -> TableSource:
        """Open the table that a query names as delta.`path`."""
        if self._has_policies:
            raise AccessDenied(
                "a session with policies queries tables by their names, not by their locations: register the table"
            )
        if not TABLE_FORMATS[format].is_single_file:
            return self._open_source(path, format)
        # For `open` that is a single file; for queries, as in Spark, also a folder of files.
        source = self._open_source(path)
        if isinstance(source, Versioned):
            raise UnsupportedFeature(
                f"'{source.storage.uri}' is {add_article(source.format)} table, whose files alone are not its rows: "
                f"write {source.format} instead of {format}"
            )
        return source

    def open_state(self, source: Versioned, state: TableState) -> TableSource:
        """Open the version that a query names with VERSION AS OF."""
        if self._has_policies:
            # A policy is about the table as it was registered: an older version may have other columns.
            raise AccessDenied(
                "a session with policies queries tables as they were registered, not at other versions: register the "
                "other version under a name"
            )
        return source.at(state.version, state.timestamp)


def _is_duckdb(dialect: str) -> bool:
    if dialect not in (SPARK_DIALECT, DUCKDB_DIALECT):
        raise InvalidArgument(f"no dialect {dialect!r}. Dialects: {SPARK_DIALECT}, {DUCKDB_DIALECT}")
    return dialect == DUCKDB_DIALECT


def _load_policies(policies: PolicySource | None) -> Policies | None:
    if policies is None:
        return None
    from tamis.query.policies import load_policies

    return load_policies(policies)


@overload
def connect(
    spark: None = None,
    *,
    planning: str = AUTO,
    policies: PolicySource | None = None,
    storage_options: Mapping[str, Any] | None = None,
    tuning: Tuning | None = None,
    handler: ExpressionHandler | None = None,
) -> Session[Query]: ...


@overload
def connect(
    spark: object,
    *,
    planning: str = AUTO,
    policies: PolicySource | None = None,
    storage_options: Mapping[str, Any] | None = None,
    tuning: Tuning | None = None,
    handler: ExpressionHandler | None = None,
) -> Session[Any]: ...


@suggest_arguments("tamis.connect")
def connect(
    spark: Any = None,
    *,
    planning: str = AUTO,
    policies: PolicySource | None = None,
    storage_options: Mapping[str, Any] | None = None,
    tuning: Tuning | None = None,
    handler: ExpressionHandler | None = None,
) -> Session[Any]:
    """Return a session. With a Spark session (classic or Connect), SQL runs there, and plans may be made in executors.

    `planning` is `local` (in this process), `spark` (executors read checkpoint parts, directories and footers) or
    `auto` (in executors if there is much to read). `policies` are row filters and masks: the path of a YAML file, a
    mapping, or a function. `storage_options`, `tuning` and `handler` apply to tables that are opened without their own,
    also by their locations in queries. `tuning` has the thresholds of planning and reading, such as those of `auto`;
    `handler` evaluates filters over metadata in this process (`tamis.expressions.ExpressionHandler`).
    """
    return Session(
        spark, planning=planning, policies=policies, storage_options=storage_options, tuning=tuning, handler=handler
    )

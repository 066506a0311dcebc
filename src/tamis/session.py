"""Sessions: tables opened in one place, planned in this process or on Spark, queried with SQL.

>>> connection = tamis.connect(spark=spark)                            # doctest: +SKIP
>>> connection.open("s3://lake/orders").scan("day = '2024-03-01'")     # doctest: +SKIP
>>> connection.register("orders", connection.open("s3://lake/orders")) # doctest: +SKIP
>>> connection.sql("SELECT count(*) FROM orders")                      # doctest: +SKIP
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tamis.engines.local import LocalEngine
from tamis.engines.spark import SparkEngine
from tamis.errors import AccessDenied, InvalidArgument
from tamis.table import Table, open_source
from tamis.tables.jobs import Engine
from tamis.tables.planning import AUTO, LOCAL, SPARK, Planning, check_mode

if TYPE_CHECKING:
    from tamis.pushdown.catalog import Catalog
    from tamis.pushdown.policies import Policies, PolicySource
    from tamis.pushdown.query import Query, Rules
    from tamis.tables.source import TableSource


class Session:
    """Opens tables, and runs SQL over those that were registered. Made with `tamis.connect`."""

    def __init__(self, spark: Any = None, *, planning: str = AUTO, policies: PolicySource | None = None) -> None:
        check_mode(planning)
        if spark is None and planning == SPARK:
            raise InvalidArgument(
                "planning='spark' needs a Spark session: tamis.connect(spark=spark, planning='spark')"
            )
        self._spark = None if spark is None else SparkEngine(spark)
        self._spark_session = spark
        self._mode = LOCAL if spark is None else planning
        self._policies = _loaded(policies)
        self._principal: str | None = None
        self._catalog_of: dict[str, Catalog] = {}
        """One catalog, once it is needed, shared with the sessions of other principals."""

    @property
    def planning(self) -> str:
        """`auto`, `local` or `spark`."""
        return self._mode

    @property
    def engine(self) -> Engine:
        """What runs jobs for this session: Spark where there is one, unless plans are to be local."""
        return LocalEngine() if self._spark is None or self._mode == LOCAL else self._spark

    @property
    def principal(self) -> str | None:
        """Who asks; None where nobody was named."""
        return self._principal

    def as_principal(self, name: str) -> Session:
        """The session for somebody: the same tables, seen through the policies for that principal."""
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"a principal is a name, not {name!r}")
        other = Session.__new__(Session)
        other.__dict__.update(self.__dict__)
        other._principal = name
        return other

    # --- Tables -------------------------------------------------------------------------------------------------------

    def open(self, uri: str | os.PathLike[str], *arguments: Any, **options: Any) -> Table:
        """Open a table, with the arguments of `tamis.open`."""
        if self._policies is None:
            return Table(self._open_source(uri, *arguments, **options))
        from tamis.protected_table import opening, protect_table

        with opening(uri, self._policies, self._principal):
            table = Table(self._open_source(uri, *arguments, **options))
        return protect_table(table, self._policies, self._principal)

    def _open_source(self, uri: str | os.PathLike[str], *arguments: Any, **options: Any) -> TableSource:
        planning = None if self._spark is None or self._mode == LOCAL else Planning(self._spark, self._mode)
        return open_source(uri, *arguments, **options, planning=planning)

    def register(self, name: str, table: Any) -> Session:
        """Let a table be known by a name in SQL: one that was opened, its URI, or rows that Arrow can read."""
        if isinstance(table, str | os.PathLike):
            table = Table(self._open_source(table))
        if not isinstance(table, Table):
            self._catalog.register_rows(name, table)
            return self
        from tamis.protected_table import ProtectedTable, names_of

        if isinstance(table, ProtectedTable) and self._policies is None:
            raise AccessDenied(f"{table.name} is under the policies of another session: register it there")
        # A query sees it through the policies of its session, whoever opened it.
        self._catalog.register_source(name, table._source, names_of(table))
        return self

    def attach(self, name: str, database: Any, **options: Any) -> Session:
        """Let the tables of a database be known as `name.table`: by its URI, or a connector of your own."""
        if hasattr(database, "push_filter") and hasattr(database, "read"):
            self._catalog.attach(name, database)
            return self
        from tamis.pushdown.connectors.database import DatabaseConnector
        from tamis.tables.database import open_database

        self._catalog.attach(name, DatabaseConnector(name, open_database(database, **options)))
        return self

    @property
    def tables(self) -> list[str]:
        """The names that queries know: of registered tables, and of those in attached databases that tell theirs."""
        return self._catalog.table_names()

    @property
    def _catalog(self) -> Catalog:
        if "catalog" not in self._catalog_of:
            # The engine takes a tenth of a second to load, and few sessions query.
            from tamis.pushdown.catalog import Catalog

            self._catalog_of["catalog"] = Catalog(self._open_path)
        return self._catalog_of["catalog"]

    def _open_path(self, path: str, format: str) -> TableSource:
        """What delta.`path` means in a query."""
        if self._policies is not None:
            raise AccessDenied("a session with policies queries tables by their names, not by their places")
        return self._open_source(path, format or None)

    # --- SQL ----------------------------------------------------------------------------------------------------------

    def sql(self, query: str, *, rules: Rules = True) -> Any:
        """A query over the registered tables, in Spark's dialect; on a Spark session, its DataFrame.

        `rules` switches rules of the optimizer off by name, as in `{"push_limit_into_scan": False}`; False: all.
        """
        found = self._query(query, rules)
        if self._spark_session is not None:
            return found.to_spark(self._spark_session)
        found.check(only_if_doubtful=True)
        return found

    def explain(self, query: str, format: str = "text", *, rules: Rules = True) -> str:
        """What becomes of a query, as `text` or as `json`: plans, rules, and what each scan will read."""
        found = self._query(query, rules)
        # To ask Spark takes longer than all else.
        found.check(self._spark_session, only_if_doubtful=self._spark_session is not None)
        return found.explain(format)

    def _query(self, query: str, rules: Rules) -> Query:
        from tamis.pushdown.query import Query
        from tamis.pushdown.visible import VisibleTables

        tables = VisibleTables(self._catalog, self._policies, self._principal)
        # Spark has users of its own, whom a session without policies and principals leaves alone.
        knows = self._spark_session is None or self._policies is not None or self._principal is not None
        connectors = self._catalog.connectors
        return Query(
            query,
            tables,
            connectors,
            rules,
            principal=self._principal,
            knows_principal=knows,
            on_spark=self._spark_session is not None,
        )

    def __repr__(self) -> str:
        return f"<tamis.Session on {self.engine.name}, planning={self._mode!r}>"


def _loaded(policies: PolicySource | None) -> Policies | None:
    if policies is None:
        return None
    from tamis.pushdown.policies import load_policies

    return load_policies(policies)


def connect(spark: Any = None, *, planning: str = AUTO, policies: PolicySource | None = None) -> Session:
    """A session. With a Spark session (classic or Connect), plans can be made in its executors, and SQL runs there.

    `planning` is `local` (in this process), `spark` (checkpoint parts, directories and footers are read in executors)
    or `auto`: in executors where there is much to read, which `tamis.tables.planning` says in numbers. `policies` are
    row filters and masks: a path of a YAML file, a mapping, or a callable.
    """
    return Session(spark, planning=planning, policies=policies)

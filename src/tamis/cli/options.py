"""Options that several commands share, and the scan request that they describe."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import click

from tamis.cli.errors import Command
from tamis.expr.nodes import Unbound, and_
from tamis.formats.open_source import FORMATS
from tamis.formats.source import LEVELS
from tamis.parquet.footer.leaves import Int96
from tamis.scan.scan import LazyScan
from tamis.table import Table, open_table

if TYPE_CHECKING:
    from tamis.query.policies.protected_table import ProtectedTable

Limit = int | str | None
"""A number of rows, `all`, or None if the option was not given."""


class _Number(click.IntRange):
    """An integer with a minimum, called an integer in messages."""

    name = "integer"


@dataclass(frozen=True, slots=True)
class Request:
    """A table and a scan of it, as the user requested them."""

    uri: str
    opening: Mapping[str, Any]
    """The options for opening the table, which are arguments of `open_table`."""
    where: Sequence[str] = ()
    """Filters; all of them must be true."""
    columns: Sequence[str] | None = None
    limit: Limit = None
    levels: Collection[str] = LEVELS
    policies: str | None = None
    principal: str | None = None

    def open(self) -> Table | ProtectedTable:
        table = open_table(self.uri, **self.opening)
        if self.policies is None and self.principal is None:
            return table
        # Imported lazily: few commands use policies.
        from tamis.query.policies import load_policies
        from tamis.query.policies.protected_table import protect_table

        return protect_table(table, load_policies(self.policies), self.principal)

    def scan(self) -> LazyScan:
        return self.scan_table(self.open())

    def scan_table(self, table: Table | ProtectedTable) -> LazyScan:
        return table.scan(self.filter, self.columns, self.row_limit, levels=self.levels)

    @property
    def filter(self) -> Unbound | None:
        if not self.where:
            return None
        # Imported lazily: only filters need sqlglot.
        from tamis.expr.sql.parse import parse_sql

        return and_(*map(parse_sql, self.where))

    @property
    def row_limit(self) -> int | None:
        return self.limit if isinstance(self.limit, int) else None


def _parse_columns(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...] | None:
    found: list[str] = []
    for value in values:
        names = [name.strip() for name in split_names(value)]
        if not all(names):
            raise click.BadParameter(f"{value!r} has an empty name: separate names by commas, as in id,amount")
        found += names
    return tuple(found) or None


def _parse_limit(context: click.Context, parameter: click.Parameter, value: str | None) -> Limit:
    if value is None or value == "all":
        return value
    if not value.isdecimal():
        raise click.BadParameter(f"{value!r} is neither a number of rows nor 'all'")
    return int(value)


def _parse_levels(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    names = () if value == "none" else tuple(name.strip() for name in value.split(","))
    for name in names:
        if name not in LEVELS:
            raise click.BadParameter(f"unknown level {name!r}: name some of {','.join(LEVELS)}, or none")
    return names


def parse_assignments(
    context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> dict[str, str] | None:
    """Parse the NAME=VALUE pairs of a repeated option. The first `=` ends the name."""
    found: dict[str, str] = {}
    for value in values:
        name, sign, text = value.partition("=")
        if not sign or not name.strip():
            # The message does not repeat the value, which may contain a secret.
            raise click.BadParameter(f"expected {parameter.metavar}, with a name before the first '='")
        if name.strip() in found:
            raise click.BadParameter(f"{name.strip()!r} is given twice")
        found[name.strip()] = text
    return found or None


def parse_catalog(
    context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> dict[str, str] | str | None:
    """Parse the name of a catalog, or its properties."""
    if len(values) == 1 and "=" not in values[0]:
        return values[0]
    return parse_assignments(context, parameter, values)


def split_names(text: str) -> list[str]:
    """Split a text at commas, except those inside backticks.

    >>> split_names("id,`a,b`,place.city")
    ['id', '`a,b`', 'place.city']
    """
    parts = [""]
    is_quoted = False
    for character in text:
        if character == "," and not is_quoted:
            parts.append("")
            continue
        is_quoted ^= character == "`"
        parts[-1] += character
    return parts


def json_option(help: str) -> Callable[[Command], Command]:
    return click.option("--json", "as_json", is_flag=True, help=help)


def limit_option(help: str) -> Callable[[Any], Any]:
    return click.option("--limit", metavar="N", callback=_parse_limit, help=help)


_SCAN_OPTIONS: dict[str, dict[str, Any]] = {
    "where": {
        "metavar": "SQL",
        "multiple": True,
        "help": "Only rows for which this Spark SQL condition is true: \"day > DATE '2024-03-01'\"; may be repeated, "
        "and then all must be true.",
    },
    "columns": {
        "metavar": "A,B",
        "multiple": True,
        "callback": _parse_columns,
        "help": "Only these columns, as in id,amount; a field of a struct is a.b; may be repeated.  [default: all]",
    },
    "limit": {"metavar": "N", "callback": _parse_limit, "help": "At most this many rows, or 'all'.  [default: all]"},
    "levels": {
        "metavar": "LEVELS",
        "callback": _parse_levels,
        "default": ",".join(LEVELS),
        "show_default": True,
        "help": "Pruning levels to use, separated by commas, or none.",
    },
    "policies": {"metavar": "FILE", "help": "Row filters and masks, in YAML or JSON, that apply to the principal."},
    "principal": {"metavar": "NAME", "help": "The user or role to apply policies for, as named in the policies."},
}

storage_option: Callable[[Any], Any] = click.option(
    "--storage-option",
    "storage_options",
    metavar="KEY=VALUE",
    callback=parse_assignments,
    multiple=True,
    help="Storage option, as in AWS_REGION=eu-west-1; may be repeated.",
)

_TABLE_OPTIONS: dict[str, Callable[[Any], Any]] = {
    "format": click.option("--format", type=click.Choice(FORMATS), help="Format of the table.  [default: detected]"),
    "version": click.option(
        "--version",
        type=_Number(min=0),
        metavar="N",
        help="Version of a Delta table.  [default: the latest]",
    ),
    "timestamp": click.option(
        "--timestamp",
        metavar="TIME",
        help="Read a Delta or Iceberg table as of this time: 2024-03-01T12:00:00Z; UTC if no zone is given.",
    ),
    "snapshot_id": click.option("--snapshot-id", type=int, metavar="ID", help="Snapshot of an Iceberg table."),
    "ref": click.option("--ref", metavar="NAME", help="Branch or tag of an Iceberg table.  [default: main]"),
    "catalog": click.option(
        "--catalog",
        metavar="NAME|KEY=VALUE",
        callback=parse_catalog,
        multiple=True,
        help="Catalog of the Iceberg table that URI names: one configured for pyiceberg, or its properties, such as "
        "name=…, type=… and uri=….",
    ),
    "relocate": click.option(
        "--relocate/--no-relocate",
        default=True,
        help="Read a moved Iceberg table from its current location.  [default: relocate]",
    ),
    "allow_outside": click.option(
        "--allow-outside",
        is_flag=True,
        help="Read files outside of the table's directory, if its log, its metadata or a symbolic link refers to them.",
    ),
    "index": click.option(
        "--index",
        metavar="PATH",
        callback=lambda context, parameter, value: False if value == "none" else value,
        help="Directory of a statistics index, or none.  [default: the index next to the table, if there is one]",
    ),
    "partitioning": click.option(
        "--partitioning",
        metavar="COLUMN=TYPE",
        callback=parse_assignments,
        multiple=True,
        help="Type of a partition column, as in day=date; may be repeated.",
    ),
    "merge_schema": click.option(
        "--merge-schema",
        is_flag=True,
        help="Merge the schemas of all files, with the widest types, instead of using that of the first file.",
    ),
    "int96": click.option(
        "--int96",
        type=click.Choice(get_args(Int96)),
        default="instant",
        show_default=True,
        help="Interpret INT96 timestamps in Parquet files as instants, or as local times without a zone.",
    ),
    "storage_options": storage_option,
}
_TIME_TRAVEL = ("version", "timestamp", "snapshot_id", "ref")
"""Options that choose a version of a table, and exclude each other."""


def table_options(*names: str) -> Callable[[Command], Command]:
    """Add some of the options for opening a table to a command, each as a separate argument."""

    def decorate(command: Command) -> Command:
        decorated: Any = command
        for name in reversed(names):
            decorated = _TABLE_OPTIONS[name](decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def names_option(name: str, help: str) -> Callable[[Any], Any]:
    """Return an option that takes column names separated by commas."""
    return click.option(name, metavar="A,B", multiple=True, callback=_parse_columns, help=help)


def request_options(*names: str, **helps: str) -> Callable[[Command], Command]:
    """Add the table argument, the named scan options (without names, all) and the table options to a command.

    The command takes them as one `Request`. `helps` are help texts for options that mean something else in it.
    """
    names = names or tuple(_SCAN_OPTIONS)

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_request(**given: Any) -> Any:
            opening = {name: given.pop(name) for name in _TABLE_OPTIONS}
            request = Request(given.pop("uri"), opening, **{name: given.pop(name) for name in names})
            if request.principal is not None and request.policies is None:
                raise click.UsageError("--principal requires --policies")
            chosen = [name for name in _TIME_TRAVEL if opening[name] is not None]
            if len(chosen) > 1:
                first, second = (f"--{name.replace('_', '-')}" for name in chosen[:2])
                raise click.UsageError(f"{first} and {second} exclude each other: each chooses a version")
            return command(request=request, **given)

        scan_options = [
            click.option(f"--{name}", **(_SCAN_OPTIONS[name] | ({"help": helps[name]} if name in helps else {})))
            for name in names
        ]
        decorated: Any = with_request
        # Click shows options in reverse order of their addition.
        for option in reversed((*scan_options, *_TABLE_OPTIONS.values())):
            decorated = option(decorated)
        return click.argument("uri", metavar="URI")(decorated)  # type: ignore[no-any-return]

    return decorate

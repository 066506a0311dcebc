"""Error handling of the command line: one line on stderr, and an exit code.

    0    success
    1    the input or the table is invalid, or a verification failed
    2    wrong usage
    130  interrupted
    141  the reader of the pipe closed it, as with `tamis scan … | head`

`--debug` adds the traceback.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import click

from tamis.cli.commands import load_command
from tamis.errors import TamisError

Command = TypeVar("Command", bound=Callable[..., Any])

INVALID_INPUT = 1
INTERRUPTED = 130
BROKEN_PIPE = 141

_DEBUG = "tamis.debug"

_COMMAND_LINE_REPLACEMENTS = (
    (r"\bmerge_schema=True \(--merge-schema\)", "--merge-schema"),
    (r"\b(format|version|timestamp|ref|catalog|partitioning|int96)=(?=[\s,;]|$)", r"--\1"),
    (r"\bsnapshot_id=(?=[\s,;]|$)", "--snapshot-id"),
    (r"\brelocate=False\b", "--no-relocate"),
    (r"\bmerge_schema=(?=\s|$)|(?<=without )merge_schema\b", "--merge-schema"),
    (r"\ballow_outside=True\b", "--allow-outside"),
    (r"; for others pass storage_options=\{[^}]*\}", "; others can be opened from Python"),
    (r", or pass storage_options=\{[^}]*\}", ""),
    (r"\bstorage_options for\b", "storage options for"),
    (r"\bRegister one with c\.register\(name, table\)", "Pass its URI after the query, or --table NAME=URI"),
    (r"\bregister it with c\.register\(name, table\)", "pass its URI after the query, or --table NAME=URI"),
    (r"\bregister them with c\.register\(name, table\)", "pass their URIs after the query, or --table NAME=URI"),
    (r"\b(R|r)egister the table with c\.register\(name, table\)", "pass its URI after the query, or --table NAME=URI"),
    (
        r"Spark's other functions run with tamis\.connect\(spark=…\), DuckDB's functions with",
        "DuckDB's functions run with",
    ),
    (r"\bc\.sql\(…, dialect='duckdb'\)", "--dialect duckdb"),
    (r", so there is no history\(\): refresh\(\) returns it as it is now", ", so it has no history"),
    (r"; c\.tables lists the tables of a session", ""),
    (r"; c\.open\(uri\)\.schema tells the columns of a table", "; tamis inspect shows the columns of a file"),
    (r"\bc\.explain\(query\) tells", "--explain shows"),
    (r"\bhistory\(\) lists\b", "tamis history lists"),
    (r"\btamis\.index\.build\(…, location=…\)", "tamis index build URI --location FOLDER"),
    (r"\bformat='(\w+)'", r"--format \1"),
    (r", or build the filter with col\('name'\) == value", ""),
)
"""Patterns in messages that refer to the Python API, and their replacements for the command line."""


class Program(click.Group):
    """The group of all commands. It shows errors as one line, and imports a command only when it runs."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names in the order in which the commands were added: the most used first."""
        return list(self.commands)

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, found, rest = super().resolve_command(context, arguments)
        return name, None if found is None or found.name is None else load_command(found.name), rest

    def invoke(self, context: click.Context) -> object:
        try:
            result = super().invoke(context)
            # Imported lazily: help does not need it, and a command has imported it already.
            from tamis.cli.output import flush

            flush()
        except TamisError as error:
            if context.meta.get(_DEBUG):
                traceback.print_exception(error)
            show_error(str(error))
            _flush_or_discard()
            context.exit(INVALID_INPUT)
        except click.UsageError as error:
            # An option without a value is detected before the command has a context. Add one, to show its usage.
            command = self.get_command(context, context.invoked_subcommand or "")
            if error.ctx is None and command is not None:
                error.ctx = click.Context(command, context, context.invoked_subcommand)
            raise
        except KeyboardInterrupt:
            show_error("interrupted")
            context.exit(INTERRUPTED)
        except BrokenPipeError:
            _discard_stdout()
            context.exit(BROKEN_PIPE)
        return result


def show_error(message: str) -> None:
    # Imported lazily: it needs pyarrow, and help does not.
    from tamis.cli.text import escape_control_characters

    line = " ".join(part.strip() for part in message.splitlines())
    for pattern, replacement in _COMMAND_LINE_REPLACEMENTS:
        line = re.sub(pattern, replacement, line)
    click.echo(f"tamis: {escape_control_characters(line)}", err=True)


def show_unexpected_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an unexpected error as one line. It is `sys.excepthook` unless `--debug` is given."""
    show_error(f"unexpected {kind.__name__}: {error}. This is a bug in Tamis: --debug shows where it happened")


def enable_debugging(context: click.Context) -> None:
    """Show the tracebacks of all errors, and the log of Tamis, on stderr."""
    # The meta of a context is shared with those of its commands.
    context.meta[_DEBUG] = True
    sys.excepthook = sys.__excepthook__
    logger = logging.getLogger("tamis")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)


def debug_option(command: Command) -> Command:
    def switch_on(context: click.Context, parameter: click.Parameter, is_on: bool) -> None:
        if is_on:
            enable_debugging(context)

    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=switch_on,
        help="Show tracebacks and log messages.",
    )(command)


def _flush_or_discard() -> None:
    """Flush what was written before an error, unless flushing fails."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _discard_stdout()


def _discard_stdout() -> None:
    """Redirect stdout to the null device, because the final flush of Python would fail."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, sys.stdout.fileno())
    os.close(null_device)

"""How errors look: one line on stderr and an exit code.

    0    done
    1    the input or the table is wrong, or a verification failed
    2    the command was not understood
    130  interrupted
    141  the reader of the pipe went away, as with `tamis scan … | head`

`--debug` adds the traceback.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from types import TracebackType
from typing import Any, TypeVar

import click

from tamis.errors import TamisError

Command = TypeVar("Command", bound=Callable[..., Any])

WRONG_INPUT = 1
INTERRUPTED = 130
READER_GONE = 141

_DEBUG = "tamis.debug"

_IN_THE_WORDS_OF_THE_COMMAND_LINE = (
    (r"\bmerge_schema=True \(--merge-schema\)", "--merge-schema"),
    (r"\b(format|version|timestamp|ref|catalog|partitioning|int96)=(?=[\s,;]|$)", r"--\1"),
    (r"\bsnapshot_id=(?=[\s,;]|$)", "--snapshot-id"),
    (r"\brelocate=False\b", "--no-relocate"),
    (r"\bmerge_schema=(?=\s|$)|(?<=without )merge_schema\b", "--merge-schema"),
    (r"\ballow_outside=True\b", "--allow-outside"),
    (r"; for others pass storage_options=\{[^}]*\}", "; others can be opened from Python"),
    (r", or pass storage_options=\{[^}]*\}", ""),
    (r"\bstorage_options for\b", "storage options for"),
    (r", and in Python as col\([^)]*\)", ""),
    (r"\bRegister one with c\.register\(name, table\)", "Give its place behind the query, or --table NAME=URI"),
    (r"\bregister it with c\.register\(name, table\)", "give its place behind the query, or --table NAME=URI"),
    (r"; c\.tables lists the tables of a session", ""),
    (r"; c\.open\(uri\)\.schema tells the columns of a table", "; tamis inspect tells the columns of a file"),
    (r"\bc\.explain\(query\) tells", "--explain tells"),
    (r"\bhistory\(\) lists\b", "tamis history lists"),
    (r"\btamis\.index\.build\(…, location=…\)", "tamis index build URI --location FOLDER"),
    (r"\bformat='(\w+)'", r"--format \1"),
    (r", or build the filter with col\('name'\) == value", ""),
)
"""How what a message says to a program in Python is said to whoever typed a command."""


class Program(click.Group):
    """A group of commands whose errors people can read. It knows their names and purposes, and imports what is run."""

    def list_commands(self, context: click.Context) -> list[str]:
        """In the order in which they were added, which is that of use."""
        return list(self.commands)

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, found, rest = super().resolve_command(context, arguments)
        return name, None if found is None or found.name is None else load_command(found.name), rest

    def invoke(self, context: click.Context) -> object:
        try:
            result = super().invoke(context)
            # The command has imported it, and help, which runs none, does without.
            from tamis.cli.output import flush

            flush()
        except TamisError as error:
            if context.meta.get(_DEBUG):
                traceback.print_exception(error)
            show_error(str(error))
            _flush_or_forget()
            context.exit(WRONG_INPUT)
        except click.UsageError as error:
            # An option without its value is found before its command has a context, whose usage tells more.
            command = self.get_command(context, context.invoked_subcommand or "")
            if error.ctx is None and command is not None:
                error.ctx = click.Context(command, context, context.invoked_subcommand)
            raise
        except KeyboardInterrupt:
            show_error("interrupted")
            context.exit(INTERRUPTED)
        except BrokenPipeError:
            _forget_stdout()
            context.exit(READER_GONE)
        return result


def load_command(name: str) -> click.Command:
    command: click.Command = getattr(import_module(f"tamis.cli.{name}"), name)
    return command


def show_error(message: str) -> None:
    # It needs pyarrow, and help does not.
    from tamis.cli.text import printable

    line = " ".join(part.strip() for part in message.splitlines())
    for pattern, spoken in _IN_THE_WORDS_OF_THE_COMMAND_LINE:
        line = re.sub(pattern, spoken, line)
    click.echo(f"tamis: {printable(line)}", err=True)


def show_unexpected_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What an error looks like that nobody raised on purpose: `sys.excepthook` while `--debug` is not given."""
    show_error(f"unexpected {kind.__name__}: {error}. This is a defect of Tamis: --debug shows where it happened")


def switch_on_debugging(context: click.Context) -> None:
    """Tracebacks of errors, expected or not, and the log of Tamis on stderr."""
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
            switch_on_debugging(context)

    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=switch_on,
        help="Show tracebacks and the log.",
    )(command)


def _flush_or_forget() -> None:
    """What was written before an error still goes out, unless that was the error."""
    try:
        sys.stdout.flush()
    except OSError:
        _forget_stdout()


def _forget_stdout() -> None:
    """Nobody takes it any more: what Python would flush at its end goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)

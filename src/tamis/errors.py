"""Every error that Tamis raises on purpose.

    TamisError
    ├── ExpressionError         a filter or a projection that cannot be used as it is
    │   ├── ParseError          text that is not an expression
    │   ├── UnknownColumn       a name that the table does not have
    │   ├── AmbiguousColumn     a name that fits several columns
    │   ├── TypeMismatch        operands that cannot be compared or combined
    │   └── FilterFormatError   a partition filter that breaks the wire format
    ├── EvaluationError         an expression that failed on a value (overflow, a cast that does not fit)
    ├── TableError              a table that cannot be read as it is
    │   ├── TableNotFound       nothing at that place that is a table
    │   ├── VersionNotFound     a version that the table does not have, or no longer
    │   ├── UnsupportedFeature  a table that needs something Tamis does not have
    │   ├── PartitionLayoutError  directories that contradict each other
    │   ├── CorruptFile         bytes that are not what they claim to be
    │   └── MissingFile         a planned file that is gone
    ├── AccessDenied            a table that policies do not let somebody read, or not so
    ├── StorageError            a file system that refused or failed
    ├── EngineError             an engine, such as a Spark session, that could not run a job
    ├── MissingDependency       an optional package that is not installed
    ├── InvalidArgument         a call that asks for something that does not exist
    │   ├── MisusedExpression   a filter used as a Python value, which it has none of
    │   └── UnknownArgument     a keyword argument that a function does not have
    ├── PlanBudgetExceeded      a plan larger than the caller allowed
    └── VerificationFailed      a pruned scan that differs from the full one

A message says what is wrong, where, and what to do about it, in one line.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def with_article(noun: str) -> str:
    """A noun for the middle of a message.

    >>> with_article("int"), with_article("bigint"), with_article("uint")
    ('an int', 'a bigint', 'a uint')
    """
    return f"{'an' if noun[:1].lower() in set('aeio') else 'a'} {noun}"


def wrong_argument(argument: str, expected: str, found: object) -> InvalidArgument:
    """The error for an argument of another kind. It names the type alone, because what was given may be a secret.

    >>> str(wrong_argument("merge_schema", "True or False", "yes"))
    'merge_schema is True or False, not a str'
    """
    return InvalidArgument(f"{argument} is {expected}, not {with_article(type(found).__name__)}")


def check_flags(**flags: object) -> None:
    """Raise where a switch is neither True nor False: any text would be taken for True, also 'no'."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InvalidArgument(f"{name} is True or False, not {value!r}")


def counted(count: int, noun: str) -> str:
    """So many of a thing.

    >>> counted(1, "file"), counted(0, "file"), counted(1500, "row")
    ('1 file', '0 files', '1,500 rows')
    """
    return f"{count:,} {noun if count == 1 else f'{noun}s'}"


def lone_surrogate(text: str) -> int | None:
    """Where a text has half of a surrogate pair, so that it cannot be written as UTF-8; None where it has none.

    >>> lone_surrogate("a" + chr(0xD800)), lone_surrogate("ñ")
    (1, None)
    """
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def one_line(error: BaseException) -> str:
    """What an error of another library says, for a message of ours."""
    return " ".join(str(error).split()) or type(error).__name__


class Position(int):
    """The place of a character in a text, counted from 1. In a text of several lines it knows its line as well."""

    line: int
    column: int

    def __new__(cls, character: int, line: int = 1, column: int = 0) -> Position:
        position = super().__new__(cls, character)
        position.line, position.column = line, column
        return position


def place_in_text(position: int) -> str:
    """A place in words.

    >>> place_in_text(14), place_in_text(Position(14, line=2, column=3))
    ('character 14', 'line 2, character 3')
    """
    if isinstance(position, Position) and position.line > 1:
        return f"line {position.line}, character {position.column}"
    return f"character {position}"


class TamisError(Exception):
    """The root: `except tamis.TamisError` catches everything that Tamis raises on purpose."""


class ExpressionError(TamisError):
    """A filter or a projection that cannot be used as it is."""


class ParseError(ExpressionError):
    """Text that is not an expression. `position` is the offending character, counted from 1."""

    def __init__(self, message: str, *, position: int | None = None, hint: str | None = None) -> None:
        self.position = position
        self.hint = hint
        place = f" ({place_in_text(position)})" if position is not None else ""
        super().__init__(f"{message}{place}{f'. {hint}' if hint else ''}")


class UnknownColumn(ExpressionError):
    """A name that the table does not have."""


class AmbiguousColumn(ExpressionError):
    """A name that fits several columns, which differ only by case."""


class TypeMismatch(ExpressionError):
    """Operands that cannot be compared or combined."""


class FilterFormatError(ExpressionError):
    """A partition filter that breaks the wire format. `path` is the place, as in `$.filters[1].value`."""

    def __init__(self, message: str, *, path: str) -> None:
        self.path = path
        super().__init__(f"{message} (at {path})")


class EvaluationError(TamisError):
    """An expression that failed on a value."""


class TableError(TamisError):
    """A table that cannot be read as it is."""


class TableNotFound(TableError):
    """Nothing at that place that is a table."""


class VersionNotFound(TableError):
    """A version that the table does not have, or no longer."""


class UnsupportedFeature(TableError):
    """A table that needs something Tamis does not have."""


class PartitionLayoutError(TableError):
    """Partition directories that contradict each other."""


class CorruptFile(TableError):
    """Bytes that are not what they claim to be."""


class MissingFile(TableError):
    """A planned file that is gone."""


class AccessDenied(TamisError):
    """A table that policies do not let somebody read, or not in this way. It does not tell what they hide."""


class StorageError(TamisError):
    """A file system that refused or failed."""


class EngineError(TamisError):
    """An engine, such as a Spark session, that could not run a job."""


class MissingDependency(TamisError):
    """An optional package that is not installed."""


class InvalidArgument(TamisError):
    """A call that asks for something that does not exist."""


class MissingValue(InvalidArgument):
    """A parameter of a query without a value."""


class MisusedExpression(InvalidArgument, TypeError):
    """A filter used as a Python value, which it has none of. A TypeError too, because Python expects one there."""


class UnknownArgument(InvalidArgument, TypeError):
    """A keyword argument that a function does not have. A TypeError too, because Python raises one there."""


class PlanBudgetExceeded(TamisError, AssertionError):
    """A plan larger than the caller allowed. An AssertionError too, so that tests report it as a failure."""


class VerificationFailed(TamisError):
    """A pruned scan that differs from the full one."""


_OTHER_NAMES = {
    "where": ("filter", "predicate", "condition", "query", "row_filter"),
    "filter": ("where", "predicate", "partition_filter"),
    "columns": ("select", "projection", "fields", "selected_fields"),
    "limit": ("head", "nrows", "n_rows", "rows", "n"),
    "uri": ("path", "location", "table", "url"),
    "version": ("version_as_of", "as_of_version"),
    "timestamp": ("timestamp_as_of", "as_of", "datetime"),
    "snapshot_id": ("snapshot", "version"),
    "ref": ("branch", "tag"),
    "storage_options": ("options", "filesystem", "storage"),
    "args": ("arguments", "parameters", "params"),
    "engine": ("on", "spark"),
    "location": ("to", "path", "place"),
}
"""What other libraries, and earlier versions, call an argument."""


def suggest_arguments(function_name: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make an unknown keyword argument of a function an error that suggests the right one.

    >>> @suggest_arguments("tamis.open")
    ... def open(uri, version=None): ...
    >>> open("orders", verison=3)
    Traceback (most recent call last):
    tamis.errors.UnknownArgument: tamis.open() has no argument 'verison': did you mean version=? Arguments: uri, version
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        known = [name for name in signature(function).parameters if name != "self"]

        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            for name in kwargs:
                if name not in known:
                    raise _unknown_argument(function_name, name, known)
            return function(*args, **kwargs)

        return call

    return decorate


def _unknown_argument(function_name: str, name: str, known: list[str]) -> UnknownArgument:
    # Few calls fail, and it takes a while to import.
    from difflib import get_close_matches

    meant = [other for other in known if name in _OTHER_NAMES.get(other, ())] or get_close_matches(name, known, 1)
    hint = f": did you mean {meant[0]}=?" if meant else "."
    return UnknownArgument(f"{function_name}() has no argument {name!r}{hint} Arguments: {', '.join(known)}")

"""Every error that Tamis raises on purpose.

    TamisError
    ├── ExpressionError         an invalid filter or projection
    │   ├── ParseError          text that is not a valid expression
    │   ├── UnknownColumn       a name that is not in the schema
    │   ├── AmbiguousColumn     a name that matches several columns
    │   ├── TypeMismatch        operands that cannot be compared or combined
    │   └── FilterFormatError   a partition filter that violates the wire format
    ├── EvaluationError         an expression that failed on a value (overflow, a lossy cast)
    ├── TableError              a table that cannot be read
    │   ├── TableNotFound       no table at that location
    │   ├── VersionNotFound     a version that does not exist, or no longer exists
    │   ├── UnsupportedFeature  a table that needs a feature which Tamis does not support
    │   ├── PartitionLayoutError  partition directories that contradict each other
    │   ├── CorruptFile         a file with invalid content
    │   └── MissingFile         a planned file that no longer exists
    ├── AccessDenied            a table, or a use of it, that the policies forbid
    ├── StorageError            a file system that refused or failed
    ├── EngineError             an engine (a Spark session, a user's own handler) that could not run a job
    ├── MissingDependency       an optional package that is not installed
    ├── InvalidArgument         an argument with an invalid value or type
    │   ├── MissingValue        a query parameter without a value
    │   ├── MisusedExpression   an expression used as a Python bool, container or iterable
    │   └── UnknownArgument     a keyword argument that a function does not have
    ├── PlanBudgetExceeded      a plan larger than the caller allowed
    └── VerificationFailed      a pruned scan that differs from the full scan

A message says in one line what is wrong, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, wraps
from inspect import Parameter, getattr_static, signature
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

__all__ = [
    "AccessDenied",
    "AmbiguousColumn",
    "CorruptFile",
    "EngineError",
    "EvaluationError",
    "ExpressionError",
    "FilterFormatError",
    "InvalidArgument",
    "MissingDependency",
    "MissingFile",
    "MissingValue",
    "MisusedExpression",
    "ParseError",
    "PartitionLayoutError",
    "PlanBudgetExceeded",
    "StorageError",
    "TableError",
    "TableNotFound",
    "TamisError",
    "TypeMismatch",
    "UnknownArgument",
    "UnknownColumn",
    "UnsupportedFeature",
    "VerificationFailed",
    "VersionNotFound",
]


def __dir__() -> list[str]:
    return __all__


_P = ParamSpec("_P")
_R = TypeVar("_R")
_Class = TypeVar("_Class", bound=type)


def add_article(noun: str) -> str:
    """Return a noun with its indefinite article.

    >>> add_article("int"), add_article("bigint"), add_article("uint")
    ('an int', 'a bigint', 'a uint')
    """
    return f"{'an' if noun[:1].lower() in set('aeio') else 'a'} {noun}"


def make_argument_error(argument: str, expected: str, found: object) -> InvalidArgument:
    """Return the error for an argument of the wrong type. It names only the type, because the value may be a secret.

    >>> str(make_argument_error("merge_schema", "True or False", "yes"))
    'merge_schema must be True or False, found a str'
    """
    return InvalidArgument(f"{argument} must be {expected}, found {add_article(type(found).__name__)}")


def suggest_name(name: object, known: Iterable[str]) -> str:
    """Return a sentence with the known name that is nearest to a wrong one; empty if none is near.

    >>> suggest_name("page", ["files", "pages"]), suggest_name("x", ["files", "pages"])
    (" Did you mean 'pages'?", '')
    """
    # Few calls fail, and it takes a while to import.
    from difflib import get_close_matches

    near = get_close_matches(str(name).casefold(), list(known), 1)
    return f" Did you mean {near[0]!r}?" if near else ""


def check_flags(**flags: object) -> None:
    """Raise if a flag is neither True nor False: any non-empty text is truthy, even 'no'."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InvalidArgument(f"{name} must be True or False, found {value!r}")


def make_missing_package_error(what: str, extra: str, *packages: str, otherwise: str = "") -> MissingDependency:
    """Return the error for packages of an extra that are not installed. It says how to install them.

    >>> str(make_missing_package_error("an Iceberg table", "iceberg", "pyiceberg", "polars"))
    "an Iceberg table needs pyiceberg and polars: pip install 'tamis[iceberg]'"
    """
    return MissingDependency(f"{what} needs {' and '.join(packages)}: pip install 'tamis[{extra}]'{otherwise}")


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless the count is one.

    >>> format_count(1, "file"), format_count(0, "file"), format_count(1500, "row")
    ('1 file', '0 files', '1,500 rows')
    """
    return f"{count:,} {noun if count == 1 else f'{noun}s'}"


def find_lone_surrogate(text: str) -> int | None:
    """Return the position of the first lone surrogate, which cannot be encoded as UTF-8, or None.

    >>> find_lone_surrogate("a" + chr(0xD800)), find_lone_surrogate("ñ")
    (1, None)
    """
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def to_one_line(error: BaseException) -> str:
    """Return the message of another library's error as one line."""
    return " ".join(str(error).split()) or type(error).__name__


def make_user_code_error(owner: object, task: str, error: Exception) -> EngineError:
    """Return the error for an object of the user whose code raised an error of its own.

    >>> str(make_user_code_error([], "sort the files", ValueError("no order")))
    'list could not sort the files: ValueError: no order'
    """
    name, message = type(error).__name__, to_one_line(error)
    return EngineError(f"{type(owner).__name__} could not {task}: {name if message == name else f'{name}: {message}'}")


class Position(int):
    """The 1-based position of a character in a text, with its line and column if the text has several lines."""

    line: int
    column: int

    def __new__(cls, character: int, line: int = 1, column: int = 0) -> Position:
        position = super().__new__(cls, character)
        position.line, position.column = line, column
        return position


def format_position(position: int) -> str:
    """Return a position as it appears in a message.

    >>> format_position(14), format_position(Position(14, line=2, column=3))
    ('character 14', 'line 2, character 3')
    """
    if isinstance(position, Position) and position.line > 1:
        return f"line {position.line}, character {position.column}"
    return f"character {position}"


class TamisError(Exception):
    """The root: `except tamis.TamisError` catches everything that Tamis raises on purpose."""


class ExpressionError(TamisError):
    """An invalid filter or projection."""


class ParseError(ExpressionError):
    """Text that is not a valid expression. `position` is the offending character, counted from 1."""

    def __init__(self, message: str, *, position: int | None = None, hint: str | None = None) -> None:
        self.position = position
        self.hint = hint
        location = f" ({format_position(position)})" if position is not None else ""
        super().__init__(f"{message}{location}{f'. {hint}' if hint else ''}")


class UnknownColumn(ExpressionError):
    """A name that is not in the schema."""

    is_partition_column = False
    """Whether a partition column was expected, which the files of a table do not have."""


class AmbiguousColumn(ExpressionError):
    """A name that matches several columns, which differ only by case."""


class TypeMismatch(ExpressionError):
    """Operands that cannot be compared or combined."""

    failing_cast: str | None = None
    """The cast of a text, in SQL, that fails unless an engine can read more texts as values of that type."""


class FilterFormatError(ExpressionError):
    """A partition filter that violates the wire format. `path` is a JSON path, as in `$.filters[1].value`."""

    def __init__(self, message: str, *, path: str) -> None:
        self.path = path
        super().__init__(f"{message} (at {path})")


class EvaluationError(TamisError):
    """An expression that failed on a value."""


class TableError(TamisError):
    """A table that cannot be read."""


class TableNotFound(TableError):
    """There is no table at that location."""


class VersionNotFound(TableError):
    """A version that does not exist, or no longer exists."""


class UnsupportedFeature(TableError):
    """A table that needs a feature which Tamis does not support."""


class PartitionLayoutError(TableError):
    """Partition directories that contradict each other."""


class CorruptFile(TableError):
    """A file with invalid content."""


class MissingFile(TableError):
    """A planned file that no longer exists."""


class AccessDenied(TamisError):
    """The policies forbid the table, or this use of it. The message does not reveal what they hide."""


class StorageError(TamisError):
    """A file system that refused or failed."""


class EngineError(TamisError):
    """An engine, such as a Spark session or a user's own handler, that could not run a job."""


class MissingDependency(TamisError):
    """An optional package that is not installed."""


class InvalidArgument(TamisError):
    """An argument with an invalid value or type."""


class MissingValue(InvalidArgument):
    """A query parameter without a value."""


class MisusedExpression(InvalidArgument, TypeError):
    """An expression used as a Python bool, container or iterable. Also a TypeError, which Python expects there."""


class UnknownArgument(InvalidArgument, TypeError):
    """A keyword argument that a function does not have. Also a TypeError, which Python raises there."""


class PlanBudgetExceeded(TamisError, AssertionError):
    """A plan larger than the caller allowed. Also an AssertionError, so that tests report it as a failure."""


class VerificationFailed(TamisError):
    """A pruned scan that differs from the full one."""


_OTHER_NAMES = {
    "where": ("filter", "predicate", "condition", "query", "row_filter"),
    "filter": ("where", "predicate", "partition_filter"),
    "columns": ("select", "projection", "fields", "selected_fields"),
    "limit": ("head", "nrows", "n_rows", "rows", "n"),
    "count": ("limit", "head", "nrows", "n_rows", "rows", "n"),
    "uri": ("path", "location", "table", "url"),
    "snapshot_id": ("snapshot", "version"),
    "version": ("version_as_of", "as_of_version", "snapshot_id", "snapshot"),
    "timestamp": ("timestamp_as_of", "as_of", "datetime"),
    "ref": ("branch", "tag"),
    "storage_options": ("options", "filesystem", "storage"),
    "args": ("arguments", "parameters", "params"),
    "engine": ("on", "spark"),
    "location": ("to", "path", "place"),
}
"""What other libraries, and earlier versions, call an argument. The first argument that a function has is suggested."""

_KEYWORDS = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def suggest_arguments(function_name: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make an unknown keyword argument of a function an error that suggests the right one.

    >>> @suggest_arguments("tamis.open")
    ... def open(uri, version=None): ...
    >>> open("orders", verison=3)
    Traceback (most recent call last):
    tamis.errors.UnknownArgument: tamis.open() has no argument 'verison': did you mean version=? Arguments: uri, version
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        # Reading a signature takes longer than a call, and most functions are never called with a keyword.
        @cache
        def read_parameters() -> list[Parameter]:
            return [each for each in signature(function).parameters.values() if each.name not in ("self", "cls")]

        @cache
        def find_keywords() -> frozenset[str]:
            return frozenset(each.name for each in read_parameters() if each.kind in _KEYWORDS)

        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if kwargs and not kwargs.keys() <= find_keywords():
                unknown = min(kwargs.keys() - find_keywords())
                raise _make_unknown_argument_error(function_name, unknown, read_parameters())
            return function(*args, **kwargs)

        if isinstance(function, FunctionType) and "." not in function.__qualname__:
            # Python shows these names in help, and in errors about positional arguments.
            call.__name__, function.__qualname__ = function_name.rpartition(".")[2], function_name
        return call

    return decorate


def suggest_method_arguments(class_name: str) -> Callable[[_Class], _Class]:
    """Apply `suggest_arguments` to the constructor and to all public methods of a class."""

    def decorate(decorated: _Class) -> _Class:
        for name in dir(decorated):
            if name.startswith("_") and name != "__init__":
                continue
            method: Any = getattr_static(decorated, name)
            check = suggest_arguments(class_name if name == "__init__" else f"{class_name}.{name}")
            if isinstance(method, FunctionType):
                setattr(decorated, name, check(method))
            elif isinstance(method, classmethod | staticmethod):
                setattr(decorated, name, type(method)(check(method.__func__)))
        return decorated

    return decorate


def _make_unknown_argument_error(function_name: str, name: str, parameters: list[Parameter]) -> UnknownArgument:
    # Few calls fail, and it takes a while to import.
    from difflib import get_close_matches

    unknown = f"{function_name}() has no argument {name!r}"
    if not parameters:
        return UnknownArgument(f"{unknown}: call it without arguments")
    known = [each.name for each in parameters]
    aliases = [other for other, names in _OTHER_NAMES.items() if other in known and name in names]
    starting = [each for each in known if each.startswith(name)]
    close = aliases or get_close_matches(name, known, 1) or (starting if len(starting) == 1 else [])
    meant = next(iter([name] if name in known else close), None)
    by_position = [each.name for each in parameters if each.kind not in _KEYWORDS]
    hint = "."
    if meant is not None:
        hint = f": pass {meant} by position." if meant in by_position else f": did you mean {meant}=?"
    shown = [f"*{each.name}" if each.kind == Parameter.VAR_POSITIONAL else each.name for each in parameters]
    return UnknownArgument(f"{unknown}{hint} Arguments: {', '.join(shown)}")

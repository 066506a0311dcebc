"""Uniform access to classic and Connect sessions of Spark. PySpark is imported lazily."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import unquote

from tamis import errors
from tamis.errors import (
    CorruptFile,
    EngineError,
    InvalidArgument,
    MissingDependency,
    MissingFile,
    TamisError,
    UnsupportedFeature,
    add_article,
    make_missing_package_error,
    suggest_arguments,
    to_one_line,
)
from tamis.formats.source import TableSource

MIN_PYSPARK_VERSION = (4, 1)


def check_session(spark: object) -> Any:
    """Return the session if it can be used; else raise an error."""
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise make_missing_package_error("a Spark session", "spark", "pyspark", "pandas") from error
    if not isinstance(spark, SparkSession) and not is_connect(spark):
        raise InvalidArgument(f"spark must be a SparkSession, found {add_article(type(spark).__name__)}")
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < MIN_PYSPARK_VERSION:
        raise UnsupportedFeature(f"PySpark {pyspark.__version__} is too old: pip install --upgrade 'tamis[spark]'")
    if is_stopped(spark):
        raise EngineError(STOPPED)
    return spark


def get_active_session() -> Any:
    """Return the active Spark session of this process; start one if there is none."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise make_missing_package_error("engine='spark'", "spark", "pyspark", "pandas") from error
    found = SparkSession.getActiveSession()
    if found is None:
        # Without the progress bar of Spark on the same terminal.
        builder = SparkSession.builder.appName("tamis").config("spark.ui.showConsoleProgress", "false")
        found = builder.getOrCreate()
    return found


def is_stopped(spark: Any) -> bool:
    """Return whether a session was stopped, so that each of its calls would fail with a Java stack trace."""
    if is_connect(spark):
        return bool(spark.is_stopped)
    # Classic sessions have no API for this; `SparkContext.stop` sets `_jsc` to None.
    return getattr(spark.sparkContext, "_jsc", spark) is None


def is_case_sensitive(spark: Any) -> bool:
    """Return whether names of columns and tables that differ only by case are different in a session."""
    return str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def is_connect(spark: object) -> bool:
    """Return whether a session is a client of a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def import_functions(spark: object) -> Any:
    """Return the module of functions that create columns for a session.

    `pyspark.sql.functions` creates columns of the process's default kind, and a session may be of the other kind.
    """
    return import_module("pyspark.sql.connect.functions" if is_connect(spark) else "pyspark.sql.functions")


def make_arrow_udf(spark: object, function: Callable[..., Any], return_type: str) -> Any:
    """Return a function of Columns that executors compute with a Python function of Arrow arrays.

    PySpark's own constructor creates columns of the process's default kind only.
    """
    from pyspark.util import PythonEvalType

    module = import_module("pyspark.sql.connect.udf" if is_connect(spark) else "pyspark.sql.udf")
    return module.UserDefinedFunction(function, return_type, evalType=PythonEvalType.SQL_SCALAR_ARROW_UDF)


def make_observation(spark: object) -> Any:
    """Return a new Observation for `DataFrame.observe`."""
    module = import_module("pyspark.sql.connect.observation" if is_connect(spark) else "pyspark.sql.observation")
    return module.Observation()


BROADCAST_THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"


def hide_size(spark: Any, frame: Any) -> Any:
    """Return a DataFrame with the same rows whose size Spark does not know.

    Spark takes the rows of `mapInArrow` to be as many as those of its input, here a short list of tasks. It would
    broadcast a fact table in a join. A relation of unknown size, united with the frame, makes the size of all rows
    unknown, so that adaptive execution decides by the real one.
    """
    if is_connect(spark):
        from tamis.engines.spark.data_source import NoRows

        spark.dataSource.register(NoRows)
        nothing = spark.read.format(NoRows.name()).schema(frame.schema).load()
    else:
        nothing = spark.createDataFrame(spark.sparkContext.emptyRDD(), frame.schema)
    return frame.unionAll(nothing)


def may_broadcast(spark: Any, size: int | None) -> bool:
    """Return whether rows of this size may be broadcast, by the session's setting. None is an unknown size."""
    if size is None:
        return False
    threshold = str(spark.conf.get(BROADCAST_THRESHOLD, "10MB"))
    digits = re.fullmatch(r"(-?\d+)\s*([kmgt]?)b?", threshold.strip().lower())
    # A setting in another unit than these is rare: then the size is hidden, which is always safe.
    scale = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
    return digits is not None and size <= int(digits[1]) * 1024 ** scale[digits[2]]


# --- Translate Spark's errors into short messages: what happened, and what to do --------------------------------------

_NO_MODULE = re.compile(r"No module named '?([\w.]+)'?")
_PYTHON_ERROR = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)): (.*)$", re.MULTILINE)
_WORKER_DIED = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure|worker died|SIGKILL|exit code 137")
_STOPPED = re.compile(r"stopped SparkContext|SparkContext (?:was|has been) (?:shut down|stopped)")
_TAMIS_ERROR = re.compile(r"^(?:\s*|.*?:\s)?tamis\.errors\.(\w+): (.*)$", re.MULTILINE)
_UNREADABLE = re.compile(
    r"\[FAILED_READ_FILE\.(\w+)\] Encountered error while reading file (.*?)\.(?: |$)", re.MULTILINE
)
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.*)$", re.MULTILINE)
_GONE = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (.*?)\.?(?: SQLSTATE.*)?$", re.MULTILINE)

STOPPED = "the Spark session was stopped: create a new one, and pass that to Tamis"

MAX_MESSAGE_LENGTH = 300


@contextmanager
def translate_errors(title: str) -> Iterator[None]:
    """Raise Spark's errors as errors of Tamis, with the original error as their cause."""
    try:
        yield
    except list_spark_exceptions() as error:
        raise translate_error(str(error), title) from error


def list_spark_exceptions() -> tuple[type[Exception], ...]:
    """Return the exception classes that Spark raises.

    For JVM exceptions without a class in PySpark, py4j raises its own. Connect clients may lack py4j.
    """
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError
    except ImportError:
        return (PySparkException,)
    return (PySparkException, Py4JError)


def translate_error(text: str, title: str) -> TamisError:
    """Return the error that the message of a failed Spark job describes.

    >>> translate_error("… ModuleNotFoundError: No module named 'xxhash'", "tamis: read 2 parts").args[0][:58]
    "the package 'xxhash' is not installed on Spark's workers, "
    >>> translate_error("An error occurred while calling o7.x.\\n: java.io.IOException: No space left", "plan").args[0]
    "the Spark job 'plan' failed: java.io.IOException: No space left"
    >>> translate_error("[PATH_NOT_FOUND] Path does not exist: file:/t/a.parquet. SQLSTATE: 42K03", "read").args[0]
    "the file 'file:/t/a.parquet' is gone"
    """
    if _STOPPED.search(text):
        return EngineError(STOPPED)
    own = _TAMIS_ERROR.findall(text)
    if own:
        # A worker raised it. It has no line breaks.
        kind = getattr(errors, own[-1][0], EngineError)
        found: TamisError = kind.__new__(kind, own[-1][1])
        Exception.__init__(found, own[-1][1])
        return found
    unreadable = _UNREADABLE.search(text)
    if unreadable is not None:
        return _make_file_error(unreadable[2], _CAUSE.findall(text), is_gone=unreadable[1] == "FILE_NOT_EXIST")
    gone = _GONE.search(text)
    if gone is not None:
        return MissingFile(f"the file '{gone[1]}' is gone")
    missing = _NO_MODULE.search(text)
    if missing is not None:
        package = missing[1].split(".")[0]
        if package == "tamis":
            return MissingDependency(
                f"tamis is missing or outdated on Spark's workers, and '{title}' needs it: install it there, or send "
                "it with tamis.spark.ship(spark)"
            )
        return MissingDependency(
            f"the package {package!r} is not installed on Spark's workers, and '{title}' needs it: install it there "
            "(packages with native code cannot be shipped)"
        )
    python_errors = _PYTHON_ERROR.findall(text)
    if python_errors:
        kind, message = python_errors[-1]
        return EngineError(f"the Spark job '{title}' failed: {kind}: {_truncate(message)}")
    if _WORKER_DIED.search(text):
        return EngineError(
            f"the Spark job '{title}' failed: its Python workers died repeatedly, maybe for lack of memory. "
            "See spark.executor.memoryOverhead"
        )
    # The first line of py4j's message only announces the second one.
    lines = (line.strip(" :\t") for line in text.splitlines() if not line.startswith("An error occurred while calling"))
    first = next(filter(None, lines), "Spark gave no reason")
    return EngineError(f"the Spark job '{title}' failed: {_truncate(first)}")


def _make_file_error(location: str, causes: Sequence[str], *, is_gone: bool) -> TamisError:
    """Return the error for a file that Spark's own reader cannot read."""
    state = _find_state(location)
    if is_gone:
        return make_missing_file_error(f"the file '{location}' is gone", state)
    reason = next((cause.strip() for cause in reversed(causes) if cause.strip()), "it is damaged")
    table = "" if state is None else f"{state}: "
    return CorruptFile(
        f"{table}cannot read '{location}': {_truncate(reason)}. Restore the file, or open a version of the table "
        "without it"
    )


def make_missing_file_error(message: str, state: str | None) -> MissingFile:
    """Return an error that names the table at a version that needs a file, and says what to do."""
    if state is None or not state.startswith(_VERSION):
        return MissingFile(f"{message}. Open the table again, which lists its files as they are now")
    return MissingFile(
        f"{message}, and {state} needs it. If it was vacuumed, open a newer version; if this is the newest, restore "
        "the file"
    )


# --- Which table a file is of -----------------------------------------------------------------------------------------
#
# Spark names the file that it cannot read. Tables are those that this process planned to read, by their locations.

_MAX_STATES = 1000
_STATES: dict[str, str | None] = {}
"""The table at a version by its location; without the version if several were read. The last used ones are last."""


_VERSION = "version "


def describe_state(source: TableSource) -> str:
    """Return a table at its version, as messages name it."""
    return source.name if source.version is None else f"{_VERSION}{source.version} of {source.name}"


def name_table_at_version(source: TableSource) -> str:
    """Return the name of a table with its version, for names of jobs and of steps in plans."""
    return source.name if source.version is None else f"{source.name}@{source.version}"


def remember_state(source: TableSource) -> None:
    """Remember a table that Spark will read, so that errors of its files can name it."""
    location, state = _strip_scheme(source.storage.uri), describe_state(source)
    before = _STATES.pop(location, state)
    _STATES[location] = state if before == state else source.name
    while len(_STATES) > _MAX_STATES:
        _STATES.pop(next(iter(_STATES)), None)


def _find_state(location: str) -> str | None:
    path = _strip_scheme(location)
    found = [each for each in list(_STATES) if path == each or path.startswith(f"{each}/")]
    return _STATES.get(max(found, key=len)) if found else None


def _strip_scheme(location: str) -> str:
    """Return a location as Spark and Tamis both have it.

    >>> _strip_scheme("file:/a%20b/c"), _strip_scheme("/a b/c"), _strip_scheme("s3a://b/t"), _strip_scheme("s3://b/t/")
    ('a b/c', 'a b/c', 'b/t', 'b/t')
    """
    return unquote(re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*:/", "", location)).strip("/")


@suggest_arguments("tamis.spark.explain_error")
def explain_error(error: BaseException) -> str:
    """Return one line that says what went wrong in an action of Spark: the table, its version, the file, what to do.

    `error` is what the action of a DataFrame raised, or the exception of a streaming query.
    """
    if isinstance(error, TamisError):
        return to_one_line(error)
    found = translate_error(str(error), "read rows")
    return f"{type(found).__name__}: {to_one_line(found)}"


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[:MAX_MESSAGE_LENGTH]} …"

"""Failures of Spark in few words: what happened, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tamis.errors import EngineError, MissingDependency, MissingFile, TamisError

_NO_MODULE = re.compile(r"No module named '?([\w.]+)'?")
_PYTHON_ERROR = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)): (.*)$", re.MULTILINE)
_WORKER_DIED = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure|worker died|SIGKILL|exit code 137")
_STOPPED = re.compile(r"stopped SparkContext|SparkContext (?:was|has been) (?:shut down|stopped)")
_GONE = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (.*?)\.?(?: SQLSTATE.*)?$", re.MULTILINE)

STOPPED = "the Spark session was stopped: make a new one, and give Tamis that one"

LONGEST = 300


@contextmanager
def translated_errors(title: str) -> Iterator[None]:
    """Errors of Spark become errors of ours, which keep the whole story as their cause."""
    try:
        yield
    except errors_of_spark() as error:
        raise translate(str(error), title) from error


def errors_of_spark() -> tuple[type[Exception], ...]:
    """What Spark raises: where PySpark has no class for an exception of the JVM, py4j's. A mere client has no py4j."""
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError
    except ImportError:
        return (PySparkException,)
    return (PySparkException, Py4JError)


def translate(text: str, title: str) -> TamisError:
    """The error that the text of a failed Spark job tells of.

    >>> translate("… ModuleNotFoundError: No module named 'xxhash'", "tamis: read 2 parts").args[0][:58]
    "the package 'xxhash' is not installed on Spark's workers, "
    >>> translate("An error occurred while calling o7.x.\\n: java.io.IOException: No space left", "tamis: plan").args[0]
    "the Spark job 'tamis: plan' failed: java.io.IOException: No space left"
    >>> translate("[PATH_NOT_FOUND] Path does not exist: file:/t/a.parquet. SQLSTATE: 42K03", "tamis: read t").args[0]
    "the file 'file:/t/a.parquet' is gone"
    """
    if _STOPPED.search(text):
        return EngineError(STOPPED)
    gone = _GONE.search(text)
    if gone is not None:
        return MissingFile(f"the file '{gone[1]}' is gone")
    missing = _NO_MODULE.search(text)
    if missing is not None:
        package = missing[1].split(".")[0]
        if package == "tamis":
            return MissingDependency(
                f"tamis is not on Spark's workers, or an older one, and '{title}' needs it: install it there, or send "
                "it with tamis.spark.ship(spark)"
            )
        return MissingDependency(
            f"the package {package!r} is not installed on Spark's workers, and '{title}' needs it: install it there "
            "(packages with native code cannot be sent along)"
        )
    told = _PYTHON_ERROR.findall(text)
    if told:
        kind, message = told[-1]
        return EngineError(f"the Spark job '{title}' failed: {kind}: {_cut(message)}")
    if _WORKER_DIED.search(text):
        return EngineError(
            f"the Spark job '{title}' failed: its Python workers died again and again. Have they too little memory? "
            "See spark.executor.memoryOverhead"
        )
    # What py4j says first is only that there is a second line.
    lines = (line.strip(" :\t") for line in text.splitlines() if not line.startswith("An error occurred while calling"))
    first = next(filter(None, lines), "no reason was given")
    return EngineError(f"the Spark job '{title}' failed: {_cut(first)}")


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"

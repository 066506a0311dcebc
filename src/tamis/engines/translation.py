"""Failures of Spark in few words: what happened, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tamis.errors import EngineError, MissingDependency, TamisError

_NO_MODULE = re.compile(r"No module named '?([\w.]+)'?")
_PYTHON_ERROR = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)): (.*)$", re.MULTILINE)
_WORKER_DIED = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure|worker died|SIGKILL|exit code 137")

LONGEST = 300


@contextmanager
def translated_errors(title: str) -> Iterator[None]:
    """Errors of Spark become errors of ours, which keep the whole story as their cause."""
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, *_errors_of_java()) as error:
        raise translate(str(error), title) from error


def _errors_of_java() -> tuple[type[Exception], ...]:
    """What classic sessions raise where PySpark has no class for an exception of the JVM; a mere client has no py4j."""
    try:
        from py4j.protocol import Py4JError
    except ImportError:
        return ()
    return (Py4JError,)


def translate(text: str, title: str) -> TamisError:
    """The error that the text of a failed Spark job tells of.

    >>> translate("… ModuleNotFoundError: No module named 'xxhash'", "tamis: read 2 parts").args[0][:58]
    "the package 'xxhash' is not installed on Spark's workers, "
    """
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
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")
    return EngineError(f"the Spark job '{title}' failed: {_cut(first)}")


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"

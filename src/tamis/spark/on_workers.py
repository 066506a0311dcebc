"""Functions for Spark's workers that report clearly if a package is missing there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    Batches = Iterator[pa.RecordBatch]


def on_workers(module: str, function: str, arguments: str, name: str) -> Callable[[Batches], Batches]:
    """Return a function for `mapInArrow` that calls a function of tamis with the arguments and the batches.

    PySpark serialises a nested function as code, but imports a module-level one by name, which fails with a Java stack
    trace if tamis is missing. So the returned function is nested, and uses nothing from outside of itself.
    """

    def call(batches: Batches) -> Batches:
        from importlib import import_module

        try:
            found = getattr(import_module(module), function)
        except ModuleNotFoundError as error:
            missing = (error.name or "").split(".")[0]
            alternative = ", or send it with tamis.spark.ship(spark)" if missing == "tamis" else ""
            raise ModuleNotFoundError(
                f"{missing} is not installed on Spark's workers, which need it to read the table: install it there"
                f"{alternative}"
            ) from error
        return found(arguments, batches)  # type: ignore[no-any-return]

    call.__name__ = name
    return call

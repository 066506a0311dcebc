"""Functions for the workers of frames that a user runs, whenever that is: they say so where tamis is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    Batches = Iterator[pa.RecordBatch]


def on_workers(module: str, function: str, arguments: str, name: str) -> Callable[[Batches], Batches]:
    """A function for `mapInArrow` that calls a function of tamis with a text and the batches.

    PySpark sends a function inside of another as code, and looks for any other under its name, which fails in words
    of Java where there is no tamis. So this one stays inside, and uses nothing but what is inside of it.
    """

    def call(batches: Batches) -> Batches:
        from importlib import import_module

        try:
            found = getattr(import_module(module), function)
        except ModuleNotFoundError as error:
            missing = (error.name or "").split(".")[0]
            way_out = ", or send it with tamis.spark.ship(spark)" if missing == "tamis" else ""
            raise ModuleNotFoundError(
                f"{missing} is not on Spark's workers, which read the table with it: install it there{way_out}"
            ) from error
        return found(arguments, batches)  # type: ignore[no-any-return]

    call.__name__ = name
    return call

"""A function that the language does not have, as one row of its table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.functions.kernels import Value
from tamis.expr.functions.table import (
    ALIASES,
    FUNCTIONS,
    Databases,
    Function,
    Monotone,
    Spark,
    register_function,
    type_of,
)  # fmt: skip
from tamis.expr.nodes import Call


def compute_direction(call: Call, args: list[Value]) -> Value:
    return pc.cast(pc.sign(args[0]), types.LONG)


def has_integer(call: Call) -> bool:
    return bool(pa.types.is_integer(type_of(call.args[0]) or types.NULL))


DIRECTION = Function(
    "direction",
    ("number",),
    types.LONG,
    1,
    1,
    monotone=Monotone(0, keeps_order=True),
    kernel=compute_direction,
    supports=has_integer,
    aliases=("heading",),
    pyarrow=("sign",),
    spark=Spark("signum", is_same=True),
    duckdb="CAST(sign({0}) AS BIGINT)",
    databases=Databases({"sqlite": "({0} > 0) - ({0} < 0)"}),
)
"""-1, 0 or 1 for a negative number, zero or a positive one; the kernel computes it of integers only."""


@contextmanager
def restore_functions() -> Iterator[None]:
    """Remove the functions that are registered meanwhile."""
    before = dict(FUNCTIONS), dict(ALIASES)
    try:
        yield
    finally:
        for names, kept in zip((FUNCTIONS, ALIASES), before, strict=True):
            for name in names.keys() - kept.keys():
                del names[name]


@contextmanager
def add_direction() -> Iterator[None]:
    with restore_functions():
        register_function(DIRECTION)
        yield

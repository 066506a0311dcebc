"""Constants as Columns: in the form of metadata (see `tamis.spark.types`), as points in time, or many as one."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tamis import types
from tamis.errors import EvaluationError
from tamis.expr.kernels import evaluation_type
from tamis.expr.nodes import Literal
from tamis.expr.printer import shown
from tamis.spark.types import metadata_type
from tamis.types import is_text, type_name

EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


class Constants:
    """Makes constants for one kind of session."""

    def __init__(self, functions: Any) -> None:
        self._f = functions

    def column(self, literal: Literal) -> Any:
        """A constant in the form of metadata."""
        f, value, data_type = self._f, literal.value, evaluation_type(literal.type)
        if pa.types.is_null(data_type):
            return f.lit(None)
        if pa.types.is_interval(data_type):
            return None  # taken out of the node by whoever adds it
        target = _stored(literal)
        if value is None:
            return f.lit(None).cast(sql_type(target))
        if pa.types.is_date(data_type):
            return f.date_from_unix_date(f.lit(value))
        if pa.types.is_timestamp(data_type):
            return self.at(f.lit(microseconds(literal)).cast("bigint"))
        if pa.types.is_decimal(target):
            return f.lit(str(value)).cast(sql_type(target))
        if pa.types.is_boolean(data_type) or is_text(data_type) or target in (types.BINARY, types.DOUBLE):
            return f.lit(value)
        return f.lit(value).cast(sql_type(target))

    def moment(self, literal: Literal) -> Any:
        """A point in time as Spark stores it, whatever the zone of the session."""
        if literal.is_null:
            return self._f.lit(None).cast("timestamp")
        return self._f.timestamp_micros(self._f.lit(microseconds(literal)).cast("bigint"))

    def at(self, microseconds: Any) -> Any:
        """The timestamp without a zone so many microseconds after the epoch."""
        return self._f.timestamp_add("MICROSECOND", microseconds, self._f.expr(EPOCH))

    def since_epoch(self, timestamp: Any) -> Any:
        """The microseconds from the epoch to a timestamp without a zone."""
        return self._f.timestamp_diff("MICROSECOND", self._f.expr(EPOCH), timestamp)

    def listed(self, items: Sequence[Literal]) -> tuple[Any, Callable[[Any], Any]]:
        """Many constants as one: an array of texts or numbers, and what makes values of its items.

        A Column for each of a hundred thousand items would take Spark minutes to read.
        """
        f, data_type, target = self._f, evaluation_type(items[0].type), _stored(items[0])
        values = [item.value for item in items]
        if is_text(data_type):
            return self._array(values, "string"), lambda item: item
        if target == types.BINARY:
            return self._array([b64encode(value).decode() for value in values], "string"), f.unbase64
        if pa.types.is_date(data_type):
            return self._array(values, "int"), f.date_from_unix_date
        if pa.types.is_timestamp(data_type):
            return self._array([microseconds(item) for item in items], "bigint"), self.at
        if pa.types.is_integer(target):
            return self._array(values, "bigint"), lambda item: item
        return self._array([str(value) for value in values], "string"), lambda item: item.cast(sql_type(target))

    def _array(self, values: list[Any], item_type: str) -> Any:
        return self._f.from_json(self._f.lit(json.dumps(values)), f"array<{item_type}>")


def sql_type(data_type: pa.DataType) -> str:
    """A type of metadata by Spark's name for it."""
    return type_name(data_type)


def microseconds(literal: Literal) -> int:
    """A timestamp as a count of microseconds since the epoch."""
    count = int(literal.value) * 1_000_000
    whole, rest = divmod(count, types.UNITS_PER_SECOND[literal.type.unit])
    if rest or abs(whole) >= 2**63:
        raise EvaluationError(f"{shown(literal)} is no whole number of microseconds that Spark can hold")
    return whole


def _stored(literal: Literal) -> pa.DataType:
    target = metadata_type(evaluation_type(literal.type))
    if target is None:
        raise EvaluationError(f"Spark has no constants of {type_name(literal.type)}")
    return target

"""Constants as Columns: in the types of metadata (see `tamis.spark.types`), as instants, or many as one array."""

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
from tamis.expr.printer import to_display_sql
from tamis.spark.types import metadata_type
from tamis.types import is_text, type_name

EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


class Constants:
    """Creates constants for one kind of session."""

    def __init__(self, functions: Any) -> None:
        self._f = functions

    def column(self, literal: Literal) -> Any:
        """Return a constant in the type of metadata."""
        f, value, data_type = self._f, literal.value, evaluation_type(literal.type)
        if pa.types.is_null(data_type):
            return f.lit(None)
        if pa.types.is_interval(data_type):
            return None  # the compiler of the enclosing expression reads it from the node
        target = _to_metadata_type(literal)
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
        """Return an instant in Spark's storage type, independent of the session's time zone."""
        if literal.is_null:
            return self._f.lit(None).cast("timestamp")
        return self._f.timestamp_micros(self._f.lit(microseconds(literal)).cast("bigint"))

    def at(self, microseconds: Any) -> Any:
        """Return the timestamp without a zone for a number of microseconds since the epoch."""
        return self._f.timestamp_add("MICROSECOND", microseconds, self._f.expr(EPOCH))

    def since_epoch(self, timestamp: Any) -> Any:
        """Return the microseconds from the epoch to a timestamp without a zone."""
        return self._f.timestamp_diff("MICROSECOND", self._f.expr(EPOCH), timestamp)

    def listed(self, items: Sequence[Literal]) -> tuple[Any, Callable[[Any], Any]]:
        """Return many constants as one array of strings or numbers, and a function that converts its items to values.

        Spark would need minutes to analyse a Column for each of a hundred thousand items.
        """
        f, data_type, target = self._f, evaluation_type(items[0].type), _to_metadata_type(items[0])
        values = [item.value for item in items]
        if is_text(data_type):
            return self._make_array(values, "string"), lambda item: item
        if target == types.BINARY:
            return self._make_array([b64encode(value).decode() for value in values], "string"), f.unbase64
        if pa.types.is_date(data_type):
            return self._make_array(values, "int"), f.date_from_unix_date
        if pa.types.is_timestamp(data_type):
            return self._make_array([microseconds(item) for item in items], "bigint"), self.at
        if pa.types.is_integer(target):
            return self._make_array(values, "bigint"), lambda item: item
        return self._make_array([str(value) for value in values], "string"), lambda item: item.cast(sql_type(target))

    def _make_array(self, values: list[Any], item_type: str) -> Any:
        return self._f.from_json(self._f.lit(json.dumps(values)), f"array<{item_type}>")


def sql_type(data_type: pa.DataType) -> str:
    """Return Spark's name for a type of metadata."""
    return type_name(data_type)


def microseconds(literal: Literal) -> int:
    """Return a timestamp as a count of microseconds since the epoch."""
    count = int(literal.value) * 1_000_000
    whole, rest = divmod(count, types.UNITS_PER_SECOND[literal.type.unit])
    if rest or abs(whole) >= 2**63:
        raise EvaluationError(
            f"{to_display_sql(literal)} is not a whole number of microseconds in the range of Spark's timestamps"
        )
    return whole


def _to_metadata_type(literal: Literal) -> pa.DataType:
    target = metadata_type(evaluation_type(literal.type))
    if target is None:
        raise EvaluationError(f"Spark does not support constants of type {type_name(literal.type)}")
    return target

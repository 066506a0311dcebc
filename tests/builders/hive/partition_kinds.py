"""Kinds of partition values that other tools write, and when two readers agree on a value."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

UTC = datetime.UTC


@dataclass(frozen=True)
class Kind:
    """Values of a partition column."""

    values: Sequence[object]
    type: pa.DataType
    name: str
    """The name of the type, as `partitioning=` takes it."""
    meaning: Callable[[Any], object]
    """Normalises a value that a reader returns: a text, or a value of the type."""

    @property
    def rows(self) -> pa.Table:
        return pa.table({"id": pa.array(range(len(self.values)), pa.int64()), "p": pa.array(self.values, self.type)})

    def by_id(self, rows: pa.Table) -> dict[int, object]:
        """Return the normalised partition value of each row, by row id."""
        found = zip(rows["id"].to_pylist(), rows["p"].to_pylist(), strict=True)
        return {number: None if value is None else self.meaning(value) for number, value in sorted(found)}


def _to_number(value: object) -> object:
    found = float(str(value))
    return "NaN" if math.isnan(found) else (found, math.copysign(1, found))


def _to_date(value: object) -> object:
    return datetime.date.fromisoformat(str(value)[:10])


def _to_instant(value: object) -> object:
    found = datetime.datetime.fromisoformat(str(value))
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _to_boolean(value: object) -> object:
    return str(value).lower() == "true"


def _make_texts(*values: str | None) -> Kind:
    return Kind(values, pa.string(), "string", str)


KINDS: dict[str, Kind] = {
    "ascii": _make_texts("a", "B", "a b", None),
    "other scripts": _make_texts("ñ", "Ã±", "日本", "😀", "ÿ", "é%", "%C3%B1", None),
    "empty": _make_texts("", "x", None),
    "empty beside numbers": _make_texts("", "1", "2"),
    "special": _make_texts(
        "a=b", "a/b", "a%b", "a+b", "x:y", "a'b", 'q"q', "#?*", "{[]}^", "\\", "a&b;c", "~", ".", ".."
    ),
    "control": _make_texts("a\nb", "a\tb", " lead", "trail "),
    "words": _make_texts("null", "NULL", "true", "_x", ".x", "nan"),
    "leading zeros": Kind(["01234", "00501", None], pa.string(), "string", lambda value: int(str(value))),
    "int": Kind([7, -7, 0, None], pa.int32(), "int", lambda value: int(str(value))),
    "bigint": Kind([2**40, 1, None], pa.int64(), "bigint", lambda value: int(str(value))),
    "boolean": Kind([True, False, None], pa.bool_(), "boolean", _to_boolean),
    "date": Kind([datetime.date(2024, 3, 1), datetime.date(1969, 12, 31), None], pa.date32(), "date", _to_date),
    "timestamp": Kind(
        [datetime.datetime(2024, 3, 1, 10, 30, 0, 5, UTC), datetime.datetime(1969, 12, 31, tzinfo=UTC), None],
        pa.timestamp("us", "UTC"),
        "timestamp",
        _to_instant,
    ),
    "timestamp_ntz": Kind(
        [datetime.datetime(2024, 3, 1, 10, 30, 0, 5), None], pa.timestamp("us"), "timestamp_ntz", _to_instant
    ),
    "double": Kind([1.5, 1e20, math.nan, -math.inf, None], pa.float64(), "double", _to_number),
    "decimal": Kind(
        [Decimal("1.50"), Decimal("20.01"), None], pa.decimal128(10, 2), "decimal(10,2)", lambda v: Decimal(str(v))
    ),
}

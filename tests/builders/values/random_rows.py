"""Random schemas, units of rows and predicates about them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from builders.values.by_type import FAMILIES, list_special_values, list_values
from builders.values.choices import Choices
from builders.values.predicates import OraclePredicate, Subject, draw_predicate
from tamis.expr.normalise import sort_key

PREDICATES = (3, 8)
"""How many predicates one example tries: they cost little beside the rows and the oracle."""


def draw_schema(choices: Choices) -> pa.Schema:
    """Return one to three columns, often two of one type, so that they can be compared."""
    types = [draw_type(choices)]
    for _ in range(choices.number(0, 2)):
        types.append(types[0] if choices.flag() else draw_type(choices))
    return pa.schema([(f"c{index}", each) for index, each in enumerate(types)])


def draw_type(choices: Choices) -> pa.DataType:
    """Return a type. Its family is drawn first, so that small families come up as often as large ones."""
    return choices.one_of(choices.one_of(FAMILIES))


def draw_values(choices: Choices, data_type: pa.DataType) -> list[Any]:
    """Return the few values of one column. With more values, equal ones would be rare."""
    return choices.some_of((*list_values(data_type), *list_special_values(data_type) * 2), 1, 4)


def draw_column(choices: Choices, values: list[Any], count: int) -> list[Any]:
    """Return so many rows of a column: mixed, of one value, or all NULL."""
    match choices.number(0, 7):
        case 0:
            return [None] * count
        case 1 | 2:
            return [choices.one_of(values)] * count
        case 3:
            return sorted((choices.one_of(values) for _ in range(count)), key=sort_key)
        case 4 | 5:
            return [choices.one_of(values) for _ in range(count)]
        case _:
            return [choices.one_of([*values, None]) for _ in range(count)]


def make_subject(path: tuple[str, ...], data_type: pa.DataType, rows: Iterable[Any]) -> Subject:
    """Return a column with its distinct values."""
    distinct = {(value is None, repr(value)): value for value in rows if value is not None}
    return Subject(path, data_type, tuple(distinct.values()))


def draw_predicates(choices: Choices, subjects: list[Subject]) -> list[OraclePredicate]:
    return [draw_predicate(choices, subjects) for _ in range(choices.number(*PREDICATES))]

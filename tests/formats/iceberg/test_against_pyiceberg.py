"""Tables written by pyiceberg with every transform: the same rows, from no more files than pyiceberg plans."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import parse_transform
from pyiceberg.types import NestedField

import tamis
from builders.iceberg.values import parse_primitive_type, to_arrow_type
from builders.pyiceberg.tables import create_table, make_spec, transform_by_value

ISO = ("1969-12-31T23:59:59.999999", "1970-01-01T00:00:00", "1970-01-01T01:30:00", "1971-03-05T00:00:00")

VALUES: dict[str, list[Any]] = {
    "long": [1, 7, 12, -3, None],
    "int": [-20, -19, 0, 15, None],
    "string": ["ab", "ab03", "ac", "é longer than bounds are", None],
    "binary": [b"ab", b"a", b"\xff", b"", None],
    "decimal(9, 2)": [Decimal("1.25"), Decimal("-3.00"), Decimal("0.00"), Decimal("99.99"), None],
    "date": [*(each[:10] for each in ISO[1:]), "1969-12-31", None],
    "timestamp": [*ISO, None],
    "timestamptz": [*(f"{each}+00:00" for each in ISO), None],
    "double": [1.5, -4.5, 0.0, 7.25, None],
    "boolean": [True, False, None],
}
"""Values of a column, as pyiceberg literals."""

PERIODS = ("year", "month", "day")
PARTITIONED = [
    *[(kind, "identity") for kind in VALUES],
    *[(kind, "void") for kind in ("long", "string")],
    *[(kind, "bucket[3]") for kind in VALUES if kind not in ("double", "boolean")],
    *[("long", "truncate[5]"), ("int", "truncate[10]"), ("string", "truncate[2]"), ("binary", "truncate[1]")],
    ("decimal(9, 2)", "truncate[100]"),
    *[(kind, each) for kind in ("date", "timestamp", "timestamptz") for each in PERIODS],
    *[(kind, "hour") for kind in ("timestamp", "timestamptz")],
]

AT_ONCE = [("string", "truncate[2]"), ("int", "bucket[3]"), ("timestamp", "hour"), ("date", "month")]
"""The cases that are not left to the slower interop tests."""


def make_column(kind: str, values: list[Any]) -> pa.Array:
    if kind in ("date", "timestamp", "timestamptz"):
        values = [None if each is None else datetime.datetime.fromisoformat(each) for each in values]
    return pa.array(values, to_arrow_type(kind))


def make_filters(kind: str, name: str) -> list[BooleanExpression]:
    one, other = VALUES[kind][:2]
    found: list[BooleanExpression] = [
        *(made(name, each) for made in (EqualTo, NotEqualTo) for each in (one, other)),
        *(made(name, each) for made in (In, NotIn) for each in ({one, other}, {other})),
        *(made(name) for made in (IsNull, NotNull)),
        Or(EqualTo(name, one), IsNull(name)),
        Not(EqualTo(name, other)),
    ]
    if kind != "boolean":
        ordered = (LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)
        found += [made(name, each) for made in ordered for each in VALUES[kind][:4]]
        found += [And(GreaterThan(name, one), LessThan(name, other)), And(EqualTo(name, one), GreaterThan("id", 2))]
    if kind == "string":
        found += [made(name, each) for made in (StartsWith, NotStartsWith) for each in ("a", "ab", "ab0")]
    return found


def check(table: Table, folder: Path, where: list[BooleanExpression]) -> None:
    opened = tamis.open(folder)
    for each in where:
        planned = opened.scan(each).plan("files")
        # Each of pyiceberg's tasks is a file.
        assert planned.num_files <= len(list(table.scan(row_filter=each).plan_files())), each
    for each in where[:2]:
        expected = table.scan(row_filter=each).to_arrow()["id"].to_pylist()
        assert sorted(opened.scan(each).to_arrow()["id"].to_pylist()) == sorted(expected), each


@pytest.mark.parametrize(
    ("kind", "transform"),
    [pytest.param(*each, marks=[] if each in AT_ONCE else pytest.mark.interop) for each in PARTITIONED],
)
def test_O3_I1_I11_plan_has_no_more_files_than_pyiceberg(tmp_path: Path, kind: str, transform: str) -> None:
    fields = [
        NestedField(1, "id", parse_primitive_type("long"), required=False),
        NestedField(2, "c", parse_primitive_type(kind)),
    ]
    schema = Schema(*(each.model_copy(update={"required": False}) for each in fields))
    values = VALUES[kind]
    with transform_by_value():
        table = create_table(tmp_path, schema, make_spec(schema, ("c", transform)))
        for first, some in ((0, values), (10, values[:2])):
            rows = {"id": pa.array(range(first, first + len(some)), pa.int64()), "c": make_column(kind, some)}
            table.append(pa.table(rows))
    check(table, tmp_path, make_filters(kind, "c"))


@pytest.mark.interop
def test_I1_I5_plan_of_an_evolved_table_has_no_more_files_than_pyiceberg(tmp_path: Path) -> None:
    fields = [NestedField(number, name, parse_primitive_type(kind), required=False) for number, name, kind in
              ((1, "id", "long"), (2, "i", "int"), (3, "s", "string"))]  # fmt: skip
    schema = Schema(*fields)

    def make_rows(first: int, **renamed: str) -> pa.Table:
        columns = {"id": pa.array(range(first, first + 4), pa.int64()), "i": make_column("int", VALUES["int"][:4])}
        columns["s"] = make_column("string", VALUES["string"][1:])
        return pa.table({renamed.get(name, name): each for name, each in columns.items()})

    with transform_by_value():
        table = create_table(tmp_path, schema, make_spec(schema, ("s", "truncate[2]")))
        table.append(make_rows(0))
        with table.update_spec() as spec:
            spec.remove_field("p0")
            spec.add_field("i", parse_transform("bucket[3]"), "by_i")
        table.append(make_rows(10))
        with table.update_schema() as update:
            update.update_column("i", parse_primitive_type("long"))
            update.rename_column("s", "text")
        table.append(make_rows(20, s="text").set_column(1, "i", make_rows(20)["i"].cast(pa.int64())))
        table.delete(In("id", {1, 11}))
    check(table, tmp_path, [*make_filters("int", "i"), *make_filters("string", "text"), EqualTo("id", 11)])

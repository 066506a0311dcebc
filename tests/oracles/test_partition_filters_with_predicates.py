"""Partition filters combined with other conditions, on tables of every format, against Python row by row."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from builders.parquet.tuning import BY_PAGES
from builders.values.choices import Choices
from tamis import PartitionFilter
from tamis.formats.source import TABLE_FORMATS
from tamis.tuning import Tuning

P_TEXTS = ["eu", "us", "Eu", "01", "1", "10", "9", "1.5", "nan", "a b", None]
N_TEXTS = ["1", "2", "10", "-3", None]
ODD_N_TEXTS = ["01", "007", "1", "2", "10", "-3", "+5", None]

Texts = Mapping[str, str | None]
Row = dict[str, Any]


@dataclass(frozen=True)
class StoredFile:
    texts: Texts
    rows: list[Row]


# --- The meaning of a partition filter, value by value ----------------------------------------------------------------


def keeps(filter: PartitionFilter, texts: Texts) -> bool:
    match filter.op:
        case "and":
            return all(keeps(each, texts) for each in filter.filters)
        case "or":
            return any(keeps(each, texts) for each in filter.filters)
        case "not":
            return not keeps(filter.filters[0], texts)
    text = texts.get(filter.column)
    match filter.op:
        case "is_null":
            return text is None
        case "is_not_null":
            return text is not None
        case "neq":
            return text != filter.value
        case "eq" | "in":
            return text is not None and text in filter.values
    return text is not None and compare(filter, text)


def compare(filter: PartitionFilter, text: str) -> bool:
    left: Any = parse(text, filter.type)
    right: Any = parse(filter.value, filter.type)
    if left is None or right is None:
        left, right = text, filter.value
    return {"gt": left > right, "gte": left >= right, "lt": left < right, "lte": left <= right}[filter.op]


def parse(text: str, kind: str | None) -> tuple[bool, float] | None:
    """Return a number that sorts NaN last; None for texts that are not numbers."""
    if kind == "long" and re.fullmatch(r"[+-]?[0-9]+", text):
        return False, int(text)
    if kind == "double" and re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+|nan)", text):
        return (True, 0) if text == "nan" else (False, float(text))
    return None


# --- Tables -----------------------------------------------------------------------------------------------------------


def draw_files(choices: Choices, n_texts: list[str | None]) -> list[StoredFile]:
    files = []
    number = 0
    for _ in range(choices.number(1, 6)):
        texts = {"p": choices.one_of(P_TEXTS), "n": choices.one_of(n_texts)}
        n = None if texts["n"] is None else int(texts["n"])
        rows = []
        for _ in range(choices.number(1, 5)):
            rows.append({"row": number, "id": choices.number(0, 9), "name": choices.one_of(["a", "bcd"]), "n": n})
            number += 1
        files.append(StoredFile(texts, rows))
    return files


def make_rows(file: StoredFile) -> pa.Table:
    schema = pa.schema([("row", pa.int64()), ("id", pa.int64()), ("name", pa.string())])
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in file.rows], schema)


def write_hive(choices: Choices, folder: Path) -> tuple[list[StoredFile], tamis.Table]:
    files = draw_files(choices, ODD_N_TEXTS)
    for number, file in enumerate(files):
        names = [
            f"{name}={'__HIVE_DEFAULT_PARTITION__' if text is None else text}" for name, text in file.texts.items()
        ]
        (folder / names[0] / names[1]).mkdir(parents=True, exist_ok=True)
        pq.write_table(make_rows(file), folder / names[0] / names[1] / f"{number}.parquet")
    return files, tamis.open(folder, partitioning={"p": "string", "n": "int"})


def write_delta(choices: Choices, folder: Path) -> tuple[list[StoredFile], tamis.Table]:
    files = draw_files(choices, ODD_N_TEXTS)
    columns = {"row": "long", "id": "long", "name": "string", "p": "string", "n": "integer"}
    log = DeltaLog(folder, columns, partition_columns=["p", "n"])
    for number, file in enumerate(files):
        log.commit(data_file(log, f"{number}.parquet", make_rows(file), dict(file.texts)))
    if choices.flag():
        log.checkpoint(choices.number(0, len(files) - 1))
    return files, tamis.open(folder)


def write_iceberg(choices: Choices, folder: Path) -> tuple[list[StoredFile], tamis.Table]:
    fields = [field(1, "row", "long"), field(2, "id", "long"), field(3, "name", "string"), field(4, "p", "string")]
    fields.append(field(5, "n", "int"))
    table = IcebergFolder(folder, fields, specs=[[(4, "identity", "p"), (5, "identity", "n")], [(4, "identity", "p")]])
    files = []
    for number, file in enumerate(draw_files(choices, N_TEXTS)):
        spec = choices.number(0, 1)
        # A file whose spec lacks the field has no partition value of it.
        files.append(file if spec == 0 else StoredFile({"p": file.texts["p"]}, file.rows))
        count = len(file.rows)
        rows = make_rows(file).append_column("p", pa.array([file.texts["p"]] * count, pa.string()))
        rows = rows.append_column("n", pa.array([file.rows[0]["n"]] * count, pa.int32()))
        table.commit(table.data_file(f"{number}.parquet", rows, spec=spec))
    return files, tamis.open(folder)


# --- Filters ----------------------------------------------------------------------------------------------------------


def draw_filter(choices: Choices, depth: int = 2) -> PartitionFilter:
    kind = choices.number(0, 9)
    if depth and kind <= 3:
        inner = [draw_filter(choices, depth - 1) for _ in range(choices.number(0, 3))]
        if kind == 0:
            return PartitionFilter.not_(draw_filter(choices, depth - 1))
        return PartitionFilter.and_(inner) if kind == 1 else PartitionFilter.or_(inner)
    column = choices.one_of(["p", "P", "n"])
    values = [text for text in (*P_TEXTS, *ODD_N_TEXTS) if text is not None]
    made: PartitionFilter
    match choices.one_of(["eq", "neq", "in", "is_null", "is_not_null", "gt", "gte", "lt", "lte"]):
        case "is_null" | "is_not_null" as op:
            made = PartitionFilter(op, column)
        case "in":
            made = PartitionFilter.in_(column, choices.some_of(values, 0, 3))
        case "eq" | "neq" as op:
            made = PartitionFilter(op, column, (choices.one_of(values),))
        case op:
            made = PartitionFilter(op, column, (choices.one_of(values),), choices.one_of([None, "long", "double"]))
    return made


def draw_predicate(choices: Choices) -> tuple[Any, Callable[[Row], bool]]:
    number = choices.number(0, 9)
    return choices.one_of(
        [
            (f"id > {number}", lambda row: row["id"] > number),
            (tamis.col("id") <= number, lambda row: row["id"] <= number),
            (("id", "=", number), lambda row: row["id"] == number),
            (f"n >= {number}", lambda row: row["n"] is not None and row["n"] >= number),
            ("n IS NULL", lambda row: row["n"] is None),
            ("length(name) > 2", lambda row: len(row["name"]) > 2),
            ("regexp_like(name, '^a')", lambda row: row["name"] == "a"),
        ]
    )


def draw_where(choices: Choices) -> tuple[Any, Callable[[Texts, Row], bool]]:
    one, other = draw_filter(choices), draw_filter(choices)
    sql, matches = draw_predicate(choices)
    number = choices.number(0, 9)
    above = tamis.col("id") > number
    return choices.one_of(
        [
            (one, lambda texts, row: keeps(one, texts)),
            ([one, sql], lambda texts, row: keeps(one, texts) and matches(row)),
            ([sql, one, other], lambda texts, row: keeps(one, texts) and keeps(other, texts) and matches(row)),
            ([[one], [sql]], lambda texts, row: keeps(one, texts) or matches(row)),
            ([[one, sql], [other]], lambda texts, row: (keeps(one, texts) and matches(row)) or keeps(other, texts)),
            (one & above, lambda texts, row: keeps(one, texts) and row["id"] > number),
            (above | one, lambda texts, row: keeps(one, texts) or row["id"] > number),
            (
                ~(one | above) & other,
                lambda texts, row: not (keeps(one, texts) or row["id"] > number) and keeps(other, texts),
            ),
        ]
    )


@settings(max_examples=max(1, settings().max_examples // 4))
@pytest.mark.parametrize("write", [write_hive, write_delta, write_iceberg])
@given(st.data())
def test_O1_partition_filters_combine_with_other_conditions(write: Any, data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        files, table = write(choices, Path(folder))
        for _ in range(2):
            where, matches = draw_where(choices)
            lowered = {id(file): {**file.texts, "P": file.texts["p"]} for file in files}
            expected = sorted(row["row"] for file in files for row in file.rows if matches(lowered[id(file)], row))
            levels = TABLE_FORMATS[table.format].levels
            chosen = levels if choices.flag() else tuple(choices.some_of(levels, 0, len(levels)))
            tuning = choices.one_of([Tuning(), BY_PAGES])
            scan = table.scan(where, columns=["row"], levels=chosen, tuning=tuning)
            assert sorted(scan.to_arrow()["row"].to_pylist()) == expected, (where, chosen)
            assert table.scan(where, levels=chosen, tuning=tuning).count() == len(expected), (where, chosen)
            limit = choices.number(0, 5)
            limited = table.scan(where, columns=["row"], limit=limit, levels=chosen).to_arrow()["row"].to_pylist()
            assert len(limited) == min(limit, len(expected)), (where, chosen)
            assert set(limited) <= set(expected), (where, chosen)

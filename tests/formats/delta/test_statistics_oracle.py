"""Statistics of Delta files against the oracle: no file with a matching row is skipped, for any writer.

Each example is a table of two columns, one of them inside a struct, a few files with some rows deleted, the statistics
that some writer recorded for each file, and a few predicates. The oracle evaluates each predicate for every row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.answers.oracle import evaluate_predicates
from builders.delta.statistics import WRITERS, field, format_bounds, mapping, table_metadata
from builders.values.by_type import list_special_values, list_values, make_array
from builders.values.choices import Choices
from builders.values.predicates import OraclePredicate
from builders.values.random_rows import draw_column, draw_predicates, make_subject
from tamis import types
from tamis.expr.bind import bind
from tamis.expr.nodes import Column, find_columns
from tamis.expr.normalise import normalise, sort_key
from tamis.formats.delta.schema import TableMetadata
from tamis.formats.delta.statistics.file_statistics import make_statistics_metadata
from tamis.skipping.prune import prune
from tamis.skipping.rewrite import rewrite

_CUT = "0123456789" * 3 + "0"
_TAILS = ("", "1", "1a", "1\x7f", "1~z", "1é", "2", "1\ufffd", "1\ufffdz", "1😀", "1\U0010ffff", "😀😀", "\x00")
LONG_TEXTS = (*(_CUT + tail for tail in _TAILS), "😀" * 20, "a" + "😀" * 20, "\U0010ffff" * 40, "é" * 33)
DECIMALS = (
    pa.decimal128(5, 2),
    pa.decimal128(19, 2),
    pa.decimal128(38, 18),
    pa.decimal128(19, 0),
    pa.decimal128(38, 0),
)
TABLE_TYPES: tuple[pa.DataType, ...] = (
    types.DOUBLE,
    pa.string(),
    types.TIMESTAMP,
    types.TIMESTAMP_NTZ,
    *DECIMALS,
    pa.float32(),
    pa.int8(),
    pa.int32(),
    pa.int64(),
    pa.date32(),
    pa.bool_(),
    pa.binary(),
)
OLDER_TYPES = {
    types.DOUBLE: (pa.float32(), pa.int32()),
    pa.int64(): (pa.int8(), pa.int32()),
    types.TIMESTAMP_NTZ: (pa.date32(),),
    pa.decimal128(19, 2): (pa.decimal128(5, 2), pa.int32()),
}
"""What files may have been written as, before the table widened the type of a column."""


def has_bounds_in_log(data_type: pa.DataType) -> bool:
    return not (pa.types.is_boolean(data_type) or types.is_bytes(data_type))


@dataclass(frozen=True)
class File:
    """Rows of both columns in the types of the file; the first `deleted` rows were deleted later."""

    types: tuple[pa.DataType, pa.DataType]
    rows: tuple[list[Any], list[Any]]
    deleted: int
    writer: str
    stats: str | None

    def live(self, column: int, target: pa.DataType) -> pa.Array:
        return make_array(self.types[column], self.rows[column][self.deleted :]).cast(target)


@settings(max_examples=2 * settings().max_examples)
@given(st.data())
def test_T8_S1_D15_D19_no_statistics_of_any_writer_lose_a_row(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    columns = (choices.one_of(TABLE_TYPES), choices.one_of(TABLE_TYPES))
    files = [_draw_file(choices, columns) for _ in range(choices.number(1, 4))]
    schema = pa.schema([("x", columns[0]), ("s", pa.struct([("y", columns[1])]))])
    live = [[file.live(index, each) for index, each in enumerate(columns)] for file in files]
    x, y = (pa.concat_arrays([each[index] for each in live]) for index in (0, 1))
    subjects = [
        make_subject(path, data_type, _to_physical(values))
        for path, data_type, values in ((("x",), columns[0], x), (("s", "y"), columns[1], y))
    ]
    said = draw_predicates(choices, subjects)
    rows = pa.table({"x": x, "s": pa.StructArray.from_arrays([y], fields=list(schema.field("s").type))})
    counts = [len(each[0]) for each in live]
    for each, answers in zip(said, evaluate_predicates(rows, [each.sql for each in said]), strict=True):
        _check(each, answers, counts, files, schema)


def _check(
    said: OraclePredicate, answers: list[bool | None], counts: list[int], files: list[File], schema: pa.Schema
) -> None:
    predicate = normalise(bind(said.expr, schema))
    table = _make_table(schema)
    found = make_statistics_metadata(
        pa.array([file.stats for file in files], pa.string()), None, find_columns(predicate), table
    )
    pruned = prune(pa.record_batch(found), rewrite(predicate))
    remaining = iter(answers)
    verdicts = [[next(remaining) for _ in range(count)] for count in counts]
    kept = [rows for rows, is_kept in zip(verdicts, pruned.selection.to_pylist(), strict=True) if is_kept]
    for file, rows, is_kept in zip(files, verdicts, pruned.selection.to_pylist(), strict=True):
        assert is_kept or True not in rows, (said.sql, file)
    for index, rows in enumerate(kept):
        if all(matched[index].as_py() for matched in pruned.fully_matched):
            assert all(rows), (said.sql, files)


def _make_table(schema: pa.Schema) -> TableMetadata:
    x, y = schema.field("x").type, schema.field("s").type.field("y").type
    inner = {"type": "struct", "fields": [_make_column("y", y, 3)]}
    return table_metadata(
        _make_column("x", x, 1), field("s", inner, **mapping(2, "col-2")), delta__columnMapping__mode="name"
    )


def _make_column(name: str, data_type: pa.DataType, number: int) -> dict[str, Any]:
    changes = [{"fromType": field("", each)["type"]} for each in OLDER_TYPES.get(data_type, ())]
    return field(name, data_type, **mapping(number, f"col-{number}"), **{"delta.typeChanges": changes})


def _draw_file(choices: Choices, columns: tuple[pa.DataType, pa.DataType]) -> File:
    count = choices.one_of([1, 2, 3, 5])
    deleted = choices.one_of([0, 0, 1])
    file_types, rows = [], []
    for data_type in columns:
        older = choices.one_of((data_type, data_type, *OLDER_TYPES.get(data_type, ())))
        file_types.append(older)
        values = choices.some_of((*_list_values(older), *list_special_values(older) * 2), 1, 4)
        rows.append(draw_column(choices, values, count + deleted))
    writer = choices.one_of(WRITERS)
    stats = _write_statistics(choices, (file_types[0], file_types[1]), (rows[0], rows[1]), writer, is_tight=not deleted)
    return File((file_types[0], file_types[1]), (rows[0], rows[1]), deleted, writer, stats)


def _list_values(data_type: pa.DataType) -> tuple[Any, ...]:
    found = list_values(data_type)
    if types.is_text(data_type):
        return (*found, *LONG_TEXTS)
    if pa.types.is_timestamp(data_type):
        return (*found, 1_700_000_000_123_999, 1_700_000_000_124_000, -1_700_000_000_123_001)
    if pa.types.is_float32(data_type):
        return (*found, *make_array(data_type, [0.1, -0.1, 3.4]).to_pylist())
    return found


def _to_physical(values: pa.Array) -> list[Any]:
    if pa.types.is_date(values.type):
        return values.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    return (values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values).to_pylist()  # type: ignore[no-any-return]


def _write_statistics(
    choices: Choices,
    file_types: tuple[pa.DataType, pa.DataType],
    rows: tuple[list[Any], list[Any]],
    writer: str,
    *,
    is_tight: bool,
) -> str | None:
    if choices.flag(12):
        return choices.one_of([None, "", "{}", '{"numRecords":', "null", '{"numRecords":1}{"numRecords":2}'])
    texts_by_kind: dict[str, list[str]] = {"minValues": [], "maxValues": [], "nullCount": []}
    for column, data_type, values in zip((1, 3), file_types, rows, strict=True):
        counted: list[str | None] = [*format_bounds(values, data_type, writer), str(sum(v is None for v in values))]
        for kind, text in zip(texts_by_kind, counted, strict=True):
            if text is not None and not choices.flag(10):
                named = f'"col-{column}":{text}'
                texts_by_kind[kind].append(named if column == 1 else f'"col-2":{{{named}}}')
    parts = [f'"{kind}":{{{",".join(texts)}}}' for kind, texts in texts_by_kind.items()]
    if not is_tight:
        parts.append('"tightBounds":false')
    if is_tight is False or not choices.flag(10):
        parts.insert(0, f'"numRecords":{len(rows[0])}')
    return "{" + ",".join(parts) + "}"


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("data_type", [each for each in TABLE_TYPES if has_bounds_in_log(each)], ids=str)
def test_T8_S1_D19_every_value_is_within_the_bounds_of_any_writer(writer: str, data_type: pa.DataType) -> None:
    table = table_metadata(_make_column("x", data_type, 1), delta__columnMapping__mode="name")
    for older in (data_type, *OLDER_TYPES.get(data_type, ())):
        values = sorted((value for value in _list_values(older) if value == value), key=sort_key)
        # Alone, and beside the smallest and the largest of them.
        files = [[*beside, value] for beside in ([], values[:1], values[-1:]) for value in values]
        texts = [format_bounds(file, older, writer) for file in files]
        stats = [f'{{"minValues":{{"col-1":{low}}},"maxValues":{{"col-1":{high}}}}}' for low, high in texts]
        found = make_statistics_metadata(pa.array(stats), None, [Column(("x",), type=data_type)], table)
        for kind, choose, holds in (("lower", min, pc.less_equal), ("upper", max, pc.greater_equal)):
            expected = make_array(older, [choose(file, key=sort_key) for file in files]).cast(data_type)
            bounds, is_exact = found[f"{kind}:x"], pc.fill_null(found[f"{kind}_exact:x"], False)
            assert pc.all(holds(bounds, expected)).as_py()
            assert bounds.filter(is_exact).equals(expected.filter(is_exact))
            assert bounds.null_count < len(files) * 3 / 4

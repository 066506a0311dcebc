"""Tables of other writers, scanned with filters built from their own values: pruning must lose no row.

Every table of `shared/golden` is read once without pruning. Then filters are made of its values (equality, ranges, IN,
IS NULL, and the NOT of each). Each pruned scan must return exactly the rows for which the filter is TRUE, and `count()`
must return their number. A sample of filters, with a fixed seed, keeps the test short; TAMIS_FOREIGN_FILTERS=all takes
every column and many values.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tamis
from tamis import types
from tamis.errors import MissingFile
from tamis.expr.bind import bind
from tamis.expr.evaluate import Evaluator, to_physical_value
from tamis.expr.nodes import Call, Literal, Name, Unbound

EVERYTHING = os.environ.get("TAMIS_FOREIGN_FILTERS") == "all"
COLUMNS, FILTERS = (10_000, 10_000) if EVERYTHING else (3, 3)
"""The number of columns for each table, and of filters for each column."""

MAX_ROWS = 100_000

NOT_TABLES = (
    "deltalog-state-reconstruction",  # incomplete logs, which must be refused
    "no-delta-log-folder",
)


WRONG_STATISTICS = {"delta-unlabelled/parsed-stats": {"ts_col"}}
"""Columns with invented bounds and NULL counts in the log: no data file has the column."""


def get_golden_folder() -> Path:
    return Path(os.environ.get("TAMIS_GOLDEN") or Path(__file__).parents[3] / "shared" / "golden")


def find_foreign_tables() -> Iterator[Path]:
    """Yield the path of every table and file."""
    root = get_golden_folder()
    logs = [*root.glob("delta/**/_delta_log"), *root.glob("delta-unlabelled/**/_delta_log")]
    metadata = root.glob("iceberg/**/metadata")
    found = {each.parent for each in (*logs, *metadata)} | set(root.glob("parquet/*.parquet"))
    yield from sorted(each for each in found if not any(part in str(each) for part in NOT_TABLES))


def make_label(path: Path) -> str:
    return str(path.relative_to(get_golden_folder()))


TABLES = list(find_foreign_tables())


def format_rows(rows: pa.Table) -> list[str]:
    """Return the rows as sorted texts, so that two tables can be compared as multisets."""
    (values,) = rows.columns
    if pa.types.is_temporal(values.type) and not pa.types.is_interval(values.type):
        # Some are out of range for Python's datetime.
        values = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return sorted(map(repr, values.to_pylist()))


def list_leaves(schema: pa.Schema) -> list[tuple[tuple[str, ...], pa.DataType]]:
    """Return the columns that can be compared, also those in structs."""
    found: list[tuple[tuple[str, ...], pa.DataType]] = []
    waiting = [((each.name,), each.type) for each in schema]
    while waiting:
        path, data_type = waiting.pop(0)
        if pa.types.is_struct(data_type):
            waiting += [((*path, each.name), each.type) for each in data_type]
        elif types.is_ordered(data_type):
            found.append((path, data_type))
    return found


def get_values(rows: pa.Table, path: tuple[str, ...]) -> pa.Array:
    found = rows[path[0]].combine_chunks()
    found = pc.struct_field(found, list(path[1:])) if len(path) > 1 else found
    return found.dictionary_decode() if pa.types.is_dictionary(found.type) else found


def make_literal(value: pa.Scalar) -> Literal:
    return Literal(to_physical_value(value), value.type)


def make_filters(rows: pa.Table, path: tuple[str, ...], chance: random.Random) -> list[Unbound]:
    """Return predicates about a column, made of its values."""
    column = Name(path, exact=True)
    known = get_values(rows, path).drop_null()
    found: list[Unbound] = [Call("is_null", (column,)), Call("is_not_null", (column,))]
    some = [known[chance.randrange(len(known))] for _ in range(8 if EVERYTHING else 2)] if len(known) else []
    for value in some:
        made = make_literal(value)
        found += [Call(each, (column, made)) for each in ("=", "<>", "<", "<=", ">", ">=", "<=>")]
        found.append(Call("in", (column, made, *(make_literal(each) for each in some))))
    if len(some) > 1:
        found.append(
            Call("and", (Call(">=", (column, make_literal(some[0]))), Call("<=", (column, make_literal(some[1])))))
        )
    found += [Call("not", (each,)) for each in found]
    return chance.sample(found, min(FILTERS, len(found)))


def filter_rows(predicate: Unbound, rows: pa.Table) -> pa.Table:
    """Return the rows for which a predicate is TRUE, without pruning."""
    evaluate = Evaluator(bind(predicate, rows.schema))
    masks = [evaluate(batch).fill_null(False) for batch in rows.to_batches()]
    return rows.filter(pa.chunked_array(masks, pa.bool_()))


def is_filterable(rows: pa.Table, path: tuple[str, ...]) -> bool:
    """Return whether filters can name all values: texts must be valid UTF-8."""
    try:
        get_values(rows, path).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


@pytest.mark.skipif(not TABLES, reason="no golden tables: set TAMIS_GOLDEN to the folder of tables that others wrote")
@pytest.mark.parametrize("table_path", TABLES, ids=make_label)
@pytest.mark.one_in(4)
def test_filters_made_of_a_foreign_tables_own_values_find_what_an_unpruned_scan_finds(table_path: Path) -> None:
    table = tamis.open(table_path)
    chance = random.Random(make_label(table_path))
    try:
        rows = table.scan(levels=()).to_arrow()
    except MissingFile as error:
        pytest.skip(f"the folder has the log of this table and not its data: {error}")
    assert table.scan().count() == rows.num_rows
    wrong_statistics = WRONG_STATISTICS.get(make_label(table_path), set())
    columns = [
        each for each, _ in list_leaves(rows.schema) if is_filterable(rows, each) and each[0] not in wrong_statistics
    ]
    wrong = []
    for path in chance.sample(columns, min(COLUMNS, len(columns))):
        for predicate in make_filters(rows.slice(0, MAX_ROWS), path, chance):
            # The tested column alone identifies the rows.
            pruned = table.scan(predicate, columns=[path[0]])
            found, expected = pruned.to_arrow(), filter_rows(predicate, rows).select([path[0]])
            if format_rows(found) != format_rows(expected) or pruned.count() != expected.num_rows:
                wrong.append((predicate, found.num_rows, pruned.count(), expected.num_rows))
    assert not wrong

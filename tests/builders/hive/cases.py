"""Random Hive-style tables of several small files, and predicates about them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from builders.hive.tables import write_hive_table
from builders.values.by_type import make_array
from builders.values.choices import Choices
from builders.values.predicates import OraclePredicate, draw_predicate
from builders.values.random_rows import draw_column, draw_schema, draw_values, make_subject
from tamis.expr.evaluate import to_physical_value

PARTITIONING = {"region": "string", "day": "int"}


def draw_hive_case(choices: Choices, root: Path, predicates: int) -> list[OraclePredicate]:
    """Write a table, partitioned by the columns of PARTITIONING, and return predicates about it."""
    schema = draw_schema(choices)
    values = {field.name: draw_values(choices, field.type) for field in schema}
    parts: list[tuple[dict[str, str | None], pa.Table]] = []
    for _ in range(choices.number(1, 6)):
        count = choices.number(0, 8)
        names = {"region": choices.one_of(["eu", "us", "a=b", None]), "day": choices.one_of(["1", "2", "10", None])}
        columns = {
            field.name: make_array(field.type, draw_column(choices, values[field.name], count)) for field in schema
        }
        parts.append((names, pa.table(columns)))
    write_hive_table(
        root,
        parts,
        row_group_size=choices.number(1, 6),
        write_statistics=choices.flag(),
        write_page_index=choices.flag(),
        max_rows_per_page=choices.one_of([1, 2, 1000]),
        write_batch_size=1,
    )
    rows = pa.concat_tables([part for _, part in parts])
    subjects = [
        make_subject((field.name,), field.type, map(to_physical_value, rows[field.name].combine_chunks()))
        for field in schema
    ]
    subjects.append(make_subject(("region",), pa.string(), ["eu", "us"]))
    subjects.append(make_subject(("day",), pa.int32(), [1, 2]))
    return [draw_predicate(choices, subjects) for _ in range(predicates)]

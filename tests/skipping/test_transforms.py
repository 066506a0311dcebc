"""Properties of all partition transforms of both formats: no matching row is in a partition that is dropped, and a
partition that is fully matched has matching rows only."""

from __future__ import annotations

from collections import defaultdict
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from builders.delta.generated_columns import GENERATED, PARTITIONS, SCHEMA, SOURCES, VALUES, ZONES, predicates
from builders.iceberg.values import apply_transform
from tamis.expr.evaluate import Evaluator, to_physical_value
from tamis.expr.nodes import Column
from tamis.formats.delta.generated_columns import derive_partition_predicates
from tamis.formats.delta.planning.partition_values import make_parsed_batch, rewrite_conjunct
from tamis.formats.iceberg.partitioning.partition_bounds import compute_partition_bounds, project_conjuncts
from tamis.formats.iceberg.partitioning.specs import make_specs
from tamis.skipping.metadata import ROW_COUNT
from tamis.skipping.predicate import Predicate, make_predicate
from tamis.skipping.prune import Pruned, prune
from tamis.skipping.rewrite import rewrite

TRANSFORMS = {
    "ts": ["identity", "year", "month", "day", "hour", "bucket[3]", "void", "zorder[2]"],
    "ntz": ["identity", "year", "month", "day", "hour", "bucket[3]"],
    "d": ["identity", "year", "month", "day", "bucket[3]", "void"],
    "s": ["identity", "truncate[1]", "truncate[2]", "truncate[3]", "truncate[9]", "bucket[3]", "zorder[2]"],
    "i": ["identity", "truncate[1]", "truncate[3]", "truncate[1000]", "bucket[3]", "void"],
}
KINDS = {"ts": "timestamptz", "ntz": "timestamp", "d": "date", "s": "string", "i": "int"}
DATETIMES = st.datetimes(datetime(102, 1, 1), datetime(9998, 12, 30))
RANDOM: dict[str, st.SearchStrategy[Any]] = {
    "ts": DATETIMES,
    "ntz": DATETIMES,
    "d": st.dates(date(102, 1, 1), date(9998, 12, 30)),
    "s": st.text(st.sampled_from("abcäz0\U0010ffff"), max_size=5),
    "i": st.integers(-(2**31), 2**31 - 1),
}


def make_rows(source: str, data: st.DataObject) -> list[Any]:
    return [*VALUES[source], *data.draw(st.lists(RANDOM[source], max_size=5)), None]


def check_units(predicate: Predicate, source: str, units: list[list[Any]], pruned: Pruned, about: object) -> None:
    """Check what was concluded for units, each with the values of its rows."""
    left = np.asarray(pruned.selection)
    matched = np.zeros(len(units), bool)
    matched[left] = pruned.matched[:, : len(predicate.conjuncts)].all(axis=1)
    for rows, is_kept, is_matched in zip(units, left.tolist(), matched.tolist(), strict=True):
        batch = pa.record_batch(
            {source: pa.array(rows, SOURCES[source]), "other": pa.array([1] * len(rows), pa.int64())}
        )
        is_true = Evaluator(predicate.bound)(batch)
        if not is_kept:
            assert not is_true.true_count, (about, predicate.text, "dropped", rows)
        if is_matched:
            assert is_true.true_count == len(rows), (about, predicate.text, "fully matched", rows)


@given(data=st.data(), source=st.sampled_from(list(VALUES)))
def test_T6_I2_I11_partitions_of_iceberg_transforms(data: st.DataObject, source: str) -> None:
    chosen = data.draw(st.lists(st.sampled_from(TRANSFORMS[source]), min_size=1, max_size=2, unique=True))
    predicate = make_predicate(data.draw(predicates(source)), SCHEMA, "t")
    physical = pa.array(make_rows(source, data), SOURCES[source])
    groups: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for value in physical:
        plain = to_physical_value(value)
        key = tuple(None if plain is None else apply_transform(each, KINDS[source], plain) for each in chosen)
        groups[tuple(map(_wrap, key)) if source == "i" else key].append(value.as_py())
    column = Column((source,), type=SOURCES[source])
    fields = [
        {"source_id": 1, "field_id": 1000 + number, "name": f"p{number}", "transform": each}
        for number, each in enumerate(chosen)
    ]
    (spec,) = make_specs([{"spec_id": 0, "fields": fields}], {1: column}).values()
    values = {
        field.field_id: _make_values([key[number] for key in groups], field.result_type)
        for number, field in enumerate(spec.fields)
        if field in spec.prunable_fields
    }
    counts = pa.array([len(rows) for rows in groups.values()], pa.int64())
    units = pa.record_batch({ROW_COUNT.name: counts, **compute_partition_bounds(spec, values, counts)})
    pruned = prune(units, project_conjuncts(predicate, spec))
    check_units(predicate, source, list(groups.values()), pruned, chosen)


def _wrap(value: Any) -> Any:
    """Return a truncated int as 32 bits: the smallest ones overflow."""
    return (value + 2**31) % 2**32 - 2**31 if isinstance(value, int) else value


def _make_values(values: list[Any], data_type: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(data_type):
        return pa.array(values, pa.int32() if pa.types.is_date32(data_type) else pa.int64()).view(data_type)
    return pa.array(values, data_type)


@given(data=st.data(), source=st.sampled_from(list(VALUES)))
def test_D18_partitions_of_delta_generated_columns(data: st.DataObject, source: str) -> None:
    own = [each for each in GENERATED if each.source == source]
    chosen = {each.column: each for each in data.draw(st.lists(st.sampled_from(own), min_size=1, max_size=4))}
    predicate = make_predicate(data.draw(predicates(source)), SCHEMA, "t", list(chosen))
    zones = data.draw(st.lists(st.sampled_from(list(ZONES.values())), min_size=1, max_size=2))
    groups: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for value in make_rows(source, data):
        for zone in zones:
            made = [None if value is None else each.make(value, zone) for each in chosen.values()]
            # An empty string is NULL as a partition value.
            groups[tuple(None if each == "" else each for each in made)].append(value)
    sql = {name: each.sql for name, each in chosen.items()}
    implied = derive_partition_predicates(predicate.expr, sql, SCHEMA, list(chosen))
    schema = pa.schema([(name, PARTITIONS[name]) for name in chosen])
    conjuncts = (*predicate.conjuncts, *(each for one in implied for each in rewrite(one)))
    table = pa.table(dict(zip(schema.names, map(list, zip(*groups, strict=True)), strict=True)), schema)
    pruned = prune(make_parsed_batch(table), [rewrite_conjunct(each, schema, parsed=True) for each in conjuncts])
    check_units(predicate, source, list(groups.values()), pruned, sql)

"""The bounds of source columns that follow from partition values: see `tamis.skipping.transforms`.

Units are files, with one partition tuple each, or manifests, with a range of values for each partition field. If
several fields have the same source column, or statistics bound it too, all bounds hold, and the tightest are used.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column
from tamis.formats.iceberg.manifests.single_values import decode_values
from tamis.formats.iceberg.partitioning.specs import PartitionField, Spec
from tamis.formats.source import to_single_array
from tamis.skipping.metadata import ROW_COUNT, drop_inverted_bounds, make_constant_bounds, metadata_name
from tamis.skipping.predicate import Predicate
from tamis.skipping.rewrite import Conjunct, rewrite
from tamis.skipping.transforms import project_answers

Metadata = dict[str, pa.Array]


def compute_partition_bounds(
    spec: Spec, values: Mapping[int, pa.Array], row_count: pa.Array, columns: Collection[Column] | None = None
) -> Metadata:
    """Return the bounds of `columns` (None: all) in files, from typed partition values by field id.

    A field without values bounds nothing.
    """
    found: Metadata = {}
    for field in spec.prunable_fields:
        own = values.get(field.field_id)
        if own is None:
            continue
        assert field.source is not None
        assert field.source.type is not None
        if columns is not None and not any(_are_related(field.source.path, column.path) for column in columns):
            continue
        nulls = pc.if_else(own.is_null(), row_count, pa.scalar(0, types.LONG))
        if field.transform.kind == "identity":
            bounds = make_constant_bounds(field.source, own, row_count)
        else:
            lower, upper = (bound(own, field.source.type) for bound in (field.transform.lower, field.transform.upper))
            bounds = _make_bounds(field.source, lower, upper, nulls)
        found = tighten_bounds(found, bounds, (field.source,))
        found |= _make_bounds(field.column, own, own, nulls)
    return found


def _are_related(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two columns are the same, or one contains the other."""
    return all(name == its for name, its in zip(one, other, strict=False))


def compute_summary_bounds(spec: Spec, summaries: pa.ListArray) -> Metadata:
    """Return the bounds of columns in manifests, from their field summaries. A manifest counts as one row.

    Summaries with another number of fields than the spec are ignored: the manifest is read, and its tuples are checked.
    """
    rows = len(summaries)
    found: Metadata = {ROW_COUNT.name: pa.repeat(pa.scalar(1, types.LONG), rows)}
    offsets = np.asarray(summaries.offsets)[:-1]
    has_all = pc.equal(pc.list_value_length(summaries), len(spec.fields))
    is_known = np.asarray(pc.fill_null(has_all, False))
    for position, field in enumerate(spec.fields):
        if field not in spec.prunable_fields:
            continue
        indices = pa.array(offsets.astype(np.int64) + position, mask=~is_known)
        own = summaries.values.take(indices)
        found = tighten_bounds(found, _compute_field_bounds(field, own), (field.source, field.column))
    return found


def _compute_field_bounds(field: PartitionField, own: pa.StructArray) -> Metadata:
    assert field.source is not None
    assert field.source.type is not None
    assert field.result_type is not None
    has_null, has_nan, low, high = (pc.struct_field(own, name) for name in
                                    ("contains_null", "contains_nan", "lower_bound", "upper_bound"))  # fmt: skip
    # Without bounds there are no values besides NULL and NaN.
    is_empty = pc.and_(own.is_valid(), pc.and_(low.is_null(), high.is_null()))
    lower, upper = decode_values(low, field.result_type), decode_values(high, field.result_type)
    is_float = pa.types.is_floating(field.result_type)
    if is_float:
        lower, upper = normalize_float_bounds(lower, upper)
    only_null = pc.and_kleene(pc.and_(is_empty, pc.fill_null(has_null, False)),
                              pc.invert(has_nan) if is_float else pa.scalar(True))  # fmt: skip
    unknown = pa.scalar(None, types.LONG)
    nulls = pc.case_when(
        pc.make_struct(pc.fill_null(pc.invert(has_null), False), pc.fill_null(only_null, False)),
        pa.scalar(0, types.LONG),
        pa.scalar(1, types.LONG),
        unknown,
    )
    bounds = _make_bounds(
        field.source,
        field.transform.lower(lower, field.source.type, upper),
        field.transform.upper(upper, field.source.type),
        nulls,
    )
    if is_float:
        none = pc.fill_null(pc.invert(has_nan), False)
        bounds[metadata_name("nan_count", field.source.path)] = pc.if_else(none, pa.scalar(0, types.LONG), unknown)
    return bounds | _make_bounds(field.column, lower, upper, nulls)


def _make_bounds(column: Column, lower: pa.Array | None, upper: pa.Array | None, nulls: pa.Array) -> Metadata:
    found = {metadata_name("null_count", column.path): nulls}
    if lower is not None:
        found[metadata_name("lower", column.path)] = lower
    if upper is not None:
        found[metadata_name("upper", column.path)] = upper
    return found


def normalize_float_bounds(lower: pa.Array, upper: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return usable bounds of floats: NaN is not a bound, and a zero may stand for either zero."""
    is_nan = pc.or_kleene(pc.is_nan(lower), pc.is_nan(upper))
    none = pa.scalar(None, lower.type)
    lower, upper = (pc.if_else(pc.fill_null(is_nan, False), none, each) for each in (lower, upper))
    return (
        pc.if_else(pc.equal(lower, 0.0), pa.scalar(-0.0, lower.type), lower),
        pc.if_else(pc.equal(upper, 0.0), pa.scalar(0.0, lower.type), upper),
    )


def decode_bounds(files: pa.Table, field_id: int, data_type: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Return the bounds of a column, given by field id, from the statistics of files."""
    low, high = (
        decode_values(to_single_array(files[name]), data_type)
        if (name := f"{kind}:{field_id}") in files.column_names
        else pa.nulls(len(files), data_type)
        for kind in ("lower", "upper")
    )
    if pa.types.is_floating(data_type):
        low, high = normalize_float_bounds(low, high)
    return drop_inverted_bounds(low, high)


def read_counts(files: pa.Table, kind: str, field_id: int) -> pa.Array:
    """Return the counts of a column, given by field id, from the statistics of files."""
    name = f"{kind}:{field_id}"
    is_known = name in files.column_names
    return to_single_array(files[name]).cast(types.LONG) if is_known else pa.nulls(len(files), types.LONG)


def tighten_bounds(one: Metadata, other: Metadata, columns: tuple[Column | None, ...]) -> Metadata:
    """Intersect two sets of bounds: the larger lower bound, the smaller upper bound, and the first known counts.

    If the two contradict each other, one of them is wrong, so neither is used.
    """
    found = one | other
    for column in columns:
        if column is None:
            continue
        for kind in ("null_count", "nan_count"):
            name = metadata_name(kind, column.path)
            if name in one and name in other:
                found[name] = pc.coalesce(one[name], other[name])
        low, high = metadata_name("lower", column.path), metadata_name("upper", column.path)
        if low in one and low in other:
            found[low] = _choose(one[low], other[low], pc.greater)
        if high in one and high in other:
            found[high] = _choose(one[high], other[high], pc.less)
        if low in found and high in found:
            found[low], found[high] = drop_inverted_bounds(found[low], found[high])
    return found


def _choose(one: pa.Array, other: pa.Array, beats: object) -> pa.Array:
    assert callable(beats)
    return pc.if_else(pc.fill_null(beats(other, one), False), other, pc.coalesce(one, other))


def project_conjuncts(predicate: Predicate, spec: Spec) -> tuple[Conjunct, ...]:
    """Return the conjuncts of a predicate, in order, refined by the partition values of a spec."""
    paths = {column.path for column in predicate.columns}
    found = [
        field.transform.derive(field.column, field.source)
        for field in spec.prunable_fields
        if field.source is not None and field.source.path in paths
    ]
    derived = [each for each in found if each is not None]
    if not derived:
        return predicate.conjuncts
    return rewrite(predicate.expr, lambda node, answers: project_answers(node, answers, derived))

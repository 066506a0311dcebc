"""Vectorised evaluation of a partition filter over partition values.

| the value is…    | eq, in      | neq   | gt, gte, lt, lte                     | is_null | is_not_null |
|------------------|-------------|-------|--------------------------------------|---------|-------------|
| missing or null  | false       | true  | false                                | true    | false       |
| present          | text equals | not eq| as text, or as the type if both parse| false   | true        |

The result is never null, so that AND, OR and NOT are two-valued.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import TypeMismatch
from tamis.expr.map_lookup import look_up_key
from tamis.expr.partition_text import parse_double, parse_long, partition_text

if TYPE_CHECKING:
    from tamis.expr.partition_filter import PartitionFilter

PartitionValues: TypeAlias = pa.MapArray | pa.StructArray | pa.ChunkedArray | pa.RecordBatch | pa.Table

_COMPARE = {"gt": pc.greater, "gte": pc.greater_equal, "lt": pc.less, "lte": pc.less_equal}


def evaluate(partition_filter: PartitionFilter, values: PartitionValues) -> pa.BooleanArray:
    """Return one boolean for each row, never null, for maps, structs, record batches and tables, chunked or not."""
    masks = [_evaluate_batch(partition_filter, _Columns(batch)) for batch in _to_batches(values)]
    return pa.concat_arrays(masks) if masks else pa.array([], types.BOOLEAN)


def _to_batches(values: PartitionValues) -> list[pa.MapArray | pa.StructArray | pa.RecordBatch]:
    match values:
        case pa.ChunkedArray():
            batches = values.chunks
        case pa.Table():
            # A table without columns has rows but no batches.
            batches = values.to_batches() if values.num_columns else [values.to_struct_array().combine_chunks()]
        case _:
            batches = [values]
    for batch in batches:
        if not isinstance(batch, pa.MapArray | pa.StructArray | pa.RecordBatch):
            found = getattr(batch, "type", type(batch).__name__)
            raise TypeMismatch(
                f"expected partition values in a map, a struct, a record batch or a table, found {found}"
            )
    return list(batches)


class _Columns:
    """The partition values of one batch by column; each column is looked up, formatted and parsed once."""

    def __init__(self, batch: pa.MapArray | pa.StructArray | pa.RecordBatch) -> None:
        self._batch = batch
        self.length = batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)
        self._texts: dict[str, pa.Array | None] = {}
        self._numbers: dict[tuple[str, str], pa.Array] = {}

    def texts(self, column: str) -> pa.Array | None:
        """Return the texts of a column, null where there is no value; None if no row has the column."""
        if column not in self._texts:
            values = self._values(column)
            self._texts[column] = None if values is None else partition_text(values, column)
        return self._texts[column]

    def numbers(self, column: str, type_name: str) -> pa.Array:
        """Return the texts of a column as numbers, null where a text is not a number."""
        key = (column, type_name)
        if key not in self._numbers:
            self._numbers[key] = _parse(self.texts(column), type_name)
        return self._numbers[key]

    def _values(self, column: str) -> pa.Array | None:
        match self._batch:
            case pa.MapArray():
                return look_up_key(self._batch, column)
            case pa.StructArray():
                indices = self._batch.type.get_all_field_indices(column)
                # Unlike `field`, `struct_field` returns null for the fields of a null struct.
                return pc.struct_field(self._batch, [indices[-1]]) if indices else None
            case _:
                indices = self._batch.schema.get_all_field_indices(column)
                return self._batch.column(indices[-1]) if indices else None


class _Frame:
    """A filter under evaluation: its remaining inner filters, and the mask of those that are done."""

    def __init__(self, partition_filter: PartitionFilter, columns: _Columns) -> None:
        self.op = partition_filter.op
        self.remaining: Iterator[PartitionFilter] = iter(partition_filter.filters)
        self.mask: pa.BooleanArray | None = None
        match self.op:
            case "and" | "or":
                if not partition_filter.filters:
                    self.mask = pa.repeat(pa.scalar(self.op == "and"), columns.length)
            case "not":
                pass
            case _:
                self.mask = _evaluate_leaf(partition_filter, columns)

    def absorb(self, mask: pa.BooleanArray) -> None:
        if self.op == "not":
            self.mask = pc.invert(mask)
        elif self.mask is None:
            self.mask = mask
        else:
            self.mask = pc.and_(self.mask, mask) if self.op == "and" else pc.or_(self.mask, mask)


def _evaluate_batch(partition_filter: PartitionFilter, columns: _Columns) -> pa.BooleanArray:
    """Evaluate depth first with an explicit stack; masks are combined at once, so that a wide filter holds few."""
    frames = [_Frame(partition_filter, columns)]
    while True:
        frame = frames[-1]
        inner = next(frame.remaining, None)
        if inner is not None:
            frames.append(_Frame(inner, columns))
            continue
        frames.pop()
        if not frames:
            return frame.mask
        frames[-1].absorb(frame.mask)


def _evaluate_leaf(leaf: PartitionFilter, columns: _Columns) -> pa.BooleanArray:
    texts = columns.texts(leaf.column)
    if texts is None:
        return pa.repeat(pa.scalar(leaf.op in ("neq", "is_null")), columns.length)
    match leaf.op:
        case "is_null":
            return pc.is_null(texts)
        case "is_not_null":
            return pc.is_valid(texts)
        case "eq":
            return pc.fill_null(pc.equal(texts, pa.scalar(leaf.value, texts.type)), False)
        case "neq":
            return pc.fill_null(pc.not_equal(texts, pa.scalar(leaf.value, texts.type)), True)
        case "in":
            return pc.is_in(texts, value_set=pa.array(leaf.values, texts.type))
        case _:
            return pc.fill_null(_compare(leaf, texts, columns), False)


def _compare(leaf: PartitionFilter, texts: pa.Array, columns: _Columns) -> pa.BooleanArray:
    as_text = _COMPARE[leaf.op](texts, pa.scalar(leaf.value, texts.type))
    if leaf.type is None:
        return as_text
    bound = _parse(pa.array([leaf.value]), leaf.type)[0]
    if not bound.is_valid:
        return as_text
    numbers = columns.numbers(leaf.column, leaf.type)
    return pc.if_else(pc.is_valid(numbers), _compare_numbers(leaf.op, numbers, bound), as_text)


def _parse(texts: pa.Array, type_name: str) -> pa.Array:
    return parse_long(texts) if type_name == "long" else parse_double(texts)


def _compare_numbers(op: str, numbers: pa.Array, bound: pa.Scalar) -> pa.BooleanArray:
    """Compare with a bound, where NaN is larger than every number and equal to itself."""
    if pa.types.is_integer(numbers.type):
        return _COMPARE[op](numbers, bound)
    is_nan = pc.is_nan(numbers)
    if pc.is_nan(bound).as_py():
        # Everything but NaN is smaller than the bound, and NaN equals it.
        bound_is_nan = {"gt": False, "gte": is_nan, "lt": pc.invert(is_nan), "lte": True}[op]
        return pc.if_else(pc.is_valid(numbers), bound_is_nan, False)
    # In Arrow every comparison with NaN is false, which is correct for `lt` and `lte`.
    compared = _COMPARE[op](numbers, bound)
    return pc.or_(compared, is_nan) if op in ("gt", "gte") else compared

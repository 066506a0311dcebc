"""The bounds of source columns that follow from partition values: see `transforms`.

Units are files, with one partition tuple each, or manifests, with a range of values for each partition field. If
several fields have the same source column, or statistics bound it too, all bounds hold, and the tightest are used.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.functions.kernels import to_arrow_array
from tamis.expr.nodes import NULL, Call, Column, Expr, Literal
from tamis.expr.patterns import DEFAULT_ESCAPE, parse_like
from tamis.formats.iceberg.manifests.single_values import decode_values
from tamis.formats.iceberg.partitioning.specs import PartitionField, Spec
from tamis.skipping.answers import UNKNOWN, Answers, all_of
from tamis.skipping.atoms import answer_call
from tamis.skipping.metadata import ROW_COUNT, make_constant_bounds, metadata_name
from tamis.skipping.predicate import Predicate
from tamis.skipping.ranges import compute_range
from tamis.skipping.rewrite import Conjunct, rewrite
from tamis.types import UNITS_PER_SECOND, is_bytes, is_text

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
        if field.transform.kind == "identity":
            bounds = make_constant_bounds(field.source, own, row_count)
        else:
            nulls = pc.if_else(own.is_null(), row_count, pa.scalar(0, types.LONG))
            bounds = _make_bounds(
                field.source,
                field.transform.lower(own, field.source.type),
                field.transform.upper(own, field.source.type),
                nulls,
            )
        found = tighten_bounds(found, bounds, (field.source,))
        found |= _make_bounds(field.column, own, own, pc.if_else(own.is_null(), row_count, pa.scalar(0, types.LONG)))
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


def drop_inverted_bounds(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Replace bounds by null where the lower bound is above the upper, or the type has no order."""
    if not types.is_ordered(low.type):
        return pa.nulls(len(low), low.type), pa.nulls(len(high), high.type)
    is_wrong = pc.fill_null(pc.greater(low, high), False)
    if not pc.any(is_wrong, min_count=0).as_py():
        return low, high
    none = pa.scalar(None, low.type)
    return pc.if_else(is_wrong, none, low), pc.if_else(is_wrong, none, high)


def _choose(one: pa.Array, other: pa.Array, beats: object) -> pa.Array:
    assert callable(beats)
    return pc.if_else(pc.fill_null(beats(other, one), False), other, pc.coalesce(one, other))


# --- The inclusive projection of predicates onto partition values, where bounds of the source column are not enough
#
# - `x = 5` is TRUE only in the bucket of 5, and `x IN (5, 6)` only in the buckets of 5 and 6. The projection says
#   nothing
#   more, because a bucket holds other values too.
# - The first characters of a string decide whether it starts with a prefix. So if the truncation width is at least the
#   length of the prefix, the partition value decides, and `NOT LIKE 'ab%'` skips a file whose strings all start with
#   `ab`.
# - Truncation keeps the order of strings and bytes: x >= 'ac' only if truncated x is not below truncated 'ac'. As a
#   bound
#   of x, the truncated value 'ab' extends to 'ac' itself, because there is no last string before 'ac'; so the bound
#   alone
#   would not rule it out.
#
# All of these refine the answers for a node of the predicate. They hold in addition to the answers from bounds, and are
# combined with them through AND, OR and NOT.


def project_conjuncts(predicate: Predicate, spec: Spec) -> tuple[Conjunct, ...]:
    """Return the conjuncts of a predicate, in order, refined by the partition values of a spec."""
    fields = [field for field in spec.prunable_fields if _is_projectable(field, predicate)]
    if not fields:
        return predicate.conjuncts

    def refine(node: Expr, answers: Answers) -> Answers:
        for field in fields:
            more = _project_call(node, field)
            if more is not None:
                answers = Answers(
                    _combine(answers.may_be_true, more.may_be_true),
                    _combine(answers.may_be_false, more.may_be_false),
                    _combine(answers.may_be_null, more.may_be_null),
                )
        return answers

    return rewrite(predicate.expr, refine)


def _combine(one: Expr, other: Expr) -> Expr:
    return one if other == NULL else all_of(one, other)


def _is_projectable(field: PartitionField, predicate: Predicate) -> bool:
    if field.source is None or all(column.path != field.source.path for column in predicate.columns):
        return False
    is_truncated = field.transform.kind == "truncate" and (is_text(field.source.type) or is_bytes(field.source.type))
    return is_truncated or field.transform.kind == "bucket"


def _project_call(node: Expr, field: PartitionField) -> Answers | None:
    match node:
        case Call(function, (Column(path=path), *_)) if field.source is not None and path == field.source.path:
            if field.transform.kind == "bucket":
                return _project_bucket(node, field)
            if function in ("startswith", "like"):
                return _project_prefix(node, field)
            return _project_truncation(node, field)
        case _:
            return None


def _list_compared_values(call: Call) -> list[Literal] | None:
    """Return the literals, one of them equal to the column if the call is TRUE; None for other calls."""
    match call:
        case Call("=" | "<=>", (_, Literal() as item)):
            items: Sequence[Expr] = (item,)
        case Call("in", (_, *rest)):
            items = rest
        case _:
            return None
    values = [item for item in items if isinstance(item, Literal) and not item.is_null]
    has_null = any(isinstance(item, Literal) and item.is_null for item in items)
    if len(values) + has_null < len(items) or not values or (call.function == "<=>" and has_null):
        return None
    return values


def _project_bucket(call: Call, field: PartitionField) -> Answers | None:
    values = _list_compared_values(call)
    if values is None:
        return None
    source = field.source.type if field.source is not None else None
    try:
        buckets = compute_buckets(to_arrow_array(tuple(values)).cast(source), field.transform.width)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None  # the column cannot have this value
    if buckets is None:
        return None
    literals = tuple(Literal(bucket, pa.int32()) for bucket in sorted(set(buckets.tolist())))
    found = _answer_call(Call("in", (field.column, *literals)))
    return Answers(found.may_be_true, UNKNOWN.may_be_false, UNKNOWN.may_be_null)


def _project_truncation(call: Call, field: PartitionField) -> Answers | None:
    match call:
        case Call(">" | ">=", (_, Literal(value=str() | bytes() as value))):
            found = _answer_call(Call(">=", (field.column, _truncate(value, field))))
        case _:
            values = _list_compared_values(call)
            if values is None or not all(isinstance(each.value, str | bytes) for each in values):
                return None
            literals = dict.fromkeys(_truncate(each.value, field) for each in values)
            found = _answer_call(Call("in", (field.column, *literals)))
    return Answers(found.may_be_true, UNKNOWN.may_be_false, UNKNOWN.may_be_null)


def _truncate(value: str | bytes, field: PartitionField) -> Literal:
    return Literal(value[: field.transform.width], field.column.type)


def _project_prefix(call: Call, field: PartitionField) -> Answers | None:
    match call:
        case Call("startswith", (_, Literal(value=str() as prefix))):
            pass
        case Call("like", (_, Literal(value=str() as text), *escape)):
            escape_character = escape[0].value if escape and isinstance(escape[0], Literal) else DEFAULT_ESCAPE
            pattern = parse_like(text, escape_character)
            if not pattern.is_prefix or pattern.is_exact:
                return None
            prefix = pattern.prefix
        case _:
            return None
    if len(prefix) > field.transform.width:
        return None
    return _answer_call(Call(call.function, (field.column, *call.args[1:])))


def _answer_call(call: Call) -> Answers:
    known = tuple((UNKNOWN, compute_range(arg, ())) for arg in call.args)
    return answer_call(call, known)[0]


# --- The 32-bit Murmur3 hash of Iceberg's bucket transform, vectorized over values ------------------------------------
#
# The hash consumes four bytes at a time, so all values are processed together: the first four bytes of all values, then
# the next four of those that are longer.

Hashes = npt.NDArray[np.uint32]

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_STEP = np.uint32(0xE6546B64)
_MICROSECONDS = UNITS_PER_SECOND["us"]


def compute_buckets(values: pa.Array, count: int) -> npt.NDArray[np.int32] | None:
    """Return the bucket of each value; None for types without buckets. Values must not be null."""
    hashes = _hash_values(values)
    return None if hashes is None else ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)


def _hash_values(values: pa.Array) -> Hashes | None:
    data_type = values.type
    if pa.types.is_timestamp(data_type) or pa.types.is_time64(data_type):
        counts = values.view(types.LONG).to_numpy()
        # Nanoseconds are truncated to microseconds before hashing.
        units = UNITS_PER_SECOND[data_type.unit]
        return _hash_longs(np.floor_divide(counts, units // _MICROSECONDS)) if units >= _MICROSECONDS else None
    if pa.types.is_date32(data_type):
        return _hash_longs(values.view(pa.int32()).to_numpy().astype(np.int64))
    if pa.types.is_signed_integer(data_type):
        return _hash_longs(values.to_numpy().astype(np.int64))
    if pa.types.is_decimal128(data_type):
        return hash_bytes(_encode_decimals(values))
    if types.is_text(data_type) or types.is_bytes(data_type):
        return hash_bytes(values.cast(types.BINARY))
    return None


def _hash_longs(values: npt.NDArray[np.int64]) -> Hashes:
    bits = values.astype(np.int64).view(np.uint64)
    low, high = (bits & np.uint64(0xFFFFFFFF)).astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)
    found = _mix(_mix(np.zeros(len(bits), np.uint32), low), high)
    return _finalize(found ^ np.uint32(8))


def hash_bytes(values: pa.BinaryArray) -> Hashes:
    """Return the hash of each binary value. Values must not be null."""
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    buffers = values.buffers()
    offsets = np.frombuffer(buffers[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)[:-1]
    padding = np.zeros(4, np.uint8)
    given = np.frombuffer(buffers[2], np.uint8) if buffers[2] is not None else padding[:0]
    content = np.concatenate([given, padding])
    found = np.zeros(len(values), np.uint32)
    for block in range(int(lengths.max(initial=0)) // 4):
        own = np.flatnonzero(lengths >= 4 * (block + 1))
        found[own] = _mix(found[own], _read_words(content, offsets[own] + 4 * block))
    tail = lengths % 4
    has_tail = np.flatnonzero(tail)
    if len(has_tail):
        words = _read_words(content, offsets[has_tail] + lengths[has_tail] - tail[has_tail])
        kept = (np.uint64(1) << (np.uint64(8) * tail[has_tail].astype(np.uint64))) - np.uint64(1)
        found[has_tail] ^= _scramble(words & kept.astype(np.uint32))
    return _finalize(found ^ lengths.astype(np.uint32))


def _read_words(content: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> Hashes:
    four = np.ascontiguousarray(content[starts[:, None] + np.arange(4)])
    return four.view("<u4").reshape(-1).astype(np.uint32)


def _scramble(words: Hashes) -> Hashes:
    return _rotate(words * _C1, 15) * _C2


def _mix(hashes: Hashes, words: Hashes) -> Hashes:
    return _rotate(hashes ^ _scramble(words), 13) * np.uint32(5) + _STEP


def _rotate(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


def _finalize(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


def _encode_decimals(values: pa.Decimal128Array) -> pa.BinaryArray:
    """Encode the unscaled numbers as minimal big-endian two's complement bytes."""
    content = np.frombuffer(values.buffers()[1], np.uint8, 16 * len(values), 16 * values.offset).reshape(-1, 16)[
        :, ::-1
    ]
    sign = np.where(content[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    # A leading byte is redundant if it, and the highest bit of the next byte, equal the sign.
    is_redundant = (content[:, :-1] == sign) & ((content[:, 1:] >= 0x80) == (sign == 0xFF))
    leading = np.cumprod(is_redundant, axis=1).sum(axis=1)
    kept = np.arange(16) >= leading[:, None]
    offsets = np.concatenate([[0], np.cumsum(16 - leading)]).astype(np.int32)
    return pa.Array.from_buffers(
        types.BINARY, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content)[kept])]
    )

"""The inclusive projection of predicates onto partition values, where bounds of the source column are not enough.

- `x = 5` is TRUE only in the bucket of 5, and `x IN (5, 6)` only in the buckets of 5 and 6. The projection says nothing
  more, because a bucket holds other values too.
- The first characters of a string decide whether it starts with a prefix. So if the truncation width is at least the
  length of the prefix, the partition value decides, and `NOT LIKE 'ab%'` skips a file whose strings all start with
  `ab`.
- Truncation keeps the order of strings and bytes: x >= 'ac' only if truncated x is not below truncated 'ac'. As a bound
  of x, the truncated value 'ab' extends to 'ac' itself, because there is no last string before 'ac'; so the bound alone
  would not rule it out.

All of these refine the answers for a node of the predicate. They hold in addition to the answers from bounds, and are
combined with them through AND, OR and NOT.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tamis.expr.kernels import to_arrow_array
from tamis.expr.nodes import NULL, Call, Column, Expr, Literal
from tamis.expr.patterns import DEFAULT_ESCAPE, parse_like
from tamis.skipping.answers import UNKNOWN, Answers, all_of
from tamis.skipping.atoms import answer_call
from tamis.skipping.predicate import Predicate
from tamis.skipping.ranges import compute_range
from tamis.skipping.rewrite import Conjunct, rewrite
from tamis.tables.iceberg.murmur import compute_buckets
from tamis.tables.iceberg.specs import PartitionField, Spec
from tamis.types import is_bytes, is_text


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

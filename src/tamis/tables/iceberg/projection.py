"""What partition values answer that bounds of their source cannot: buckets, and beginnings of texts.

- `x = 5` is TRUE only in the bucket of 5, and `x IN (5, 6)` only in those of 5 and 6. It says nothing more: in that
  bucket are other values too.
- Whether a text begins with a prefix shows in its first characters. So where it is truncated to at least as many, the
  partition value answers for it, and `NOT LIKE 'ab%'` skips a file of which every text begins with `ab`.
- Cutting texts and bytes keeps their order: x >= 'ac' only where x, cut off, is not below 'ac' cut off. As a bound of x
  the cut value 'ab' reaches up to 'ac' itself, since there is no last text before it, and so would not rule it out.

All are answers about a node of the predicate, which hold along with those from bounds, and so go up through AND, OR
and NOT with them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tamis.expr.kernels import literal_array
from tamis.expr.nodes import NULL, Call, Column, Expr, Literal
from tamis.expr.patterns import DEFAULT_ESCAPE, parse_like
from tamis.skipping.answers import UNKNOWN, Answers, all_of
from tamis.skipping.atoms import answer_call
from tamis.skipping.predicate import Predicate
from tamis.skipping.ranges import range_of
from tamis.skipping.rewrite import Conjunct, rewrite
from tamis.tables.iceberg.murmur import buckets_of
from tamis.tables.iceberg.specs import PartitionField, Spec
from tamis.types import is_bytes, is_text


def conjuncts_for(predicate: Predicate, spec: Spec) -> tuple[Conjunct, ...]:
    """The conjuncts of a predicate, in their order, which make use of what the partition values of a spec answer."""
    fields = [field for field in spec.useful if _may_help(field, predicate)]
    if not fields:
        return predicate.conjuncts

    def refine(node: Expr, answers: Answers) -> Answers:
        for field in fields:
            more = _answers(node, field)
            if more is not None:
                answers = Answers(
                    _both(answers.may_be_true, more.may_be_true),
                    _both(answers.may_be_false, more.may_be_false),
                    _both(answers.may_be_null, more.may_be_null),
                )
        return answers

    return rewrite(predicate.expr, refine)


def _both(one: Expr, other: Expr) -> Expr:
    return one if other == NULL else all_of(one, other)


def _may_help(field: PartitionField, predicate: Predicate) -> bool:
    if field.source is None or all(column.path != field.source.path for column in predicate.columns):
        return False
    is_cut = field.transform.kind == "truncate" and (is_text(field.source.type) or is_bytes(field.source.type))
    return is_cut or field.transform.kind == "bucket"


def _answers(node: Expr, field: PartitionField) -> Answers | None:
    match node:
        case Call(function, (Column(path=path), *_)) if field.source is not None and path == field.source.path:
            if field.transform.kind == "bucket":
                return _of_buckets(node, field)
            if function in ("startswith", "like"):
                return _of_prefix(node, field)
            return _of_cut(node, field)
        case _:
            return None


def _items(call: Call) -> list[Literal] | None:
    """The values that a column is compared with, one of which it has where the call is TRUE; None for other calls."""
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


def _of_buckets(call: Call, field: PartitionField) -> Answers | None:
    values = _items(call)
    if values is None:
        return None
    source = field.source.type if field.source is not None else None
    try:
        buckets = buckets_of(literal_array(tuple(values)).cast(source), field.transform.width)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None  # a value that the column cannot have
    if buckets is None:
        return None
    literals = tuple(Literal(bucket, pa.int32()) for bucket in sorted(set(buckets.tolist())))
    found = _answered(Call("in", (field.column, *literals)))
    return Answers(found.may_be_true, UNKNOWN.may_be_false, UNKNOWN.may_be_null)


def _of_cut(call: Call, field: PartitionField) -> Answers | None:
    match call:
        case Call(">" | ">=", (_, Literal(value=str() | bytes() as value))):
            found = _answered(Call(">=", (field.column, _cut(value, field))))
        case _:
            values = _items(call)
            if values is None or not all(isinstance(each.value, str | bytes) for each in values):
                return None
            literals = dict.fromkeys(_cut(each.value, field) for each in values)
            found = _answered(Call("in", (field.column, *literals)))
    return Answers(found.may_be_true, UNKNOWN.may_be_false, UNKNOWN.may_be_null)


def _cut(value: str | bytes, field: PartitionField) -> Literal:
    return Literal(value[: field.transform.width], field.column.type)


def _of_prefix(call: Call, field: PartitionField) -> Answers | None:
    match call:
        case Call("startswith", (_, Literal(value=str() as prefix))):
            pass
        case Call("like", (_, Literal(value=str() as text), *escape)):
            sign = escape[0].value if escape and isinstance(escape[0], Literal) else DEFAULT_ESCAPE
            pattern = parse_like(text, sign)
            if not pattern.is_prefix or pattern.is_exact:
                return None
            prefix = pattern.prefix
        case _:
            return None
    if len(prefix) > field.transform.width:
        return None
    return _answered(Call(call.function, (field.column, *call.args[1:])))


def _answered(call: Call) -> Answers:
    known = tuple((UNKNOWN, range_of(arg, ())) for arg in call.args)
    return answer_call(call, known)[0]

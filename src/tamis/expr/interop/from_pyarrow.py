"""Translation of pyarrow expressions."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import ExpressionError
from tamis.expr.bind import ARROW_CAST
from tamis.expr.foreign import AS_ARROW, mark
from tamis.expr.functions.table import find_foreign_function
from tamis.expr.interop.translate_tree import NAN, build_membership, find_cast_target
from tamis.expr.literals import literal
from tamis.expr.nodes import NULL, Call, Literal, Name, Unbound, and_, not_, or_
from tamis.types import type_from_name


class _NullMatching(IntEnum):
    """The values of `null_matching_behavior` in the options of pyarrow's `is_in`."""

    MATCH = 0
    SKIP = 1
    EMIT_NULL = 2
    INCONCLUSIVE = 3


def from_pyarrow(expression: pc.Expression) -> Unbound:
    """Translate a `pyarrow.compute.Expression`; a function without a counterpart is an error that names it.

    The translation is TRUE, FALSE and NULL where pyarrow's expression is, with these exceptions, in which the semantics
    of Tamis apply:

    - integers are computed in 64 bits and do not wrap around;
    - `is_in` finds -0.0 where the list has 0.0, and the other way round;
    - `ignore_case` compares lower-case texts.

    pyarrow's `divide` truncates integers and returns infinity where `/` returns NULL, so it is translated only if the
    two agree.
    """
    layout = read_layout(expression)
    tokens = iter(layout.pairs)
    root = _OpenCall("")
    calls = [root]
    for key, text in tokens:
        match key:
            case "call":
                calls.append(_OpenCall(text))
            case "field_ref":
                calls[-1].args.append(Name((text,), exact=True))
            case "nested_field_ref":
                calls[-1].args.append(Name(_read_nested_path(text, tokens), exact=True))
            case "literal":
                calls[-1].args.append(literal(layout.value(text)))
            case "options":
                calls[-1].options = _read_options(layout, text)
            case "end" if len(calls) > 1 and calls[-1].function == text:
                done = calls.pop()
                calls[-1].args.append(_translate(done))
            case _:
                raise make_unknown_layout_error(f"{key} {text}")
    if len(calls) != 1 or len(root.args) != 1:
        raise make_unknown_layout_error("an unfinished tree")
    return root.args[0]


@dataclass(slots=True)
class _OpenCall:
    """A call whose arguments are not complete yet."""

    function: str
    args: list[Unbound] = field(default_factory=list)
    options: dict[str, pa.Scalar] | None = None

    def option(self, name: str, default: Any = None) -> Any:
        """Return an option of the function; raise if it is missing and has no default."""
        if self.options is not None and name in self.options:
            return self.options[name]
        if default is None or self.options is not None:
            raise make_unknown_layout_error(f"{self.function} without {name}")
        return default

    def flag(self, name: str) -> bool:
        return bool(self.option(name, pa.scalar(False)).as_py())


def _read_nested_path(count: str, tokens: Iterator[tuple[str, str]]) -> tuple[str, ...]:
    path: list[str] = []
    for _ in range(int(count) if count.isdecimal() else 0):
        key, text = next(tokens, ("", ""))
        if key != "field_ref":
            raise make_unknown_layout_error(f"{key} in a nested field")
        path.append(text)
    if not path:
        raise make_unknown_layout_error("an empty nested field")
    return tuple(path)


def _read_options(layout: Layout, index: str) -> dict[str, pa.Scalar]:
    value = layout.value(index)
    if not isinstance(value, pa.StructScalar):
        raise make_unknown_layout_error("options that are not a struct")
    return dict(value.items())


def _translate(call: _OpenCall) -> Unbound:
    named = find_foreign_function(call.function, lambda row: row.pyarrow)
    if named is not None:
        _check_arguments(call, named.accepts(len(call.args)))
        return mark(AS_ARROW, Call(named.name, tuple(call.args)))
    if call.function not in _TRANSLATIONS:
        raise ExpressionError(f"the pyarrow function {call.function!r} has no counterpart here: {ADVICE}")
    arguments, translate = _TRANSLATIONS[call.function]
    _check_arguments(call, len(call.args) == arguments)
    return translate(call)


def _check_arguments(call: _OpenCall, is_accepted: bool) -> None:
    if not is_accepted:
        raise make_unknown_layout_error(f"{call.function} of {len(call.args)} arguments")


def _translate_strict(function: str) -> Callable[[_OpenCall], Unbound]:
    """Translate pyarrow's `and` or `or`. Unlike `…_kleene`, they are NULL as soon as an argument is NULL."""

    def translate(call: _OpenCall) -> Unbound:
        is_unknown = or_(*(Call("is_null", (arg,)) for arg in call.args))
        return Call("case", (is_unknown, NULL, Call(function, tuple(call.args))))

    return translate


def _translate_if_else(call: _OpenCall) -> Unbound:
    # CASE returns the last value where the condition is NULL; pyarrow returns NULL.
    condition, value, otherwise = call.args
    return mark(AS_ARROW, Call("case", (Call("is_null", (condition,)), NULL, condition, value, otherwise)))


def _translate_is_null(call: _OpenCall) -> Unbound:
    is_null = Call("is_null", tuple(call.args))
    return or_(is_null, Call("=", (call.args[0], NAN))) if call.flag("nan_is_null") else is_null


def _translate_is_in(call: _OpenCall) -> Unbound:
    """Translate `is_in`, which treats NULL in four ways.

    |                               | MATCH                  | SKIP  | EMIT_NULL | INCONCLUSIVE      |
    |-------------------------------|------------------------|-------|-----------|-------------------|
    | input is NULL                 | whether the set has it | FALSE | NULL      | NULL              |
    | no match, but the set has NULL| FALSE                  | FALSE | FALSE     | NULL, as SQL's IN |
    """
    (value,) = call.args
    items = call.option("value_set").values
    if pa.types.is_dictionary(items.type):
        items = items.dictionary_decode()
    behaviour = call.option("null_matching_behavior").as_py()
    match behaviour:
        case _NullMatching.MATCH:
            return build_membership(AS_ARROW, value, items, nulls_equal=True)
        case _NullMatching.SKIP:
            return build_membership(AS_ARROW, value, items.drop_null(), nulls_equal=True)
        case _NullMatching.INCONCLUSIVE if items.null_count:
            members = (*map(literal, items.drop_null()), Literal(None, items.type))
            return mark(AS_ARROW, Call("in", (value, *members)))
        case _NullMatching.EMIT_NULL | _NullMatching.INCONCLUSIVE:
            return build_membership(AS_ARROW, value, items, nulls_equal=False)
        case _:
            raise make_unknown_layout_error(f"null_matching_behavior {behaviour}")


def _translate_text_match(function: str) -> Callable[[_OpenCall], Unbound]:
    def translate(call: _OpenCall) -> Unbound:
        value, pattern = _split_pattern_match(call)
        return Call(function, (value, Literal(pattern, types.STRING)))

    return translate


def _translate_match_like(call: _OpenCall) -> Unbound:
    value, pattern = _split_pattern_match(call)
    if re.search(r"\\(?![%_])", pattern):
        # pyarrow interprets such a backslash in one of two ways, depending on the rest of the pattern.
        raise ExpressionError(
            f"the pattern {pattern!r} of pyarrow's match_like has a backslash that is not before % or _, "
            f"which is ambiguous in pyarrow: {ADVICE}"
        )
    return Call("like", (value, Literal(pattern, types.STRING)))


def _split_pattern_match(call: _OpenCall) -> tuple[Unbound, str]:
    try:
        pattern = call.option("pattern").as_py()
    except UnicodeDecodeError as error:
        raise ExpressionError(f"the pattern of pyarrow's {call.function} is not UTF-8: {ADVICE}") from error
    value = call.args[0]
    if not isinstance(pattern, str):
        raise make_unknown_layout_error(f"{call.function} without a pattern")
    if call.flag("ignore_case"):
        return Call("lower", (value,)), pc.utf8_lower(pattern).as_py()
    return value, pattern


def _translate_cast(call: _OpenCall) -> Unbound:
    target = call.option("to_type").type
    if any(call.flag(name) for name in call.options or {} if name.startswith("allow_")):
        raise ExpressionError(
            f"pyarrow's unsafe cast to {target} wraps and truncates values, which has no counterpart here: "
            f"cast with safe=True, or {ADVICE}"
        )
    name = find_cast_target(target)
    if name is None:
        raise ExpressionError(f"pyarrow's cast to {target} has no counterpart here: {ADVICE}")
    # What it means depends on the type of a column, which binding knows.
    return Call(ARROW_CAST, (call.args[0], name))


def _translate_divide(call: _OpenCall) -> Unbound:
    dividend, divisor = call.args
    if not (_is_floating(dividend) or _is_floating(divisor)):
        raise ExpressionError(
            "pyarrow's division truncates integers, but here / does not: "
            f"cast one side with .cast('double') to get fractions, or {ADVICE}"
        )
    if call.function == "divide" and not (isinstance(divisor, Literal) and divisor.value):
        raise ExpressionError(
            "pyarrow's divide returns infinity for a divisor of zero, but here it is NULL: "
            f"use the / operator of pyarrow expressions, which raises for zero, or {ADVICE}"
        )
    return mark(AS_ARROW, Call("/", (dividend, divisor)))


def _is_floating(expr: Unbound) -> bool:
    match expr:
        case Literal(type=data_type):
            return bool(pa.types.is_floating(data_type))
        case Call(function, (_, Literal(value=str() as name))) if function == ARROW_CAST:
            return bool(pa.types.is_floating(type_from_name(name)))
        case _:
            return False


def _translate_struct_field(call: _OpenCall) -> Unbound:
    path = call.option("field_ref").as_py()
    match call.args[0]:
        case Name(path=outer) if isinstance(path, str) and re.fullmatch(r"(?:\.[^.\[\\]+)+", path):
            return Name((*outer, *path[1:].split(".")), exact=True)
        case _:
            raise ExpressionError(f"pyarrow's struct_field {path!r} is not a plain path of a column: {ADVICE}")


_TRANSLATIONS: dict[str, tuple[int, Callable[[_OpenCall], Unbound]]] = {
    "and_not_kleene": (2, lambda call: and_(call.args[0], not_(call.args[1]))),
    "and": (2, _translate_strict("and")),
    "or": (2, _translate_strict("or")),
    # The names that pc.and_ and pc.or_ give to expressions, and that pyarrow itself cannot evaluate.
    "and_": (2, _translate_strict("and")),
    "or_": (2, _translate_strict("or")),
    "is_null": (1, _translate_is_null),
    "is_nan": (1, lambda call: Call("=", (call.args[0], NAN))),
    "is_in": (1, _translate_is_in),
    "if_else": (3, _translate_if_else),
    "starts_with": (1, _translate_text_match("startswith")),
    "ends_with": (1, _translate_text_match("endswith")),
    "match_substring": (1, _translate_text_match("contains")),
    "match_like": (1, _translate_match_like),
    "cast": (1, _translate_cast),
    "struct_field": (1, _translate_struct_field),
    "divide": (2, _translate_divide),
    "divide_checked": (2, _translate_divide),
}
"""pyarrow's functions that no row of the table names: their number of arguments, and their translation."""

# --- The tree of a `pyarrow.compute.Expression`, in prefix order ------------------------------------------------------
#
# pyarrow has no API to inspect an expression, but it serialises one: an Arrow file with a single batch, whose
# schema metadata is the tree as a list of pairs (`call`, name), (`field_ref`, name), (`literal`, column of the batch),
# (`options`, column of the batch), (`end`, name), with (`nested_field_ref`, n) before n field references.
# pyarrow exposes metadata as a dict, which loses repeated keys; Arrow's C data interface, whose layout is stable, has
# all pairs. Any other format is an error; nothing is guessed.

ADVICE = "write the filter as SQL text instead"


@dataclass(frozen=True, slots=True)
class Layout:
    """The tree as pairs, and the values to which its `literal` and `options` pairs refer."""

    pairs: tuple[tuple[str, str], ...]
    values: pa.RecordBatch

    def value(self, index: str) -> pa.Scalar:
        if not index.isdecimal() or int(index) >= self.values.num_columns:
            raise make_unknown_layout_error(f"no value {index!r}")
        return self.values.column(int(index))[0]


def read_layout(expression: pc.Expression) -> Layout:
    try:
        reduced = expression.__reduce__()
    except pa.ArrowException as error:
        raise ExpressionError(
            f"a pyarrow expression could not be serialised ({error}): name columns with pc.field(name), or {ADVICE}"
        ) from error
    match reduced:
        case (_, (pa.Buffer() as buffer,)):
            pass
        case _:
            raise make_unknown_layout_error("no buffer")
    try:
        reader = pa.ipc.open_file(buffer)
        batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
    except (pa.ArrowException, OSError) as error:
        raise make_unknown_layout_error(str(error)) from error
    if len(batches) != 1 or batches[0].num_rows != 1:
        raise make_unknown_layout_error(f"{len(batches)} batches")
    try:
        pairs = tuple((key.decode(), value.decode()) for key, value in read_metadata_pairs(reader.schema))
    except UnicodeDecodeError as error:
        raise ExpressionError(f"a pyarrow expression names a column that is not UTF-8: {ADVICE}") from error
    return Layout(pairs, batches[0])


def make_unknown_layout_error(detail: str) -> ExpressionError:
    return ExpressionError(
        f"pyarrow {pa.__version__} serialises expressions in an unsupported format ({detail}): {ADVICE}"
    )


class _ArrowSchema(ctypes.Structure):
    """The beginning of `struct ArrowSchema` of the C data interface."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        # Not a C string: it has length prefixes, and the bytes may contain zeros.
        ("metadata", ctypes.c_void_p),
    )


def read_metadata_pairs(schema: pa.Schema) -> list[tuple[bytes, bytes]]:
    """Return the metadata of a schema as pairs in order, repeated keys included."""
    capsule = schema.__arrow_c_schema__()
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    address = _ArrowSchema.from_address(get_pointer(capsule, b"arrow_schema")).metadata
    if not address:
        return []
    # A count, then the key and the value of each pair, each with a length prefix; all integers are native int32.
    (count,) = struct.unpack("=i", ctypes.string_at(address, 4))
    address += 4
    texts: list[bytes] = []
    for _ in range(2 * count):
        (length,) = struct.unpack("=i", ctypes.string_at(address, 4))
        texts.append(ctypes.string_at(address + 4, length))
        address += 4 + length
    # The capsule owns the memory that was read above, so it must live until here.
    del capsule
    return list(zip(texts[::2], texts[1::2], strict=True))

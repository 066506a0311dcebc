"""What a row of the function table says of DuckDB, calls of macros and of DuckDB's functions, and their errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from tamis.errors import EvaluationError

Macro = tuple[tuple[str, ...], str]
"""The parameters of a macro and its body. A parameter may have a type, as in `"x BLOB"`: see `Macros`."""

Macros = dict[str, Macro | list[Macro]]
"""Macros by name. A list holds overloads: DuckDB picks one by the types of the arguments when it binds a query.

DuckDB casts an argument to the type of its parameter (a decimal loses digits there). A parameter without a type accepts
all values that no other overload accepts. A literal NULL fits several overloads, which is an error: `CallMacro` is
NULL for it."""


def list_overloads(macro: Macro | list[Macro]) -> list[Macro]:
    return macro if isinstance(macro, list) else [macro]


# --- Translations: what a row of the function table says --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Same:
    """sqlglot's translation, or DuckDB's function of that name, computes what Spark computes."""


@dataclass(frozen=True, slots=True)
class CallMacro:
    """A macro of as many parameters as the call has arguments computes the function."""

    macro: str = ""
    """The macro, unless it has the name of the function."""
    or_same: bool = False
    """Whether sqlglot translates calls with another number of arguments; else they are rejected."""


@dataclass(frozen=True, slots=True)
class CallTyped:
    """A macro, or DuckDB's function `own`, takes the arguments as other types. A literal NULL makes the result NULL.

    Each word of `kinds` is the type of an argument: text, int, date, timestamp, …, or any for an unchanged one. If all
    unchanged arguments are texts, the call is one of the macro `of_texts` instead, or of DuckDB's function of that name
    if it starts with a dot. A macro cannot cast to a date or timestamp by itself: those casts have overloads, which a
    macro must not call with an argument of unknown type.
    """

    kinds: str
    macro: str = ""
    own: str = ""
    fewest: int | None = None
    of_texts: str = ""


@dataclass(frozen=True, slots=True)
class Build:
    """A Python function builds the DuckDB expression from the arguments.

    It returns None to leave a call to sqlglot, and raises an `EvaluationError` for an unsupported call.
    """

    build: Callable[[Sequence[exp.Expr]], exp.Expr | None]
    counts: tuple[int, ...] = ()
    """The numbers of arguments that are accepted; empty if the function itself checks them."""
    propagates_null: bool = False
    """Whether a literal NULL makes the result NULL."""


@dataclass(frozen=True, slots=True)
class BuildNamed:
    """The same as `Build`, for several functions: the Python function takes the name too."""

    build: Callable[[str, Sequence[exp.Expr]], exp.Expr | None]
    counts: tuple[int, ...] = ()
    propagates_null: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The function is rejected, even if DuckDB has one of that name."""

    reason: str


Translation = Same | CallMacro | CallTyped | Build | BuildNamed | Refused

Rows = tuple[tuple[str, Translation], ...]
"""Functions of Spark, by their names with spaces between them, and what computes them."""

MACRO_PREFIX = "spark_"
_MAX_DUPLICATED_NODES = 40
DUCKDB_PREFIX = "duckdb_"
"""The prefix of the names of DuckDB's functions where Tamis writes them into text in Spark's dialect."""
_ADVICE = "Write it with the functions that the reference of expressions lists, or filter the rows after the scan"


class UnknownFunction(EvaluationError):
    """The error for a function that is not in the function table."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no function {name}")
        self.name = name


def call_macro(name: str, *args: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=f"{MACRO_PREFIX}{name}", expressions=list(args))


_INTEGERS = ("BIGINT", "HUGEINT")
_IMPLICIT_CASTS = {
    "DOUBLE": (*_INTEGERS, "DECIMAL(18, 3)"),
    "FLOAT": (*_INTEGERS, "DECIMAL(18, 3)", "DOUBLE"),
    "DECIMAL(18, 3)": (*_INTEGERS, "DOUBLE", "FLOAT"),
    "TIMESTAMPTZ": ("TIMESTAMP", "DATE"),
    "TIMESTAMP": ("DATE",),
}
"""The types that DuckDB casts implicitly to a type: an overload for that type would accept them."""


def define_by_type(name: str, bodies: dict[str, str], *others: str) -> Macros:
    """Return a macro of `x` and `others` whose body depends on the exact type of `x`, without implicit casts.

    Each overload takes the value twice: as the typed parameter `kind`, which is never computed, and unchanged as `x`.
    The body of type `""` serves all types without a body; `BIGINT` stands for all integers, `DECIMAL(18, 3)` for all
    decimals.
    """
    parameters = ("x", *others)
    by_type = {kind: body for kinds, body in bodies.items() for kind in kinds.split(" | ")}
    for kind, castable in _IMPLICIT_CASTS.items():
        if kind in by_type:
            by_type |= {each: by_type[""] for each in castable if each not in by_type}
    overloads = [((f"kind {kind}".strip(), *parameters), body) for kind, body in by_type.items()]
    # DuckDB checks the body of a macro when it is created, but not within a lambda function, which binds `x` here.
    return {name: (parameters, f"{MACRO_PREFIX}{name}_of(x, {', '.join(parameters)})"), f"{name}_of": overloads}


def call_by_type(name: str, value: exp.Expr, *others: exp.Expr) -> exp.Expr:
    """Call a macro of `define_by_type`. A short value is written twice, which costs nothing at run time."""
    if isinstance(value, exp.Null):
        return exp.Null()
    if sum(1 for _ in value.walk()) <= _MAX_DUPLICATED_NODES:
        return call_macro(f"{name}_of", value.copy(), value, *others)
    return call_macro(name, value, *others)


def call_duckdb(name: str, *args: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=f"{DUCKDB_PREFIX}{name}", expressions=list(args))


def make_unsupported_error(name: str, reason: str) -> EvaluationError:
    return EvaluationError(f"the embedded engine does not support this use of Spark's {name}: {reason}. {_ADVICE}")


def strip_parentheses(node: exp.Expr) -> exp.Expr:
    """Return a value without parentheses around it. Unlike `unnest`, it keeps the parentheses of a subquery."""
    return node if isinstance(node, exp.Subquery) else node.unnest()


def read_string_literal(node: exp.Expr | None) -> str | None:
    """Return the text of a string literal, and None for all other nodes."""
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None


def read_constant(name: str, role: str, node: exp.Expr) -> str:
    """Return the text of an argument of a function, which must be a string literal."""
    text = read_string_literal(node)
    if text is None:
        raise make_unsupported_error(name, f"its {role} must be a constant")
    return text


def join_texts(first: exp.Expr, *others: exp.Expr) -> exp.Expr:
    for other in others:
        first = exp.DPipe(this=first, expression=other)
    return exp.Paren(this=first)


def make_struct(names: Sequence[str], values: Sequence[exp.Expr]) -> exp.Struct:
    pairs = zip(names, values, strict=True)
    return exp.Struct(
        expressions=[exp.PropertyEQ(this=exp.Literal.string(name), expression=each) for name, each in pairs]
    )


def null_if(condition: exp.Expr, otherwise: exp.Expr) -> exp.Expr:
    """Build `CASE WHEN condition THEN NULL ELSE otherwise END`."""
    return exp.Case(ifs=[exp.If(this=condition, true=exp.null())], default=otherwise)


def is_null(value: exp.Expr) -> exp.Expr:
    return exp.Is(this=value, expression=exp.null())


_MULTI_ROW_FUNCTIONS = frozenset((
    "first", "last", "quantile_cont", "quantile_disc", "string_agg", "arg_max_null", "arg_min_null", "count", "min",
    "max",
    "kurtosis_pop", "skewness", "bool_or", "bool_and", "corr", "regr_r2", "regr_slope", "regr_intercept", "regr_count",
    "try_sum",
    "mean", "arg_max", "arg_min", "list", "array_agg", "mode", "histogram", "approx_count_distinct", "grouping",
    "grouping_id", "any_value", "sum", "avg", "product", "unnest", "generate_subscripts",
))  # fmt: skip
"""The aggregate and table functions that are plain calls here, by their names in DuckDB and in Tamis."""


def has_aggregate_or_window(value: exp.Expr) -> bool:
    """Return whether a value contains an aggregate, window or table function outside of subqueries."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.AggFunc | exp.Window | exp.WithinGroup | exp.Filter):
            return True
        if isinstance(node, exp.Anonymous):
            name = node.name.lower()
            if name.removeprefix(MACRO_PREFIX).removeprefix(DUCKDB_PREFIX) in _MULTI_ROW_FUNCTIONS:
                return True
        if not isinstance(node, exp.Query):
            stack.extend(node.iter_expressions())
    return False


_SOURCES = (exp.From, exp.Join, exp.CTE, exp.Lateral, exp.SetOperation, exp.Table, exp.Pivot)
_NESTED_KEY = "holds subqueries"


def is_in_nested_subquery(node: exp.Expr) -> bool:
    """Return whether a node is in a LATERAL subquery, or in a scalar subquery that is inside, or around, another one.

    DuckDB fails with an internal error, or crashes the process, if it binds columns of outer queries there to pick an
    overload.
    """
    if node.find_ancestor(exp.Lateral) is not None:
        return True
    outermost: exp.Expr | None = None
    depth = 0
    around = node.parent
    while around is not None:
        if isinstance(around, exp.Query) and _is_value_subquery(around):
            outermost = around
            depth += 1
        around = around.parent
    if outermost is None or depth > 1:
        return depth > 1
    if _NESTED_KEY not in outermost.meta:
        inner = (each for each in outermost.find_all(exp.Query) if each is not outermost)
        outermost.meta[_NESTED_KEY] = any(map(_is_value_subquery, inner))
    return bool(outermost.meta[_NESTED_KEY])


def _is_value_subquery(query: exp.Expr) -> bool:
    """Return whether a query is a scalar subquery or a list of values, and not a source of rows in FROM."""
    if isinstance(query, exp.Subquery):
        return False
    around = query.parent
    while isinstance(around, exp.Subquery | exp.Paren):
        around = around.parent
    return around is not None and not isinstance(around, _SOURCES)


# --- Implicit casts of the arguments of Spark's functions, and checks of their number ---------------------------------

MAX_INT = 2**31 - 1


_TEXT_MACROS = frozenset({
    "text", "string", "plain_string", "only_text", "text_part", "left_text", "right", "overlay_text", "split_part",
    "substring_index", "upper", "lower", "initcap", "reverse_text", "padded_text", "masked", "char", "chr", "soundex",
    "hex", "bin", "base64", "conv", "decode", "url_encode", "url_decode", "try_url_decode", "parse_url",
    "try_parse_url", "regexp_substr", "regexp_replace_from", "guarded", "formatted", "format_number", "by_pattern",
    "printed_text",
    "in_width", "printed_whole", "printed_hex", "printed_float", "sha2", "string_or_null", "json_value",
})  # fmt: skip
_TEXT_FUNCTIONS = frozenset({
    "trim", "ltrim", "rtrim", "replace", "translate", "repeat", "concat_ws", "regexp_extract", "regexp_replace", "md5",
    "sha1", "strftime", "nfc_normalize", "substring", "upper", "left", "decode", "hex",
})  # fmt: skip


def is_text(node: exp.Expr) -> bool:
    """Return whether a DuckDB expression is certainly a text.

    Such a value needs no overloaded macro, which costs time: DuckDB binds the arguments of an overloaded macro twice,
    and those of nested ones more often.
    """
    value = node.unnest()
    match value:
        case exp.Literal():
            return bool(value.is_string)
        case exp.Cast():
            return value.to.is_type(exp.DType.TEXT, exp.DType.VARCHAR)
        case exp.Anonymous():
            name = value.name.lower()
            is_macro = name.startswith(MACRO_PREFIX) and name.removeprefix(MACRO_PREFIX) in _TEXT_MACROS
            return is_macro or (name.startswith(DUCKDB_PREFIX) and name.removeprefix(DUCKDB_PREFIX) in _TEXT_FUNCTIONS)
        case exp.DPipe():
            return is_text(value.this) or is_text(value.expression)
        case _:
            return False


def as_text(value: exp.Expr) -> exp.Expr:
    """Cast a value to a text as Spark does."""
    if isinstance(value, exp.Null):
        return exp.cast(exp.null(), "varchar")
    return value if is_text(value) else call_macro("text", value)


def as_bytes(value: exp.Expr) -> exp.Expr:
    """Return bytes, or the UTF-8 encoding of a text."""
    return call_duckdb("encode", value) if is_text(value) else call_macro("bytes", value)


def as_int(value: exp.Expr) -> exp.Expr:
    """Cast a value to an int as Spark does."""
    if isinstance(value, exp.Null):
        return exp.cast(exp.null(), "int")
    number = value.this if isinstance(value, exp.Neg) else value
    is_small = isinstance(number, exp.Literal) and not number.is_string and number.name.isdecimal()
    if is_small and int(number.name) <= MAX_INT:
        return value
    return call_macro("plain_integer" if isinstance(value, exp.Column) else "integer", value)


def is_constant(node: exp.Expr) -> bool:
    """Return whether a value is the same for all rows."""
    return not any(node.find_all(exp.Column, exp.Subquery, exp.Select))


def _cast_argument(value: exp.Expr, kind: str) -> exp.Expr:
    match kind:
        case "any":
            return value
        case "text":
            return as_text(value)
        case "int":
            return as_int(value)
        case _:
            return call_macro(f"as_{kind}", value)


def call_typed(name: str, args: Sequence[exp.Expr], typed: CallTyped) -> exp.Expr:
    """Call a macro, or DuckDB's function, with cast arguments."""
    kinds = typed.kinds.split()
    require_argument_count(name, args, *range(len(kinds) if typed.fewest is None else typed.fewest, len(kinds) + 1))
    if has_null(args):
        return exp.Null()
    given = [_cast_argument(arg, kind) for kind, arg in zip(kinds, args, strict=False)]
    if typed.of_texts and all(is_text(arg) for kind, arg in zip(kinds, args, strict=False) if kind == "any"):
        called = typed.of_texts
        return call_duckdb(called[1:], *given) if called[0] == "." else call_macro(called, *given)
    return call_duckdb(typed.own, *given) if typed.own else call_macro(typed.macro or name, *given)


def has_null(args: Sequence[exp.Expr]) -> bool:
    """Return whether an argument is a literal NULL."""
    return any(isinstance(arg, exp.Null) for arg in args)


def require_argument_count(name: str, args: Sequence[exp.Expr], *counts: int) -> None:
    """Raise an error unless a call has one of these numbers of arguments."""
    if len(args) not in counts:
        wanted = " or ".join(map(str, counts))
        raise make_unsupported_error(name, f"it takes {wanted} arguments, not {len(args)}")

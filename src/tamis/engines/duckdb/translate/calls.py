"""Builders of macro calls and of calls of DuckDB's functions, the types of macros, and errors for unsupported calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from tamis.errors import EvaluationError

CallBuilder = Callable[[Sequence[exp.Expr]], exp.Expr | None]
"""Builds a DuckDB expression from the arguments of a call. None leaves the call to sqlglot.

A builder raises an `EvaluationError` for an unsupported call."""

Macro = tuple[tuple[str, ...], str]
"""The parameters of a macro and its body. A parameter may have a type, as in `"x BLOB"`: see `Macros`."""

Macros = dict[str, Macro | list[Macro]]
"""Macros by name. A list holds overloads: DuckDB picks one by the types of the arguments when it binds a query.

DuckDB casts an argument to the type of its parameter (a decimal loses digits there). A parameter without a type accepts
all values that no other overload accepts. A literal NULL fits several overloads, which is an error:
`make_macro_builder` returns NULL for it."""

MACRO_PREFIX = "spark_"
_MAX_DUPLICATED_NODES = 40
DUCKDB_PREFIX = "duckdb_"
"""The prefix of the names of DuckDB's functions where Tamis writes them into text in Spark's dialect."""
_ADVICE = "Write it with the functions that docs/reference/expressions.md lists, or filter the rows after the scan"


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
    """Call DuckDB's function of that name."""
    return exp.Anonymous(this=f"{DUCKDB_PREFIX}{name}", expressions=list(args))


def make_unsupported_error(name: str, reason: str) -> EvaluationError:
    return EvaluationError(f"the embedded engine does not support this use of Spark's {name}: {reason}. {_ADVICE}")


def strip_parentheses(node: exp.Expr) -> exp.Expr:
    """Return a value without parentheses around it. Unlike `unnest`, it keeps the parentheses of a subquery."""
    return node if isinstance(node, exp.Subquery) else node.unnest()


def read_string_literal(node: exp.Expr | None) -> str | None:
    """Return the text of a string literal, and None for all other nodes."""
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None


def make_macro_builder(name: str, macros: Macros) -> CallBuilder:
    """Return a builder that calls a macro if one of its overloads has as many parameters as there are arguments."""
    found = macros[name]
    overloads = found if isinstance(found, list) else [found]
    arities = {len(parameters) for parameters, _ in overloads}

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) not in arities:
            return None
        if len(overloads) > 1 and any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        return call_macro(name, *args)

    return build


def make_fixed_arity_builder(name: str, *arities: int) -> CallBuilder:
    """Return a builder that calls a macro, and rejects calls with another number of arguments."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) not in arities:
            raise make_unsupported_error(name, f"it takes {' or '.join(map(str, arities))} arguments, not {len(args)}")
        return call_macro(name, *args)

    return build


_MULTI_ROW_FUNCTIONS = frozenset((
    "first", "last", "quantile_cont", "quantile_disc", "string_agg", "arg_max_null", "arg_min_null", "count", "min",
    "max",
    "kurtosis_pop", "skewness", "bool_or", "bool_and", "corr", "regr_r2", "regr_slope", "regr_intercept", "try_sum",
    "mean", "arg_max", "arg_min", "list", "array_agg", "mode", "histogram", "approx_count_distinct", "grouping",
    "grouping_id", "any_value", "sum", "avg", "product", "unnest", "generate_subscripts",
))  # fmt: skip
"""The aggregate and table functions that are plain calls here, by their names in DuckDB and in Tamis."""


def has_aggregate_or_window(value: exp.Expr) -> bool:
    """Whether a value contains an aggregate, window or table function outside of subqueries."""
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
    """Whether a node is in a LATERAL subquery, or in a scalar subquery that is nested in, or contains, another one.

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
    """Whether a query is a scalar subquery or a list of values, and not a source of rows in FROM."""
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
    """Whether a DuckDB expression is certainly a text.

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
    """Whether a value is the same for all rows."""
    return not any(node.find_all(exp.Column, exp.Subquery, exp.Select))


def _keep(value: exp.Expr) -> exp.Expr:
    return value


_CASTS: dict[str, Callable[[exp.Expr], exp.Expr]] = {"t": as_text, "i": as_int, "a": _keep}


def make_typed_builder(
    name: str, kinds: str, *, own: str | None = None, fewest: int | None = None, of_texts: str | None = None
) -> CallBuilder:
    """Return a builder that calls a macro, or DuckDB's function `own`, with cast arguments.

    Each letter of `kinds` is one argument: cast to a text (t), cast to an int (i), or unchanged (a). A literal NULL
    makes the result NULL. If all unchanged arguments are texts, the builder calls the macro `of_texts` instead, or
    DuckDB's function of that name if it starts with a dot.
    """

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        least = len(kinds) if fewest is None else fewest
        if not least <= len(args) <= len(kinds):
            wanted = f"{least}" if least == len(kinds) else f"{least} to {len(kinds)}"
            raise make_unsupported_error(name, f"it takes {wanted} arguments, not {len(args)}")
        if any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        given = [_CASTS[kind](arg) for kind, arg in zip(kinds, args, strict=False)]
        if of_texts is not None and all(is_text(arg) for kind, arg in zip(kinds, args, strict=False) if kind == "a"):
            return call_duckdb(of_texts[1:], *given) if of_texts[0] == "." else call_macro(of_texts, *given)
        return call_duckdb(own, *given) if own is not None else call_macro(name, *given)

    return build


def make_refusing_builder(name: str, reason: str) -> CallBuilder:
    """Return a builder that rejects every call of an unsupported function."""

    def refuse(args: Sequence[exp.Expr]) -> exp.Expr | None:
        raise make_unsupported_error(name, reason)

    return refuse


def require_argument_count(name: str, args: Sequence[exp.Expr], *counts: int) -> None:
    """Raise an error unless a call has one of these numbers of arguments."""
    if len(args) not in counts:
        wanted = " or ".join(map(str, counts))
        raise make_unsupported_error(name, f"it takes {wanted} arguments, not {len(args)}")

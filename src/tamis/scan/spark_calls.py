"""Calls of the macros that compute what Spark computes, and what is said where there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from tamis.errors import EvaluationError

Build = Callable[[Sequence[exp.Expr]], exp.Expr | None]
"""Makes DuckDB's words of the arguments of a call; None leaves the call to sqlglot, an `EvaluationError` refuses it."""

Macro = tuple[tuple[str, ...], str]
"""The parameters of a macro and its body. A parameter may have a type, as in `"x BLOB"`: see `Macros`."""

Macros = dict[str, Macro | list[Macro]]
"""Macros by name. A list has overloads, of which DuckDB picks one by the types of the arguments when it binds a query.
An argument is cast to the type of its parameter (a decimal loses digits there); a parameter without a type takes all
that no other overload takes. A literal NULL fits several overloads, which is an error: `macro` gives NULL for it."""

PREFIX = "spark_"
_MOST_NODES_TWICE = 40
OWN_PREFIX = "duckdb_"
"""What the names of DuckDB's own functions begin with where Tamis itself writes them into text in Spark's dialect."""
_WAY_OUT = "Write it with the functions that docs/expressions.md lists, or filter the rows after the scan"


class UnknownFunction(EvaluationError):
    """A function that the function table has no row for."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no function {name}")
        self.name = name


def macro_call(name: str, *args: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=f"{PREFIX}{name}", expressions=list(args))


_WHOLE = ("BIGINT", "HUGEINT")
_CASTABLE = {
    "DOUBLE": (*_WHOLE, "DECIMAL(18, 3)"),
    "FLOAT": (*_WHOLE, "DECIMAL(18, 3)", "DOUBLE"),
    "DECIMAL(18, 3)": (*_WHOLE, "DOUBLE", "FLOAT"),
    "TIMESTAMPTZ": ("TIMESTAMP", "DATE"),
    "TIMESTAMP": ("DATE",),
}
"""What DuckDB casts to a type by itself: an overload of that type would take it."""


def by_kind(name: str, bodies: dict[str, str], *others: str) -> Macros:
    """A macro of `x` and other parameters whose body depends on the exact type of `x`, not on what it can be cast to.

    The overloads see the value twice: once with the type, which is never computed, and once as it is. The body of type
    `""` is for all types without one of their own; `BIGINT` stands for all whole
    numbers, `DECIMAL(18, 3)` for all decimals.
    """
    parameters = ("x", *others)
    by_type = {kind: body for kinds, body in bodies.items() for kind in kinds.split(" | ")}
    for kind, castable in _CASTABLE.items():
        if kind in by_type:
            by_type |= {each: by_type[""] for each in castable if each not in by_type}
    overloads = [((f"kind {kind}".strip(), *parameters), body) for kind, body in by_type.items()]
    # DuckDB checks the body of a macro when it is made, but not inside of a lambda function, in which `x` is here.
    return {name: (parameters, f"{PREFIX}{name}_of(x, {', '.join(parameters)})"), f"{name}_of": overloads}


def kind_call(name: str, value: exp.Expr, *others: exp.Expr) -> exp.Expr:
    """A call of a macro of `by_kind`. What is not too long is written twice, which costs nothing when it runs."""
    if isinstance(value, exp.Null):
        return exp.Null()
    if sum(1 for _ in value.walk()) <= _MOST_NODES_TWICE:
        return macro_call(f"{name}_of", value.copy(), value, *others)
    return macro_call(name, value, *others)


def own_call(name: str, *args: exp.Expr) -> exp.Expr:
    """A call of DuckDB's function of that name."""
    return exp.Anonymous(this=f"{OWN_PREFIX}{name}", expressions=list(args))


def refusal(name: str, reason: str) -> EvaluationError:
    return EvaluationError(f"the embedded engine has no words for Spark's {name}: {reason}. {_WAY_OUT}")


def without_brackets(node: exp.Expr) -> exp.Expr:
    """A value without brackets around it. Those of a subquery are a part of it, which `unnest` would take off too."""
    return node if isinstance(node, exp.Subquery) else node.unnest()


def text_of(node: exp.Expr | None) -> str | None:
    """The text that a literal is."""
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None


def macro(name: str, macros: Macros) -> Build:
    """A call of a macro, for calls with as many arguments as one of its overloads has."""
    found = macros[name]
    overloads = found if isinstance(found, list) else [found]
    arities = {len(parameters) for parameters, _ in overloads}

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) not in arities:
            return None
        if len(overloads) > 1 and any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        return macro_call(name, *args)

    return build


def counted(name: str, *arities: int) -> Build:
    """A call of a macro of that name, or an error for another number of arguments."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) not in arities:
            raise refusal(name, f"it takes {' or '.join(map(str, arities))} arguments, not {len(args)}")
        return macro_call(name, *args)

    return build


_OF_ROWS = frozenset((
    "first", "last", "quantile_cont", "quantile_disc", "string_agg", "arg_max_null", "arg_min_null", "count", "min",
    "max",
    "kurtosis_pop", "skewness", "bool_or", "bool_and", "corr", "regr_r2", "regr_slope", "regr_intercept", "try_sum",
    "mean", "arg_max", "arg_min", "list", "array_agg", "mode", "histogram", "approx_count_distinct", "grouping",
    "grouping_id", "any_value", "sum", "avg", "product", "unnest", "generate_subscripts",
))  # fmt: skip
"""Names of functions of several rows that a call may have here, DuckDB's and ours."""


def is_of_rows(value: exp.Expr) -> bool:
    """Whether a value is made of several rows, or of one beside others."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.AggFunc | exp.Window | exp.WithinGroup | exp.Filter):
            return True
        if isinstance(node, exp.Anonymous):
            name = node.name.lower()
            if name.removeprefix(PREFIX).removeprefix(OWN_PREFIX) in _OF_ROWS:
                return True
        if not isinstance(node, exp.Query):
            stack.extend(node.iter_expressions())
    return False


_SOURCES = (exp.From, exp.Join, exp.CTE, exp.Lateral, exp.SetOperation, exp.Table, exp.Pivot)
_NESTED = "holds subqueries"


def is_in_nested_subquery(node: exp.Expr) -> bool:
    """Whether a node stands in a LATERAL subquery, or in one of an expression that is within or around another one.

    DuckDB ends with an internal error, or ends the process, where it binds columns of outer queries there to pick an
    overload.
    """
    if node.find_ancestor(exp.Lateral) is not None:
        return True
    outermost: exp.Expr | None = None
    depth = 0
    around = node.parent
    while around is not None:
        if isinstance(around, exp.Query) and _is_value(around):
            outermost = around
            depth += 1
        around = around.parent
    if outermost is None or depth > 1:
        return depth > 1
    if _NESTED not in outermost.meta:
        inner = (each for each in outermost.find_all(exp.Query) if each is not outermost)
        outermost.meta[_NESTED] = any(map(_is_value, inner))
    return bool(outermost.meta[_NESTED])


def _is_value(query: exp.Expr) -> bool:
    """Whether a query stands for a value or a list of values, and not for rows of FROM."""
    if isinstance(query, exp.Subquery):
        return False
    around = query.parent
    while isinstance(around, exp.Subquery | exp.Paren):
        around = around.parent
    return around is not None and not isinstance(around, _SOURCES)

"""Spark's meaning of functions in DuckDB: the same name may mean something else there.

A filter is text in Spark's dialect, and `dayofweek` of a Sunday is 1 in Spark and 0 in DuckDB. A function runs only if
the function table (the modules `spark_text`, `spark_time`, `spark_collections`, `spark_numbers`) has a row for it:

    same         sqlglot's words for it, or DuckDB's function of that name, mean the same
    own words    a macro of the embedded connection, `spark_<name>`, computes what Spark computes
    refused      all others, by name: DuckDB may have a function of that name with another meaning

Own words are macros rather than rewritten text, so that an argument is written once, however often it is used.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel

from tamis.expr.sql_dialect import SparkText
from tamis.scan import spark_collections, spark_comparisons, spark_numbers, spark_operators, spark_text, spark_time
from tamis.scan.spark_calls import (
    OWN_PREFIX,
    PREFIX,
    Build,
    Macros,
    UnknownFunction,
    is_in_nested_subquery,
    is_of_rows,
    macro,
    macro_call,
    own_call,
    refusal,
    text_of,
)
from tamis.scan.spark_comparisons import guard_comparisons, makes_nested, normalise_group_keys, refuse_operands
from tamis.scan.spark_macros import FUNCTIONS, REFUSED
from tamis.scan.spark_macros import MACROS as _PLAIN_MACROS
from tamis.scan.spark_nodes import meant
from tamis.scan.spark_number_formats import printed_by_format

ARGUMENT = "once"
"""What the name of an argument begins with inside of a macro."""

_KINDS = (spark_text, spark_time, spark_collections, spark_numbers)
"""The modules of the function table, by the kind of values that their functions are about."""

MACROS: Macros = {**_PLAIN_MACROS, **spark_operators.MACROS}
for _kind in _KINDS:
    MACROS |= _kind.MACROS
MACROS |= spark_comparisons.MACROS | refuse_operands(MACROS)


def to_duckdb(text: str, *, of_query: bool = False, has_nested: bool = True) -> str:
    """Text in Spark's dialect in DuckDB's words; `EvaluationError` where it has none with Spark's meaning.

    The text `of_query` is one whose result people see: its structs have the names of their fields. Where none of its
    columns is nested, and it makes no nested value, keys and sorted values stay as they are: a guard around them would
    keep the engine from its best plans.
    """
    tree: exp.Expr = sqlglot.parse_one(text, read=_SparkMeaning)
    has_nested = has_nested or makes_nested(tree)
    _sort_in_order(tree)
    if has_nested:
        normalise_group_keys(tree)
    # From the leaves to the root: a node is rewritten when all within it are.
    nested = _Nesting()
    for node in reversed(list(tree.dfs())):
        found = node if of_query and isinstance(node, exp.Struct) else meant(node)
        is_root = node is tree
        if found is not node and not is_root:
            node.replace(found)
        found = nested.bounded(found, node if is_root else found)
        if is_root:
            tree = found
    if has_nested and (isinstance(tree, exp.Query) or not of_query):
        guard_comparisons(tree)
    for call in tree.find_all(exp.Anonymous):
        _pass_gate(call)
        if not of_query and call.name in _OF_STORED_TYPES:
            name = call.name.removeprefix(PREFIX).removesuffix("_one")
            raise refusal(name, "a filter does not tell the engine the types of its columns")
    # What sqlglot has no words for it would leave out with a mere warning.
    return tree.sql(dialect="duckdb", unsupported_level=ErrorLevel.IGNORE if of_query else ErrorLevel.RAISE)


def _sort_in_order(tree: exp.Expr) -> None:
    """SORT BY and CLUSTER BY sort the rows of a partition, and there is one: all rows are sorted."""
    for select in tree.find_all(exp.Select):
        keys = select.args.get("sort") or select.args.get("cluster")
        if keys is not None and select.args.get("order") is None:
            ordered = (
                each if isinstance(each, exp.Ordered) else exp.Ordered(this=each, nulls_first=True)
                for each in keys.expressions
            )
            select.set("order", exp.Order(expressions=list(ordered)))
        for clause in ("sort", "cluster", "distribute"):
            select.set(clause, None)


_OF_STORED_TYPES = frozenset(f"{PREFIX}{name}" for name in ("hash_one", "xxhash64_one", "typeof"))
"""Functions that depend on the types of columns, which are given to a filter in other types."""


class _Nesting:
    """Arguments of overloaded macros that DuckDB cannot bind as they are.

    DuckDB binds the arguments of such a call to pick an overload, and once more for its body: each level of nested
    calls doubles the work. Of aggregates and windows it does not know the types there, and picks any overload. Both
    are bound once, as an item of a list, and the call is made of that item, whose type is known.
    """

    MOST = 5

    def __init__(self) -> None:
        self._depths: dict[int, int] = {}

    def bounded(self, node: exp.Expr, at: exp.Expr) -> exp.Expr:
        """The node, or one in its place that means the same and nests less. All within it was asked for before.

        It stands, or will stand, where `at` does.
        """
        weight = _weight(node)
        if not weight:
            self._depths[id(node)] = self._below(node)
            return node
        is_hoisted = is_in_nested_subquery(at)
        apart = [
            value
            for value in node.expressions
            if self._depth(value) >= self.MOST
            or is_of_rows(value)
            or (is_hoisted and not isinstance(value, exp.Literal))
        ]
        if not apart:
            self._depths[id(node)] = weight + self._below(node)
            return node
        fields = []
        for place, value in enumerate(apart):
            name = exp.to_identifier(f"value_{place + 1}", quoted=True)
            value.replace(exp.Dot(this=exp.column("bound"), expression=name))
            fields.append(exp.PropertyEQ(this=name.copy(), expression=value))
        items = exp.Array(expressions=[exp.Struct(expressions=fields)])
        function = exp.Lambda(expressions=[exp.to_identifier("bound")])
        found = exp.Bracket(
            this=exp.Transform(this=items, expression=function), expressions=[exp.Literal.number(1)], offset=1
        )
        node.replace(found)
        function.set("this", node)
        self._depths[id(found)] = weight
        return found

    def _below(self, node: exp.Expr) -> int:
        return max((self._depth(child) for child in node.iter_expressions()), default=0)

    def _depth(self, node: exp.Expr) -> int:
        if id(node) not in self._depths:
            # What a rewrite has made itself.
            self._depths[id(node)] = _weight(node) + self._below(node)
        return self._depths[id(node)]


def _weight(node: exp.Expr) -> int:
    """The levels that a call adds: none unless DuckDB picks one of several overloads."""
    if not isinstance(node, exp.Anonymous) or not node.name.lower().startswith(PREFIX):
        return 0
    found = MACROS.get(node.name.lower().removeprefix(PREFIX))
    return 1 if isinstance(found, list) else 0


def _pass_gate(call: exp.Anonymous) -> None:
    """Refuse a function that no row of the function table made."""
    name = call.name
    if name.lower().startswith(OWN_PREFIX):
        call.set("this", name[len(OWN_PREFIX) :])
    elif not (name.lower().startswith(PREFIX) and name.lower().removeprefix(PREFIX) in MACROS):
        raise UnknownFunction(name)


def macros_of(query: str) -> list[str]:
    """The statements that create the macros which a query uses, those they use themselves first."""
    needed: dict[str, None] = {}
    stack = _macro_names(query)
    while stack:
        name = stack.pop()
        # Whoever is needed again goes to the end, behind all that use it.
        needed.pop(name, None)
        needed[name] = None
        stack += _macro_names(" ".join(body for _, body in _overloads(name)))
    return [_definition(name) for name in reversed(needed)]


def _macro_names(query: str) -> list[str]:
    found = re.findall(rf"\b{PREFIX}(\w+)\(", query, re.IGNORECASE)
    return [name for name in dict.fromkeys(name.lower() for name in found) if name in MACROS]


def _overloads(name: str) -> list[tuple[tuple[str, ...], str]]:
    found = MACROS[name]
    return found if isinstance(found, list) else [found]


def _definition(name: str) -> str:
    overloads = [f"({', '.join(names)}) AS {_body(name, names, body)}" for names, body in _overloads(name)]
    return f"CREATE MACRO {PREFIX}{name}{', '.join(overloads)}"


def _body(name: str, parameters: tuple[str, ...], body: str) -> str:
    # Macros that are called with what this one computes bind their own argument: each has another name.
    argument = f"{ARGUMENT}_{name}"
    bound, uses = re.subn(r"(?<![\\'])\bx\b", argument, body)
    if "x" not in parameters or uses < 2 or name.startswith("plain_"):
        return body
    # A macro is text: of nested ones that use an argument n times, DuckDB would see n^depth copies of it.
    return f"list_transform([x], lambda {argument}: {bound})[1]"


# --- Calls ------------------------------------------------------------------------------------------------------------


def _macro(name: str) -> Build:
    return macro(name, MACROS)


def _refused(name: str, reason: str) -> Build:
    def refuse(args: Sequence[exp.Expr]) -> exp.Expr | None:
        raise refusal(name, reason)

    return refuse


def _logarithm(args: Sequence[exp.Expr]) -> exp.Expr | None:
    names = {1: "ln", 2: "log"}
    return macro_call(names[len(args)], *args) if len(args) in names else None


def _constant(name: str, role: str, node: exp.Expr) -> str:
    text = text_of(node)
    if text is None:
        raise refusal(name, f"its {role} is no constant")
    return text


def _round(args: Sequence[exp.Expr]) -> exp.Expr | None:
    return macro_call("round_unknown", *args) if len(args) == 2 else None


def _is_null(args: Sequence[exp.Expr]) -> exp.Expr | None:
    return exp.Paren(this=exp.Is(this=args[0], expression=exp.null())) if len(args) == 1 else None


def _is_not_null(args: Sequence[exp.Expr]) -> exp.Expr | None:
    found = _is_null(args)
    return None if found is None else exp.Not(this=found)


def _count(args: Sequence[exp.Expr]) -> exp.Expr | None:
    """`count(a, b)`: the rows in which none of them is NULL."""
    if len(args) < 2:
        return None
    is_null = exp.or_(*(exp.Is(this=each, expression=exp.null()) for each in args))
    return exp.Count(this=exp.Case(ifs=[exp.If(this=is_null, true=exp.null())], default=exp.Literal.number(1)))


def _half_even(args: Sequence[exp.Expr]) -> exp.Expr | None:
    digits = [exp.Literal.number(0)] if len(args) == 1 else []
    return macro_call("bround_unknown", *args, *digits) if len(args) in (1, 2) else None


def _called(name: str, arity: int) -> Build:
    """A function that DuckDB has under another name."""
    return lambda args: own_call(name, *args) if len(args) == arity else None


BUILDERS: dict[str, Build] = {
    **{name: _macro(name) for name in FUNCTIONS},
    **{name: _refused(name, reason) for name, reason in REFUSED.items()},
    **dict.fromkeys(("log", "ln"), _logarithm),
    "ceiling": _macro("ceil"),
    "isnull": _is_null,
    "isnotnull": _is_not_null,
    "count": _count,
    # Those of the engine leave out rows in which the first argument is NULL.
    "max_by": _called("arg_max_null", 2),
    "min_by": _called("arg_min_null", 2),
    "bround": _half_even,
    "e": lambda args: exp.Literal.number("2.718281828459045e0") if not args else None,
    "round": _round,
    "signum": _macro("sign"),
}
for _kind in _KINDS:
    BUILDERS |= _kind.BUILDERS
BUILDERS |= {name: printed_by_format(name, BUILDERS[name]) for name in ("to_char", "to_varchar")}

SAME: frozenset[str] = frozenset().union(*(kind.SAME for kind in _KINDS))
"""Functions for which sqlglot's words, or DuckDB's function of the same name, mean what Spark means."""


def is_known(name: str) -> bool:
    """Whether the function table says what a function of Spark means to the embedded engine."""
    return name.lower() in BUILDERS or name.lower() in SAME


def explain_unknown(name: str, place: str = "") -> str:
    """What to say of a function that the table has no row for."""
    near = difflib.get_close_matches(name.lower(), [*BUILDERS, *SAME], n=1, cutoff=0.7)
    hint = f" Did you mean {near[0]}?" if near else ""
    return (
        f"there is no function {name} with Spark's meaning on the embedded engine{place}.{hint} docs/expressions.md "
        "lists what there is. Functions that only Spark has run with tamis.connect(spark=…), those of DuckDB with "
        "c.sql(…, dialect='duckdb')"
    )


def _default(name: str, args: Sequence[exp.Expr]) -> exp.Expr:
    """What sqlglot makes of a call, or else a call of DuckDB's function of that name."""
    build: Any = SparkText.Parser.FUNCTIONS.get(name)
    if build is None:
        return own_call(name, *args)
    takes_dialect = "dialect" in getattr(getattr(build, "__code__", None), "co_varnames", ())
    found: exp.Expr = build(list(args), dialect=SparkText()) if takes_dialect else build(list(args))
    return found


def _builder(name: str, build: Build | None) -> Callable[[list[exp.Expr]], exp.Expr]:
    if build is None:
        return lambda args: _default(name, args)

    def found(args: list[exp.Expr]) -> exp.Expr:
        made = build(args)
        if made is None and name not in SparkText.Parser.FUNCTIONS and name.lower() not in SAME:
            # DuckDB may have a function of that name, which nothing is known of.
            raise refusal(name.lower(), f"the function table has no row for {len(args)} arguments")
        return made or _default(name, args)

    return found


_OWN_SYNTAX = frozenset(("CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "SUBSTR", "TRIM", "POSITION", "OVERLAY"))
"""Functions with a syntax of their own, as in `EXTRACT(DAY FROM x)`: all others are read as plain calls."""


class _SparkMeaning(SparkText):
    """Spark's dialect, in which the functions of the table are what they mean to DuckDB, and all others plain calls."""

    class Parser(SparkText.Parser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {
            name.upper(): _builder(name.upper(), BUILDERS.get(name)) for name in (*BUILDERS, *SAME)
        }
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse for name, parse in SparkText.Parser.FUNCTION_PARSERS.items() if name in _OWN_SYNTAX
        }
        # `transform` is a function of lists here, and no script.
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse for name, parse in SparkText.Parser.NO_PAREN_FUNCTION_PARSERS.items() if name != "TRANSFORM"
        }

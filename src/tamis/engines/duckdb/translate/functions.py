"""Translation of SQL in Spark's dialect to DuckDB, with Spark's semantics.

DuckDB's function of the same name may differ: `dayofweek` of a Sunday is 1 in Spark and 0 in DuckDB. A function runs
only if the function table (`text`, `datetimes`, `collections` and `numbers` of `engines.duckdb.functions`) lists it:

    same         sqlglot's translation, or DuckDB's function of that name, computes the same
    macro        a macro of the embedded connection, `spark_<name>`, computes what Spark computes
    unsupported  all others are rejected by name, even where DuckDB has a function of that name

Macros, unlike rewritten text, contain an argument once, however often they use it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, ParseError

from tamis.engines.duckdb.functions import collections, datetimes, numbers, text
from tamis.engines.duckdb.functions.number_formats import make_to_char_builder
from tamis.engines.duckdb.macros.macros import FUNCTIONS, UNSUPPORTED_FUNCTIONS
from tamis.engines.duckdb.macros.macros import MACROS as _PLAIN_MACROS
from tamis.engines.duckdb.translate import comparisons, operators
from tamis.engines.duckdb.translate.calls import (
    DUCKDB_PREFIX,
    MACRO_PREFIX,
    CallBuilder,
    Macros,
    UnknownFunction,
    call_duckdb,
    call_macro,
    has_aggregate_or_window,
    is_in_nested_subquery,
    make_macro_builder,
    make_refusing_builder,
    make_unsupported_error,
)
from tamis.engines.duckdb.translate.comparisons import (
    guard_comparisons,
    has_nested_values,
    normalise_group_keys,
    reject_operands,
)
from tamis.engines.duckdb.translate.nodes import translate_node
from tamis.engines.duckdb.translate.operators import parenthesise_operands
from tamis.expr.functions.table import FUNCTIONS as ROWS
from tamis.expr.sql.dialect import SparkText

ARGUMENT_PREFIX = "once"
"""The prefix of the names of arguments that a macro binds."""

_MODULES = (text, datetimes, collections, numbers)
"""The modules of the function table, by the type of the values that their functions take."""

MACROS: Macros = {**_PLAIN_MACROS, **operators.MACROS}
for _module in _MODULES:
    MACROS |= _module.MACROS
MACROS |= comparisons.MACROS | reject_operands(MACROS)


@dataclass(frozen=True, slots=True)
class DuckdbSql:
    """A translated query or expression: its text, and the macros that it calls."""

    text: str
    macros: frozenset[str]
    tree: exp.Expr = field(compare=False, repr=False)

    def write_without_macros(self) -> str:
        """Return a text that reads the same tables: macros read none, so they are rows of their arguments there."""
        tree = self.tree.copy()
        for call in tree.find_all(exp.Anonymous):
            if call.name.lower().startswith(MACRO_PREFIX):
                call.set("this", "row")
        return _write(tree, ErrorLevel.IGNORE)


def to_duckdb(tree: exp.Expr, *, of_query: bool = False, has_nested: bool = True) -> DuckdbSql:
    """Translate a tree in Spark's dialect to DuckDB's SQL; raise `EvaluationError` for what is not supported.

    The tree is changed. All functions in it are calls by name, as `SparkCalls` parses them. `of_query` says that users
    see the result: structs keep the names of their fields. If the columns are not nested (`has_nested` is False) and
    the tree builds no nested value, keys and sorted values stay unchanged: a guard around them would keep DuckDB from
    its best plans.
    """
    _add_rows()
    tree = build_calls(tree)
    has_nested = has_nested or has_nested_values(tree)
    _replace_sort_by(tree)
    if has_nested:
        normalise_group_keys(tree)
    # From the leaves to the root: all nodes below a node are rewritten before it.
    nested = _OverloadNesting()
    for node in reversed(list(tree.dfs())):
        found = node if of_query and isinstance(node, exp.Struct) else translate_node(node)
        is_root = node is tree
        if found is not node and not is_root:
            node.replace(found)
        found = nested.limit(found, node if is_root else found)
        if is_root:
            tree = found
    if has_nested and (isinstance(tree, exp.Query) or not of_query):
        guard_comparisons(tree)
    macros: set[str] = set()
    for call in tree.find_all(exp.Anonymous):
        if (macro := _check_call(call)) is not None:
            macros.add(macro)
            if not of_query and macro in _TYPE_DEPENDENT:
                name = macro.removesuffix("_one")
                raise make_unsupported_error(name, "a filter does not pass the types of its columns to the engine")
    parenthesise_operands(tree)
    # By default sqlglot only warns about unsupported syntax, and leaves it out.
    text = _write(tree, ErrorLevel.IGNORE if of_query else ErrorLevel.RAISE)
    return DuckdbSql(text, frozenset(macros), tree)


def _write(tree: exp.Expr, level: ErrorLevel) -> str:
    return str(tree.sql(dialect="duckdb", comments=False, unsupported_level=level))


def _replace_sort_by(tree: exp.Expr) -> None:
    """Turn SORT BY and CLUSTER BY into ORDER BY: they sort each partition, and here there is only one."""
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


_TYPE_DEPENDENT = frozenset(("hash_one", "xxhash64_one", "typeof"))
"""Functions that depend on the types of columns: a filter gets its columns in other types."""


class _OverloadNesting:
    """Tracks how deeply overloaded macros nest, and binds arguments beforehand where DuckDB needs it.

    DuckDB binds the arguments of such a call to pick an overload, and once more for its body: each level of nested
    calls doubles the work. It does not know the types of aggregates and windows at that time, and picks any overload.
    Both kinds of arguments are therefore bound once, as an item of a list, and the call takes that item, whose type is
    known.
    """

    MAX_DEPTH = 5

    def __init__(self) -> None:
        self._depths: dict[int, int] = {}

    def limit(self, node: exp.Expr, at: exp.Expr) -> exp.Expr:
        """Return the node, or an equivalent one that nests less. Call it for all nodes below first.

        `at` is the node whose position in the tree the result has, or will have.
        """
        levels = _count_overload_levels(node)
        if not levels:
            self._depths[id(node)] = self._measure_depth_below(node)
            return node
        is_hoisted = is_in_nested_subquery(at)
        bound_first = [
            value
            for value in node.expressions
            if self._measure_depth(value) >= self.MAX_DEPTH
            or has_aggregate_or_window(value)
            or (is_hoisted and not isinstance(value, exp.Literal))
        ]
        if not bound_first:
            self._depths[id(node)] = levels + self._measure_depth_below(node)
            return node
        fields = []
        for index, value in enumerate(bound_first):
            name = exp.to_identifier(f"value_{index + 1}", quoted=True)
            value.replace(exp.Dot(this=exp.column("bound"), expression=name))
            fields.append(exp.PropertyEQ(this=name.copy(), expression=value))
        items = exp.Array(expressions=[exp.Struct(expressions=fields)])
        function = exp.Lambda(expressions=[exp.to_identifier("bound")])
        found = exp.Bracket(
            this=exp.Transform(this=items, expression=function), expressions=[exp.Literal.number(1)], offset=1
        )
        node.replace(found)
        function.set("this", node)
        self._depths[id(found)] = levels
        return found

    def _measure_depth_below(self, node: exp.Expr) -> int:
        return max((self._measure_depth(child) for child in node.iter_expressions()), default=0)

    def _measure_depth(self, node: exp.Expr) -> int:
        if id(node) not in self._depths:
            # A node that a rewrite created.
            self._depths[id(node)] = _count_overload_levels(node) + self._measure_depth_below(node)
        return self._depths[id(node)]


def _count_overload_levels(node: exp.Expr) -> int:
    """Return the nesting levels that a call adds: 1 if DuckDB picks one of several overloads, else 0."""
    if not isinstance(node, exp.Anonymous) or not node.name.lower().startswith(MACRO_PREFIX):
        return 0
    found = MACROS.get(node.name.lower().removeprefix(MACRO_PREFIX))
    return 1 if isinstance(found, list) else 0


def _check_call(call: exp.Anonymous) -> str | None:
    """Return the macro that a call calls, if any; raise `UnknownFunction` if it does not come from the table."""
    name = call.name.lower()
    if name.startswith(DUCKDB_PREFIX):
        call.set("this", call.name[len(DUCKDB_PREFIX) :])
        return None
    macro = name.removeprefix(MACRO_PREFIX)
    if macro == name or macro not in MACROS:
        raise UnknownFunction(call.name)
    return macro


def write_macro_statements(macros: Iterable[str]) -> list[str]:
    """Return the statements that create macros and those that they call, in the order of their dependencies."""
    needed: dict[str, None] = {}
    stack = sorted(macros)
    while stack:
        name = stack.pop()
        # Move a macro behind every macro that calls it: the reversed list creates it first.
        needed.pop(name, None)
        needed[name] = None
        stack += _list_called_macros(name)
    return [_write_definition(name) for name in reversed(needed)]


@cache
def _list_called_macros(name: str) -> list[str]:
    """Return the macros that the body of a macro calls."""
    words = [token.text.lower() for _, body in _list_overloads(name) for token in DuckDB().tokenize(body)]
    called = (word.removeprefix(MACRO_PREFIX) for word, after in pairwise(words) if after == "(")
    return [each for each in dict.fromkeys(called) if each in MACROS and f"{MACRO_PREFIX}{each}" in words]


def _list_overloads(name: str) -> list[tuple[tuple[str, ...], str]]:
    found = MACROS[name]
    return found if isinstance(found, list) else [found]


def _write_definition(name: str) -> str:
    overloads = [f"({', '.join(names)}) AS {_write_body(name, names, body)}" for names, body in _list_overloads(name)]
    return f"CREATE MACRO {MACRO_PREFIX}{name}{', '.join(overloads)}"


_ARGUMENT_OR_TEXT = re.compile(r"'[^']*'|\bx\b")
"""The argument `x` in the body of a macro, or a string literal, in which an `x` is text."""


def _write_body(name: str, parameters: tuple[str, ...], body: str) -> str:
    # A nested macro binds its own argument, so each macro needs another name for it.
    argument = f"{ARGUMENT_PREFIX}_{name}"
    if "x" not in parameters or name.startswith("plain_") or _ARGUMENT_OR_TEXT.findall(body).count("x") < 2:
        return body
    bound = _ARGUMENT_OR_TEXT.sub(lambda found: argument if found[0] == "x" else found[0], body)
    # DuckDB expands macros as text: nested macros that use an argument n times would contain it n^depth times.
    return f"list_transform([x], lambda {argument}: {bound})[1]"


# --- Calls ------------------------------------------------------------------------------------------------------------


def _make_macro_builder(name: str) -> CallBuilder:
    return make_macro_builder(name, MACROS)


def _build_logarithm(args: Sequence[exp.Expr]) -> exp.Expr | None:
    names = {1: "ln", 2: "log"}
    return call_macro(names[len(args)], *args) if len(args) in names else None


def _build_is_null(args: Sequence[exp.Expr]) -> exp.Expr | None:
    return exp.Paren(this=exp.Is(this=args[0], expression=exp.null())) if len(args) == 1 else None


def _build_is_not_null(args: Sequence[exp.Expr]) -> exp.Expr | None:
    found = _build_is_null(args)
    return None if found is None else exp.Not(this=found)


def _build_count(args: Sequence[exp.Expr]) -> exp.Expr | None:
    """Build `count(a, b)`, which counts the rows in which no argument is NULL."""
    if len(args) < 2:
        return None
    is_null = exp.or_(*(exp.Is(this=each, expression=exp.null()) for each in args))
    return exp.Count(this=exp.Case(ifs=[exp.If(this=is_null, true=exp.null())], default=exp.Literal.number(1)))


def _make_renamed_builder(name: str, arity: int) -> CallBuilder:
    """Return a builder for a function that has another name in DuckDB."""
    return lambda args: call_duckdb(name, *args) if len(args) == arity else None


BUILDERS: dict[str, CallBuilder] = {
    **{name: _make_macro_builder(name) for name in FUNCTIONS},
    **{name: make_refusing_builder(name, reason) for name, reason in UNSUPPORTED_FUNCTIONS.items()},
    **dict.fromkeys(("log", "ln"), _build_logarithm),
    "ceiling": _make_macro_builder("ceil"),
    "isnull": _build_is_null,
    "isnotnull": _build_is_not_null,
    "count": _build_count,
    # DuckDB's `max_by` and `min_by` ignore rows in which the first argument is NULL.
    "max_by": _make_renamed_builder("arg_max_null", 2),
    "min_by": _make_renamed_builder("arg_min_null", 2),
    "e": lambda args: exp.Literal.number("2.718281828459045e0") if not args else None,
    "signum": _make_macro_builder("sign"),
}
for _module in _MODULES:
    BUILDERS |= _module.BUILDERS
BUILDERS |= {name: make_to_char_builder(name, BUILDERS[name]) for name in ("to_char", "to_varchar")}

SAME: frozenset[str] = frozenset().union(*(module.SAME for module in _MODULES))
"""Functions that sqlglot's translation, or DuckDB's function of the same name, computes as Spark does."""


def is_known(name: str) -> bool:
    """Whether the function table lists a function of Spark."""
    return name.lower() in BUILDERS or name.lower() in SAME


def explain_unknown_function(name: str, location: str = "") -> str:
    """Return the error message for a function that the function table does not list."""
    near = difflib.get_close_matches(name.lower(), [*BUILDERS, *SAME], n=1, cutoff=0.7)
    hint = f" Did you mean {near[0]}?" if near else ""
    return (
        f"there is no function {name} with Spark's meaning on the embedded engine{location}.{hint} "
        "docs/reference/expressions.md lists the supported functions. Spark's other functions run with "
        "tamis.connect(spark=…), DuckDB's functions with c.sql(…, dialect='duckdb')"
    )


def _build_default(name: str, args: Sequence[exp.Expr]) -> exp.Expr:
    """Build a call as sqlglot parses it, or else a call of DuckDB's function of that name."""
    build: Any = SparkText.Parser.FUNCTIONS.get(name)
    if build is None:
        return call_duckdb(name, *args)
    takes_dialect = "dialect" in getattr(getattr(build, "__code__", None), "co_varnames", ())
    found: exp.Expr = build(list(args), dialect=SparkText()) if takes_dialect else build(list(args))
    return found


class _CallParser(SparkText.Parser):
    """The steps of sqlglot's parser that finish a call and a lambda function."""

    def name_fields(self, args: list[exp.Expr]) -> list[exp.Expr]:
        """Name the arguments of `struct` after their aliases and columns."""
        found: list[exp.Expr] = self._kv_to_prop_eq(args)
        return found

    def replace_variables(self, body: exp.Expr, variables: list[exp.Expr]) -> exp.Expr | None:
        """Turn columns that are variables of a lambda function into names."""
        found: exp.Expr | None = self._replace_lambda(body, variables)
        return found


_PARSER = _CallParser(dialect=SparkText())


_PLACEHOLDER = re.compile(r"\{(\d+)\}")


def _add_rows() -> None:
    """Add the functions whose rows have an SQL expression, as macros. Functions may be registered at any time."""
    for name, known in ROWS.items():
        numbers = sorted({*_PLACEHOLDER.findall(known.duckdb or "")}, key=int)
        macro = tuple(f"argument{number}" for number in numbers), _PLACEHOLDER.sub(r"argument\1", known.duckdb or "")
        if known.duckdb is not None and MACROS.get(f"row_{name}") != macro:
            MACROS[f"row_{name}"] = macro
            BUILDERS[name] = _make_macro_builder(f"row_{name}")


def build_calls(tree: exp.Expr) -> exp.Expr:
    """Replace the calls of functions of the table by DuckDB expressions, in place; return the new root."""
    root = exp.Paren(this=tree)
    found = list(root.find_all(exp.Anonymous, exp.Lambda, bfs=False))
    for each in found:
        if isinstance(each, exp.Lambda):
            _name_variables(each)
    # From the leaves to the root: the arguments of a call are built before it.
    for each in reversed(found):
        if isinstance(each, exp.Lambda):
            each.set("this", _PARSER.replace_variables(each.this, each.expressions))
        elif is_known(each.name) and not (isinstance(each.parent, exp.Dot) and each.arg_key == "expression"):
            # A call after a dot is no function of Spark.
            _replace_call(each)
    changed: exp.Expr = root.this
    return changed.pop()


_NAMING = frozenset(((exp.Lambda, "expressions"), (exp.Dot, "expression"), (exp.PropertyEQ, "this"),
                     (exp.Kwarg, "this"), (exp.Anonymous, "this"), (exp.Alias, "alias")))  # fmt: skip
"""Where an identifier is only a name, and not the variable of a lambda function."""


def _name_variables(function: exp.Lambda) -> None:
    """Turn the variables of a lambda function into columns for the calls in it: they are not constants."""
    names = {each.name for each in function.expressions}
    for each in list(function.this.find_all(exp.Identifier)):
        parent = each.parent
        if each.name not in names or isinstance(parent, exp.Column) or (type(parent), each.arg_key) in _NAMING:
            continue
        parts, top = [each], each
        while isinstance(top.parent, exp.Dot) and isinstance(top.parent.expression, exp.Identifier):
            top = top.parent
            parts.append(top.expression)
        top.replace(exp.column(*reversed(parts[:4]), fields=parts[4:] or None))


def _replace_call(call: exp.Expr) -> None:
    name = call.name.upper()
    args = call.expressions
    if name in SparkText.Parser.FUNCTIONS_WITH_ALIASED_ARGS:
        args = _PARSER.name_fields(args)
    elif any(isinstance(each, exp.Alias) for each in args):
        raise make_unsupported_error(name.lower(), "its arguments have no names")
    found = _build_call(name, args)
    for message in found.error_messages(args):
        raise ParseError(message)
    ignored = next(found.find_all(exp.IgnoreNulls, exp.RespectNulls), None) if isinstance(found, exp.AggFunc) else None
    if ignored is not None and not isinstance(call.parent, exp.Filter | exp.WithinGroup):
        # `first(x IGNORE NULLS)` is `first(x) IGNORE NULLS`.
        ignored.replace(ignored.this)
        found = type(ignored)(this=found)
    call.replace(found)


def _build_call(name: str, args: Sequence[exp.Expr]) -> exp.Expr:
    build = BUILDERS.get(name.lower())
    made = None if build is None else build(args)
    if made is None and build is not None and name not in SparkText.Parser.FUNCTIONS and name.lower() not in SAME:
        # DuckDB may have a function of that name with other semantics.
        raise make_unsupported_error(name.lower(), f"the function table does not list it with {len(args)} arguments")
    return made or _build_default(name, args)

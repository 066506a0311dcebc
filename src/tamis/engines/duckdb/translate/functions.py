"""Translation of SQL in Spark's dialect to DuckDB, with Spark's semantics.

DuckDB's function of the same name may differ: `dayofweek` of a Sunday is 1 in Spark and 0 in DuckDB. A function runs
only if the function table, `FUNCTIONS`, lists it; all others are rejected by name. The modules of
`engines.duckdb.functions` declare its rows. A row says what computes the function (`translate.calls.Translation`):

    Same                sqlglot's translation, or DuckDB's function of that name
    CallMacro           a macro of the embedded connection, `spark_<name>`; also an SQL expression with `{0}`, `{1}`, …:
                        the column `duckdb` of `expr.functions.table.Function`
    CallTyped           the same, with arguments that are cast as Spark casts them
    Build, BuildNamed   an expression that a Python function builds
    Refused             nothing, even where DuckDB has a function of that name

Macros, unlike rewritten text, contain an argument once, however often they use it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, ParseError

from tamis.engines.duckdb.functions import (
    collections,
    datetime_casts,
    datetime_patterns,
    datetimes,
    hashes,
    items,
    lambdas,
    number_formats,
    numbers,
    regexps,
    text,
)
from tamis.engines.duckdb.macros import datetime_macros, macros, text_macros
from tamis.engines.duckdb.translate import calls, comparisons, operators
from tamis.engines.duckdb.translate.comparisons import (
    guard_comparisons,
    has_nested_values,
    normalise_group_keys,
    reject_operands,
)
from tamis.engines.duckdb.translate.nodes import translate_node
from tamis.engines.duckdb.translate.operators import parenthesise_operands
from tamis.errors import InvalidArgument
from tamis.expr.functions.table import ALIASES, find_function
from tamis.expr.sql.dialect import SparkText

Entry = TypeVar("Entry")

ARGUMENT_PREFIX = "once"
"""The prefix of the names of arguments that a macro binds."""


def index_once(kind: str, entries: Iterable[tuple[str, Entry]]) -> dict[str, Entry]:
    """Return entries by name; raise an error for a name that occurs twice."""
    found: dict[str, Entry] = {}
    for name, entry in entries:
        if name in found:
            raise InvalidArgument(f"the {kind} {name!r} is declared twice")
        found[name] = entry
    return found


FUNCTIONS: dict[str, calls.Translation] = index_once("function", (
    (name, translation)
    for module in (text, hashes, regexps, numbers, number_formats, datetimes, collections, items, lambdas)
    for names, translation in module.ROWS
    for name in names.split()
))  # fmt: skip
"""Spark's functions, and what computes them. Other names of a function are the aliases of `expr.functions.table`."""

MACROS: calls.Macros = reject_operands(index_once("macro", (
    entry
    for module in (
        macros, text_macros, datetime_macros, operators, comparisons, datetime_casts, datetime_patterns,
        text, hashes, regexps, numbers, number_formats, collections, items, lambdas,
    )
    for entry in module.MACROS.items()
)))  # fmt: skip
"""All macros, also those that only other macros call."""


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
            if call.name.lower().startswith(calls.MACRO_PREFIX):
                call.set("this", "row")
        return _write(tree, ErrorLevel.IGNORE)


def to_duckdb(tree: exp.Expr, *, of_query: bool = False, has_nested: bool = True) -> DuckdbSql:
    """Translate a tree in Spark's dialect to DuckDB's SQL; raise `EvaluationError` for what is not supported.

    The tree is changed. All functions in it are calls by name, as `SparkCalls` parses them. `of_query` says that users
    see the result: structs keep the names of their fields. If the columns are not nested (`has_nested` is False) and
    the tree builds no nested value, keys and sorted values stay unchanged: a guard around them would keep DuckDB from
    its best plans.
    """
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
                raise calls.make_unsupported_error(
                    name, "a filter does not pass the types of its columns to the engine"
                )
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
        is_hoisted = calls.is_in_nested_subquery(at)
        bound_first = [
            value
            for value in node.expressions
            if self._measure_depth(value) >= self.MAX_DEPTH
            or calls.has_aggregate_or_window(value)
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
    if not isinstance(node, exp.Anonymous) or not node.name.lower().startswith(calls.MACRO_PREFIX):
        return 0
    return 1 if isinstance(_find_macro(node.name.lower().removeprefix(calls.MACRO_PREFIX)), list) else 0


_TEMPLATE_PREFIX = "row_"
_PLACEHOLDER = re.compile(r"\{(\d+)\}")


def _find_macro(name: str) -> calls.Macro | list[calls.Macro] | None:
    """Return a macro; the SQL expression of a row of the language's table is one too."""
    row = find_function(name.removeprefix(_TEMPLATE_PREFIX)) if name.startswith(_TEMPLATE_PREFIX) else None
    if row is None or row.duckdb is None:
        return MACROS.get(name)
    numbers = sorted({*_PLACEHOLDER.findall(row.duckdb)}, key=int)
    return tuple(f"argument{number}" for number in numbers), _PLACEHOLDER.sub(r"argument\1", row.duckdb)


def _check_call(call: exp.Anonymous) -> str | None:
    """Return the macro that a call calls, if any; raise `UnknownFunction` if it does not come from the table."""
    name = call.name.lower()
    if name.startswith(calls.DUCKDB_PREFIX):
        call.set("this", call.name[len(calls.DUCKDB_PREFIX) :])
        return None
    macro = name.removeprefix(calls.MACRO_PREFIX)
    if macro == name or _find_macro(macro) is None:
        raise calls.UnknownFunction(call.name)
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
        stack += dict.fromkeys(each for _, body in _list_overloads(name) for each in _list_called_macros(body))
    return [_write_definition(name) for name in reversed(needed)]


@cache
def _list_called_macros(body: str) -> list[str]:
    """Return the macros that the body of a macro calls."""
    words = [token.text.lower() for token in DuckDB().tokenize(body)]
    called = (word.removeprefix(calls.MACRO_PREFIX) for word, after in pairwise(words) if after == "(")
    return [each for each in dict.fromkeys(called) if each in MACROS and f"{calls.MACRO_PREFIX}{each}" in words]


def _list_overloads(name: str) -> list[calls.Macro]:
    found = _find_macro(name)
    assert found is not None, name
    return calls.list_overloads(found)


def _write_definition(name: str) -> str:
    overloads = [f"({', '.join(names)}) AS {_write_body(name, names, body)}" for names, body in _list_overloads(name)]
    return f"CREATE MACRO {calls.MACRO_PREFIX}{name}{', '.join(overloads)}"


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


def find_translation(name: str) -> calls.Translation | None:
    """Return what computes a function of Spark, or None for an unknown function."""
    lowered = name.lower()
    row = find_function(ALIASES.get(lowered, lowered))
    found = FUNCTIONS.get(lowered) or (None if row is None else FUNCTIONS.get(row.name))
    if row is None or row.duckdb is None:
        return found
    if found is not None:
        raise InvalidArgument(f"the embedded engine has {row.name!r} already: register it without `duckdb`")
    return calls.CallMacro(f"{_TEMPLATE_PREFIX}{row.name}")


def explain_unknown_function(name: str, location: str = "") -> str:
    """Return the error message for a function that the function table does not list."""
    near = difflib.get_close_matches(name.lower(), FUNCTIONS, n=1, cutoff=0.7)
    hint = f" Did you mean {near[0]}?" if near else ""
    return (
        f"there is no function {name} with Spark's meaning on the embedded engine{location}.{hint} "
        "The reference of expressions lists the supported functions. Spark's other functions run with "
        "tamis.connect(spark=…), DuckDB's functions with c.sql(…, dialect='duckdb')"
    )


def _build_default(name: str, args: Sequence[exp.Expr]) -> exp.Expr:
    """Build a call as sqlglot parses it, or else a call of DuckDB's function of that name."""
    build: Any = SparkText.Parser.FUNCTIONS.get(name)
    if build is None:
        return calls.call_duckdb(name, *args)
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
        elif (type(each.parent), each.arg_key) != (exp.Dot, "expression") and find_translation(each.name) is not None:
            # A call after a dot is a method of DuckDB, and not a function of Spark.
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
        raise calls.make_unsupported_error(name.lower(), "its arguments have no names")
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
    lowered = name.lower()
    made: exp.Expr | None = None
    found = find_translation(name)
    match found:
        case calls.Same():
            return _build_default(name, args)
        case calls.Refused(reason):
            raise calls.make_unsupported_error(lowered, reason)
        case calls.CallMacro(macro, or_same):
            made = _build_macro_call(macro or lowered, args)
            if made is None and or_same:
                return _build_default(name, args)
        case calls.CallTyped():
            made = calls.call_typed(lowered, args, found)
        case calls.Build(_, counts, propagates_null) | calls.BuildNamed(_, counts, propagates_null):
            if counts:
                calls.require_argument_count(lowered, args, *counts)
            if propagates_null and calls.has_null(args):
                return exp.Null()
            made = found.build(args) if isinstance(found, calls.Build) else found.build(lowered, args)
            if made is None and name in SparkText.Parser.FUNCTIONS:
                return _build_default(name, args)
    if made is None:
        # DuckDB may have a function of that name with other semantics.
        raise calls.make_unsupported_error(lowered, f"the function table does not list it with {len(args)} arguments")
    return made


def _build_macro_call(macro: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    """Build the call of a macro, or return None if none of its overloads has as many parameters as arguments."""
    overloads = _list_overloads(macro)
    if len(args) not in {len(parameters) for parameters, _ in overloads}:
        return None
    return exp.Null() if len(overloads) > 1 and calls.has_null(args) else calls.call_macro(macro, *args)

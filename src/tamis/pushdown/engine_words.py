"""Why an engine does not take a query, or could not finish it, in words about the query.

An engine says it in terms of the text that it was given: names of inputs, types of its own, advice about settings that
nobody can reach. Where Tamis knows better it says so: a name that means nothing (`sql_names`), or what its own binder
did not like about the query (`doubts`). What remains are the engine's words, cut down to the first sentence.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence

import duckdb
from sqlglot import exp

from tamis.errors import (
    EvaluationError,
    ExpressionError,
    TamisError,
    TypeMismatch,
    UnknownColumn,
    counted,
    place_in_text,
)
from tamis.expr.functions import FUNCTIONS
from tamis.expr.kernels import DATE_TRUNC_UNITS
from tamis.expr.sql_refusals import position_of
from tamis.pushdown.sql_names import wrong_name
from tamis.pushdown.sql_sources import Tables
from tamis.pushdown.sql_trees import text_of
from tamis.scan.engine_errors import engine_type_name, unknown_function, wrong_arguments
from tamis.scan.spark_calls import UnknownFunction
from tamis.scan.spark_functions import ARGUMENT, explain_unknown


def refusal(
    tree: exp.Expr,
    tables: Tables,
    doubts: Sequence[ExpressionError],
    error: BaseException,
    otherwise: Callable[[str], TamisError],
) -> TamisError:
    """Why an engine does not take a query; `otherwise` makes an error of its own words."""
    wrong = wrong_name(tree, tables)
    if wrong is not None:
        return wrong
    told = _told(tree, error)
    if doubts and (told is None or isinstance(told, TypeMismatch)):
        return _of_query(doubts[0])
    if told is not None:
        return told
    wrong_call = next(filter(None, map(_wrong_count, tree.find_all(exp.Anonymous))), None)
    if wrong_call is not None and "argument" in str(error):
        return ExpressionError(wrong_call)
    return otherwise(plain(error))


def failure(tree: exp.Expr | None, doubts: Sequence[ExpressionError], error: BaseException) -> TamisError:
    """Why the embedded engine could not finish a query that it took."""
    if isinstance(error, duckdb.ConversionException):
        # Which values do not fit is found out when they are read, and is known from the types before.
        doubt = next((each for each in doubts if isinstance(each, TypeMismatch)), None)
        if doubt is not None:
            return _of_query(doubt)
    told = _told(exp.Null() if tree is None else tree, error)
    return told or EvaluationError(f"the embedded engine could not finish the query: {plain(error)}")


def plain(error: BaseException) -> str:
    """The first sentence of what an engine says, without its places and its advice."""
    text = re.sub(r"\x1b\[[0-9;]*m|<class '[^']*'>", "", str(error))
    text = re.split(r"\n\s*\n|\bLINE \d+:|; line \d+ pos|\. Line \d+, Col|\n\s*Candidate", text)[0]
    text = " ".join(text.split())
    text = re.sub(r"^(?:[A-Z][A-Za-z]* )+Error: |^\[[A-Z_.0-9]+\] ", "", text)
    # What follows a first sentence is advice for people who write the engine's own SQL.
    text = re.split(r"(?<=[\w)\]'\"])[.!](?= [A-Z]|$)", text)[0].strip().rstrip(".!")
    is_word = text[1:2].islower()
    return (text[:1].lower() + text[1:] if is_word else text) or type(error).__name__


def _of_query(doubt: ExpressionError) -> ExpressionError:
    """What was said of a part of a query as if it were a filter."""
    text = re.sub(r"\(at: where, ", "(at: query, ", str(doubt))
    text = text.replace(", or build the filter with col('name') == value", "")
    # Symbols of a plan begin with the name of their table.
    text = re.sub(r"`([^`]+\.[^`]+)`", r"\1", text)
    found = type(doubt).__new__(type(doubt))
    Exception.__init__(found, text)
    return found


# --- What is known of the engine's words ------------------------------------------------------------------------------

_Say = Callable[["re.Match[str]", exp.Expr], str]


def _told(tree: exp.Expr, error: BaseException) -> TamisError | None:
    if isinstance(error, UnknownFunction):
        return EvaluationError(explain_unknown(error.name, _at_call(tree, error.name)))
    if isinstance(error, EvaluationError):
        return _no_words(tree, error)
    text = re.sub(r"\bspark_(?=\w+\()", "", str(error))
    if name := unknown_function(error if isinstance(error, Exception) else Exception(text)):
        return _no_function(name.removeprefix("spark_"), tree, text)
    if found := re.search(r"Cannot resolve routine `([^`]+)`", text):
        return _no_function(found[1], tree, text)
    for pattern, kind, say in _SAYINGS:
        if found := re.search(pattern, text):
            return kind(say(found, tree))
    if (told := wrong_arguments(text)) is not None:
        name = told.split(" does not take")[0]
        said, way_out = told.split(". ", 1)
        return TypeMismatch(f"{said}{_at_call(tree, name)}. {way_out}")
    return None


def _no_words(tree: exp.Expr, error: EvaluationError) -> TamisError:
    """What was said of a function while a query was translated, with the place of the function."""
    found = re.match(r"the embedded engine does not support this use of Spark's (\w+)(?=: )", str(error))
    place = "" if found is None else _at_call(tree, found[1]) or _at_kind(tree, found[1])
    count = re.search(r": it takes ([\w ]+?) arguments?, (?:not|and) (\d+)(?: are given)?\.", str(error))
    if found is not None and count is not None:
        wanted = f"{count[1]} argument{'' if count[1] in ('1', 'one') else 's'}"
        return ExpressionError(f"{found[1]} takes {wanted}, not {count[2]}{place}")
    return EvaluationError(str(error).replace(": ", f"{place}: ", 1))


def _at_kind(tree: exp.Expr, name: str) -> str:
    """Where an operator of that name stands."""
    kind = {"RLIKE": exp.RegexpLike, "LIKE": exp.Like, "ILIKE": exp.ILike}.get(name.upper())
    return "" if kind is None else _at(tree.find(kind))


def _no_function(name: str, tree: exp.Expr, text: str) -> TamisError:
    suggested = re.findall(r"Did you mean \"(?:main\.)?([^\"]+)\"", text)
    near = difflib.get_close_matches(name.lower(), [*suggested, *filter(str.isidentifier, FUNCTIONS)], n=1, cutoff=0.7)
    hint = f" Did you mean {near[0]}?" if near else ""
    return EvaluationError(
        f"there is no function {name}{_at_call(tree, name)}.{hint} docs/expressions.md lists what there is"
    )


def _at_call(tree: exp.Expr, name: str) -> str:
    calls = (each for each in tree.find_all(exp.Anonymous) if each.name.lower() == name.lower())
    return _at(next(calls, None))


def _at(node: exp.Expr | None) -> str:
    position = None if node is None else position_of(node)
    return "" if position is None else f" (at: query, {place_in_text(position)})"


def _at_column(tree: exp.Expr, name: str) -> str:
    return _at(next((each for each in tree.find_all(exp.Column) if each.name.casefold() == name.casefold()), None))


def _ungrouped(found: re.Match[str], tree: exp.Expr) -> str:
    name = (found[1] or found[2]).rpartition(".")[2]
    return (
        f"{name!r} is neither grouped by nor inside of an aggregate function{_at_column(tree, name)}. "
        f"Add it to GROUP BY, or take one of its values, as in any_value({name})"
    )


def _no_column(found: re.Match[str], tree: exp.Expr) -> str:
    near = re.search(r"Candidate bindings: \"(?:[^\"]*\.)?([^\".]+)\"", found.string)
    hint = f". Did you mean {near[1]!r}?" if near and difflib.get_close_matches(found[1], [near[1]], cutoff=0.6) else ""
    return f"no column {found[1]!r} in what is read{_at_column(tree, found[1])}{hint}"


def _unequal_widths(found: re.Match[str], tree: exp.Expr) -> str:
    operation = next(tree.find_all(exp.SetOperation), None)
    kind = "UNION" if operation is None else operation.key.upper()
    return f"the sides of {kind} have different numbers of columns: select as many on each side"


def _no_value_of_type(found: re.Match[str], tree: exp.Expr) -> str:
    value, wanted = found[1], engine_type_name(found[2])
    column = re.search(r"source column ([^\s.]+\.)?([^\s.]+)", found.string)
    if column is not None and column[2].startswith(ARGUMENT):
        column = None  # a value inside of one of our own functions
    literal = next((each for each in tree.find_all(exp.Literal) if each.is_string and each.name == value), None)
    if column is None and literal is not None:
        around = literal.parent if isinstance(literal.parent, exp.Binary | exp.Cast | exp.In) else literal
        return (
            f"{value!r} is no {wanted}, in {text_of(around)}{_at(literal)}. Correct the value, or cast the other side"
        )
    where = f" of {column[2]}" if column is not None else ""
    return f"the value {value!r}{where} is no {wanted}. Leave such values out, or make them NULL with TRY_CAST"


def _no_date(found: re.Match[str], tree: exp.Expr) -> str:
    literal = next((each for each in tree.find_all(exp.Literal) if each.name == found[2]), None)
    example = "DATE '2024-01-31'" if found[1] == "date" else "TIMESTAMP '2024-01-31 12:00:00'"
    return f"{found[2]!r} is no {found[1]}{_at(literal)}. Write a value such as {example}"


_DIVISIONS = frozenset(("mod", "pmod", "div"))


def _no_quotient(tree: exp.Expr) -> str:
    """That a number was divided by zero, and where it is known, in which division of the query."""
    found = [
        each
        for each in tree.find_all(exp.Div, exp.IntDiv, exp.Mod, exp.Anonymous)
        if not isinstance(each, exp.Anonymous) or (each.name.lower() in _DIVISIONS and len(each.expressions) == 2)
    ]
    of_zero = [each for each in found if _is_zero(each.expressions[1] if each.expressions else each.expression)]
    which = of_zero or found
    where = f" in {text_of(which[0])}{_at(which[0])}" if len(which) == 1 else ""
    return (
        f"division by zero{where}. Leave such rows out, as in CASE WHEN b <> 0 THEN a % b END, "
        "or make them NULL with try_divide or try_mod"
    )


def _is_zero(node: exp.Expr | None) -> bool:
    value = None if node is None else node.unnest()
    return isinstance(value, exp.Literal) and not value.is_string and not value.name.strip("0.")


_SAYINGS: tuple[tuple[str, type[TamisError], _Say], ...] = (
    (
        r"(?:column \"([^\"]+)\" must appear in the GROUP BY|[Nn]on-aggregating expression \"([^\"]+)\")",
        ExpressionError,
        _ungrouped,
    ),
    (
        r"Referenced column \"(.+?)\" (?:was )?not found",
        UnknownColumn,
        _no_column,
    ),
    (
        r"\* expression without FROM",
        ExpressionError,
        lambda found, tree: "* stands for the columns of what is in FROM, and there is no FROM",
    ),
    (
        r"(WHERE|GROUP BY|JOIN|LIMIT/OFFSET)(?: clause| condition)? cannot contain (aggregates|window functions)",
        ExpressionError,
        lambda found, tree: (
            f"{found[1]} is about single rows, and has {found[2]} in it. "
            + ("Filter groups with HAVING" if found[2] == "aggregates" else "Filter by a window function with QUALIFY")
        ),
    ),
    (
        r"(ORDER|GROUP BY) term out of range - should be between 1 and (\d+)",
        ExpressionError,
        lambda found, tree: (
            f"a number in {found[1].removesuffix(' BY')} BY is the place of a column, "
            f"and there {'is' if found[2] == '1' else 'are'} {counted(int(found[2]), 'column')}"
        ),
    ),
    (
        r"Set operations can only apply to expressions with the same number",
        ExpressionError,
        _unequal_widths,
    ),
    (
        r"Subquery returns (\d+) columns - expected (\d+)",
        ExpressionError,
        lambda found, tree: (
            f"a subquery returns {found[1]} columns where {found[2]} is expected: select the one that is compared"
        ),
    ),
    (
        r"More than one row returned by a subquery",
        EvaluationError,
        lambda found, tree: (
            "a subquery that stands for one value returned several rows. "
            "Aggregate it, as in (SELECT max(x) FROM t), or compare with IN"
        ),
    ),
    (
        r"VALUES lists must all be the same length, expected (\d+) entries but found a list with (\d+)",
        ExpressionError,
        lambda found, tree: f"the rows of VALUES have different lengths, {found[1]} and {found[2]}",
    ),
    (
        r"Could not convert string ['\"](.*)['\"] to (\w+)",
        EvaluationError,
        _no_value_of_type,
    ),
    (
        r"(date|timestamp) field value out of range: \"(.*?)\"",
        EvaluationError,
        _no_date,
    ),
    (
        r"invalid (date|timestamp) field format: \"(.*?)\"",
        EvaluationError,
        _no_date,
    ),
    (
        r"Unimplemented type for cast \((\w+) -> (\w+)\)",
        TypeMismatch,
        lambda found, tree: (
            f"{engine_type_name(found[1])} cannot be cast to {engine_type_name(found[2])}. "
            "A date is written DATE '2024-01-31', a time TIMESTAMP '2024-01-31 12:00:00'"
        ),
    ),
    (
        r"Cannot (?:compare|mix) values of type (\w+)\b[^A-Z]* (\w+)",
        TypeMismatch,
        lambda found, tree: (
            f"cannot compare {engine_type_name(found[1])} with {engine_type_name(found[2])}. "
            "Cast one side, as in CAST(x AS STRING)"
        ),
    ),
    (
        r"extract specifier \"(.+?)\" not recognized",
        EvaluationError,
        lambda found, tree: (
            f"{found[1].lower()!r} is no unit of time. Units: {', '.join(dict.fromkeys(DATE_TRUNC_UNITS.values()))}"
        ),
    ),
    (
        r"Error: (missing [)\]]|invalid (?:perl operator|escape sequence|character class range)"
        r"|no argument for repetition operator|bad repetition operator): (.*)",
        EvaluationError,
        lambda found, tree: f"the pattern {found[2]!r} is no regular expression: {found[1]}",
    ),
    (
        r"UNNEST\(\) can only be applied to lists, structs and NULL, not MAP|len does not take map|array_length\(MAP",
        ExpressionError,
        lambda found, tree: (
            "explode of a map that is computed has columns that are not known: name them, as in AS (key, value)"
        ),
    ),
    (
        r"(PARTITION|ORDER) BY window expressions cannot be volatile",
        EvaluationError,
        lambda found, tree: (
            f"{found[1]} BY of a window compares values that are the same each time: no maps, no random numbers"
        ),
    ),
    (
        r"[Dd]ivision by zero\b",
        EvaluationError,
        lambda found, tree: _no_quotient(tree),
    ),
)
"""What engines say, the class of the error, and what is said here."""


def _wrong_count(call: exp.Anonymous) -> str | None:
    """That a function has too many or too few arguments for sqlglot, which translates it."""
    kind = exp.FUNCTION_BY_NAME.get(call.name.upper())
    given = len(call.expressions)
    if kind is None:
        return None
    least = sum(kind.arg_types.values())
    most = given if kind.is_var_len_args else len(kind.arg_types)
    if least <= given <= most:
        return None
    wanted = counted(most, "argument") if given > most else f"at least {counted(least, 'argument')}"
    return f"{call.name} takes {wanted}, not {given}{_at(call)}"

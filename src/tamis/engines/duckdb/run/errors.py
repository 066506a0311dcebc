"""Error messages for predicates that the embedded engine cannot evaluate, in one line that says what to do.

DuckDB's own messages name internal columns (`given_value0`), span several lines, and recommend settings that users
cannot change.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence

import duckdb
import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tamis.engines.duckdb.translate.calls import UnknownFunction
from tamis.engines.duckdb.translate.functions import ARGUMENT_PREFIX, explain_unknown_function
from tamis.errors import (
    EvaluationError,
    ExpressionError,
    TamisError,
    TypeMismatch,
    UnknownColumn,
    format_count,
    format_position,
)
from tamis.expr.functions.kernels import DATE_TRUNC_UNITS
from tamis.expr.functions.table import FUNCTIONS, type_of
from tamis.expr.nodes import Call, Expr, walk
from tamis.expr.sql.printer import to_display_sql
from tamis.expr.sql.refusals import find_position
from tamis.expr.sql.syntax import to_sql_text
from tamis.query.sql.name_errors import find_name_error
from tamis.query.sql.sources import Tables
from tamis.types import is_number, is_text, type_name_with_article

_ALTERNATIVE = (
    "Write it with the functions that the reference of expressions lists, or filter the rows that the scan returns"
)
_ENGINE_TYPES = {
    "varchar": "string", "integer_literal": "int", "string_literal": "string", "integer": "int", "int8": "tinyint",
    "int16": "smallint", "int32": "int", "int64": "bigint", "timestamp with time zone": "timestamp",
}  # fmt: skip
_NO_FUNCTION = re.compile(r"Function with name (.+?) does not exist!")
_NO_EXTENSION = re.compile(r"Function with name \"(\w+)\" is not in the catalog")
_NO_OVERLOAD = re.compile(r"No function matches the given name and argument types '(.+?)\((.*?)\)'")
_TABLE_FUNCTION = re.compile(r"Function \"(\w+)\" is a table function")
_NO_UNIT = re.compile(r"[Ee]xtract specifier \"(.+?)\" not recognized")
_UNITS = ", ".join(dict.fromkeys(DATE_TRUNC_UNITS.values()))


def find_unknown_function(error: Exception) -> str | None:
    """Return the name of the function that DuckDB does not know, if that is the error."""
    found = _NO_FUNCTION.search(str(error)) or _NO_EXTENSION.search(str(error)) or _TABLE_FUNCTION.search(str(error))
    return found[1] if found else None


def explain_engine_error(error: Exception, given: Mapping[str, str], parts: Sequence[Expr] = ()) -> str:
    """Return why predicates could not be evaluated, and what to do; `given` maps internal columns to their texts."""
    text = str(error)
    match error:
        case duckdb.CatalogException() if name := find_unknown_function(error):
            near = _suggest_function(name, text)
            return f"there is no function {name}{f'; did you mean {near}?' if near else '.'} {_ALTERNATIVE}"
        case duckdb.BinderException() if found := _TABLE_FUNCTION.search(text):
            return f"{found[1]} returns a table, not a value, and a filter reads only its own table. {_ALTERNATIVE}"
        case _ if found := _NO_UNIT.search(text):
            return f"{found[1]!r} is not a unit of time. Units: {_UNITS}"
        case duckdb.OutOfRangeException() if found := _OVERFLOW.search(text):
            return _explain_overflow(found)
        case duckdb.Error() if mixed := next(filter(None, map(_explain_mixed_types, parts)), None):
            return mixed
        case duckdb.BinderException() if message := explain_wrong_arguments(text):
            return message
    reason = _simplify_reason(text, given)
    return f"{reason}. {_give_advice(error, text, parts)}"


def _suggest_function(name: str, text: str) -> str | None:
    """Return a function with a similar name. DuckDB always suggests one, however different its name is."""
    suggested = re.findall(r"Did you mean \"(?:main\.)?([^\"]+)\"", text)
    known = [*suggested, *filter(str.isidentifier, FUNCTIONS)]
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.7)), None)


def explain_wrong_arguments(text: str) -> str | None:
    """Return the message for arguments of wrong types, if that is DuckDB's error."""
    found = _NO_OVERLOAD.search(text)
    if found is None:
        return None
    types = ", ".join(map(translate_type_name, found[2].split(","))) if found[2] else "no argument"
    wanted = "DOUBLE" if "string" in types else "STRING"
    name = "LIKE" if found[1] in ("like_escape", "not_like_escape", "~~", "!~~") else found[1]
    if name in ("sum", "avg") and types != "string":
        return f"{name} does not take {types}, only numbers. Leave it out, or aggregate a number that it holds"
    return f"{name} does not take {types}. Cast the argument, as in CAST(x AS {wanted})"


def _explain_mixed_types(part: Expr) -> str | None:
    """Return the message for a CASE or COALESCE that mixes texts and values of another type, if there is one."""
    for node in walk(part):
        match node:
            case Call("case", args):
                values, what = (*args[1:-1:2], args[-1]), "the branches of CASE are"
            case Call("coalesce", args):
                values, what = args, "the arguments of coalesce are"
            case _:
                continue
        kinds = {type_of(value) for value in values} - {None}
        texts = [kind for kind in kinds if kind is not None and is_text(kind)]
        others = [kind for kind in kinds if kind is not None and not is_text(kind) and not pa.types.is_null(kind)]
        if texts and others:
            wanted = "DOUBLE" if is_number(others[0]) else "DATE" if pa.types.is_date(others[0]) else "TIMESTAMP"
            return (
                f"{what} of two types, {type_name_with_article(texts[0])} and {type_name_with_article(others[0])}. "
                f"Cast them to one, as in CAST(… AS STRING) or TRY_CAST(… AS {wanted})"
            )
    return None


def _simplify_reason(text: str, given: Mapping[str, str]) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "unknown reason")
    plain = re.sub(r"^[A-Z][A-Za-z -]* Error: ", "", line)
    # After the first sentence DuckDB gives advice for its own SQL.
    plain = re.split(r"(?<=[\w)\]'\"!])[.!] [A-Z]", plain)[0].strip().rstrip(".!")
    plain = re.sub(rf" when casting from source column {ARGUMENT_PREFIX}_\w+", "", plain)
    plain = re.sub(r" when casting from source column (\w+)", r", of \1", plain)
    # The advice comes from `_give_advice`.
    plain = re.sub(r"^(division by zero)\b.*", r"\1", plain, flags=re.IGNORECASE)
    for name, shown in given.items():
        plain = re.sub(rf"\b{re.escape(name)}\b", lambda _, shown=shown: shown, plain)  # type: ignore[misc]
    return plain[:1].lower() + plain[1:]


_DIVISION = re.compile(r"\b(DIV|pmod)\b|[/%]")


def _give_advice(error: Exception, text: str, parts: Sequence[Expr]) -> str:
    if "division by zero" in text.lower():
        found = next(filter(None, (_DIVISION.search(to_display_sql(part)) for part in parts)), None)
        operator = "/" if found is None else found[0]
        example = "pmod(a, nullif(b, 0))" if operator == "pmod" else f"a {operator} nullif(b, 0)"
        return f"Leave such rows out, or make them NULL, as in {example}"
    match error:
        case duckdb.ConversionException() if "ould not convert" in text or "when casting" in text or "be cast" in text:
            return "Leave such values out, or make them NULL with TRY_CAST"
        case duckdb.BinderException():
            return "Cast its parts to one type, as in CAST(x AS STRING)"
        case duckdb.DataError() | duckdb.InvalidInputException() | pa.ArrowInvalid():
            return "Leave such values out with another condition"
        case _:
            return _ALTERNATIVE


def explain_translation_error(error: SqlglotError) -> str:
    """Return why a predicate cannot be translated to DuckDB's SQL, and what to do."""
    plain = re.sub(r"\x1b\[[0-9;]*m|<class '[^']*'>", "", str(error)).strip()
    first = plain.splitlines()[0] if plain else "it cannot be translated"
    return f"{re.sub(r' for . Line .*$|. Line [0-9]+, Col.*$', '', first).strip().rstrip('.')}. {_ALTERNATIVE}"


def translate_type_name(name: str) -> str:
    """Return the name of a type in Spark's SQL.

    >>> translate_type_name("VARCHAR"), translate_type_name("INT64"), translate_type_name("DOUBLE")
    ('string', 'bigint', 'double')
    >>> translate_type_name("VARCHAR[]")
    'array<string>'
    """
    lowered = name.strip().lower()
    if lowered.endswith("[]"):
        return f"array<{translate_type_name(lowered[:-2])}>"
    return _ENGINE_TYPES.get(lowered, lowered)


# --- Error messages for queries that an engine rejects or fails to finish, phrased in terms of the query --------------
#
# An engine's message is about the SQL it received: internal table names, its own types, advice about settings that the
# user cannot change. Tamis replaces it where it knows better: an unresolved name (`query.sql.name_errors`), or an error
# that its own binder found in the query (`doubts`). Otherwise the first sentence of the engine's message remains.


def explain_rejection(
    tree: exp.Expr,
    tables: Tables,
    doubts: Sequence[ExpressionError],
    error: BaseException,
    otherwise: Callable[[str], TamisError],
) -> TamisError:
    """Return the error for a query that an engine rejects; `otherwise` wraps the engine's own message."""
    wrong = find_name_error(tree, tables)
    if wrong is not None:
        return wrong
    known = _explain_known(tree, error)
    if doubts and (known is None or isinstance(known, TypeMismatch)):
        return _rephrase_for_query(doubts[0])
    if known is not None:
        return known
    wrong_call = next(filter(None, map(_check_argument_count, tree.find_all(exp.Anonymous))), None)
    if wrong_call is not None and "argument" in str(error):
        return ExpressionError(wrong_call)
    return otherwise(shorten_message(error))


def explain_failure(tree: exp.Expr | None, doubts: Sequence[ExpressionError], error: BaseException) -> TamisError:
    """Return the error for a query that the embedded engine started but could not finish."""
    # The engine finds unconvertible values only while reading; the binder knew it from the types.
    doubt = next((each for each in doubts if isinstance(each, TypeMismatch)), None)
    if doubt is not None and (error is doubt or isinstance(error, duckdb.ConversionException)):
        return _rephrase_for_query(doubt)
    known = _explain_known(exp.Null() if tree is None else tree, error)
    return known or EvaluationError(f"the embedded engine could not finish the query: {shorten_message(error)}")


def shorten_message(error: BaseException) -> str:
    """Return the first sentence of an engine's message, without positions and advice."""
    text = re.sub(r"\x1b\[[0-9;]*m|<class '[^']*'>", "", str(error))
    text = re.split(r"\n\s*\n|\bLINE \d+:|; line \d+ pos|\. Line \d+, Col|\n\s*Candidate", text)[0]
    text = " ".join(text.split())
    text = re.sub(r"^(?:[A-Z][A-Za-z]* )+Error: |^\[[A-Z_.0-9]+\] ", "", text)
    # Later sentences are advice for people who write the engine's own SQL.
    text = re.split(r"(?<=[\w)\]'\"])[.!](?= [A-Z]|$)", text)[0].strip().rstrip(".!")
    is_word = text[1:2].islower()
    return (text[:1].lower() + text[1:] if is_word else text) or type(error).__name__


def _rephrase_for_query(doubt: ExpressionError) -> ExpressionError:
    """Return a binder error about a filter as an error about a query."""
    text = re.sub(r"\(at: where, ", "(at: query, ", str(doubt))
    text = text.replace(", or build the filter with col('name') == value", "")
    # Column ids of a plan begin with the name of their table.
    text = re.sub(r"`([^`]+\.[^`]+)`", r"\1", text)
    found = type(doubt).__new__(type(doubt))
    Exception.__init__(found, text)
    return found


# --- Known engine messages --------------------------------------------------------------------------------------------

_Format = Callable[["re.Match[str]", exp.Expr], str]


def _explain_known(tree: exp.Expr, error: BaseException) -> TamisError | None:
    if isinstance(error, UnknownFunction):
        return EvaluationError(explain_unknown_function(error.name, _locate_call(tree, error.name)))
    if isinstance(error, EvaluationError):
        return _explain_translation_error(tree, error)
    text = re.sub(r"\bspark_(?=\w+\()", "", str(error))
    if name := find_unknown_function(error if isinstance(error, Exception) else Exception(text)):
        return _explain_unknown_function(name.removeprefix("spark_"), tree, text)
    if found := re.search(r"Cannot resolve routine `([^`]+)`", text):
        return _explain_unknown_function(found[1], tree, text)
    for pattern, kind, explain in _KNOWN_MESSAGES:
        if found := re.search(pattern, text):
            return kind(explain.format(*found.groups()) if isinstance(explain, str) else explain(found, tree))
    if (message := explain_wrong_arguments(text)) is not None:
        name = message.split(" does not take")[0]
        problem, remedy = message.split(". ", 1)
        return TypeMismatch(f"{problem}{_locate_call(tree, name)}. {remedy}")
    return None


def _explain_translation_error(tree: exp.Expr, error: EvaluationError) -> TamisError:
    """Return an error that the translation raised about a function, with the position of the function."""
    found = re.match(r"the embedded engine does not support this use of Spark's (\w+)(?=: )", str(error))
    position = "" if found is None else _locate_call(tree, found[1]) or _locate_operator(tree, found[1])
    count = re.search(r": it takes ([\w ]+?) arguments?, (?:not|and) (\d+)(?: are given)?\.", str(error))
    if found is not None and count is not None:
        wanted = f"{count[1]} argument{'' if count[1] in ('1', 'one') else 's'}"
        return ExpressionError(f"{found[1]} takes {wanted}, not {count[2]}{position}")
    return EvaluationError(str(error).replace(": ", f"{position}: ", 1))


def _locate_operator(tree: exp.Expr, name: str) -> str:
    """Return where a query has the operator of this name, as the end of a message."""
    kind = {"RLIKE": exp.RegexpLike, "LIKE": exp.Like, "ILIKE": exp.ILike}.get(name.upper())
    return "" if kind is None else _locate(tree.find(kind))


def _explain_unknown_function(name: str, tree: exp.Expr, text: str) -> TamisError:
    near = _suggest_function(name.lower(), text)
    hint = f" Did you mean {near}?" if near else ""
    return EvaluationError(
        f"unknown function {name}{_locate_call(tree, name)}.{hint} "
        "The reference of expressions lists the supported functions"
    )


def _locate_call(tree: exp.Expr, name: str) -> str:
    calls = (each for each in tree.find_all(exp.Anonymous) if each.name.lower() == name.lower())
    return _locate(next(calls, None))


def _locate(node: exp.Expr | None) -> str:
    position = None if node is None else find_position(node)
    return "" if position is None else f" (at: query, {format_position(position)})"


def _locate_column(tree: exp.Expr, name: str) -> str:
    return _locate(next((each for each in tree.find_all(exp.Column) if each.name.casefold() == name.casefold()), None))


def _explain_ungrouped(found: re.Match[str], tree: exp.Expr) -> str:
    name = (found[1] or found[2]).rpartition(".")[2]
    return (
        f"{name!r} is neither grouped by nor inside of an aggregate function{_locate_column(tree, name)}. "
        f"Add it to GROUP BY, or aggregate it, as in any_value({name})"
    )


def _explain_unknown_column(found: re.Match[str], tree: exp.Expr) -> str:
    near = re.search(r"Candidate bindings: \"(?:[^\"]*\.)?([^\".]+)\"", found.string)
    hint = f". Did you mean {near[1]!r}?" if near and difflib.get_close_matches(found[1], [near[1]], cutoff=0.6) else ""
    return f"no column {found[1]!r} in the sources of the query{_locate_column(tree, found[1])}{hint}"


def _explain_position(found: re.Match[str], tree: exp.Expr) -> str:
    are = "is" if found[2] == "1" else "are"
    columns = format_count(int(found[2]), "column")
    return f"a number in {found[1]} BY is the position of a column, and there {are} {columns}"


def _explain_unequal_widths(found: re.Match[str], tree: exp.Expr) -> str:
    operation = next(tree.find_all(exp.SetOperation), None)
    kind = "UNION" if operation is None else operation.key.upper()
    return f"the sides of {kind} have different numbers of columns: select equally many on each side"


def _explain_invalid_value(found: re.Match[str], tree: exp.Expr) -> str:
    value, wanted = found[1], translate_type_name(found[2])
    column = re.search(r"source column ([^\s.]+\.)?([^\s.]+)", found.string)
    if column is not None and column[2].startswith(ARGUMENT_PREFIX):
        column = None  # an argument inside of a Tamis macro
    literal = next((each for each in tree.find_all(exp.Literal) if each.is_string and each.name == value), None)
    if column is None and literal is not None:
        around = literal.parent if isinstance(literal.parent, exp.Binary | exp.Cast | exp.In) else literal
        problem = f"invalid {wanted} {value!r} in {to_sql_text(around)}{_locate(literal)}"
        return f"{problem}. Correct the value, or cast the other side"
    where = f" in {column[2]}" if column is not None else ""
    return f"invalid {wanted} {value!r}{where}. Filter such values out, or make them NULL with TRY_CAST"


def _explain_out_of_range(found: re.Match[str], tree: exp.Expr) -> str:
    value, wanted, is_sum = found["value"], translate_type_name(found["wanted"]), found["given"] == "INT128"
    if is_sum:  # integers are summed as INT128
        return f"a sum is out of the range of {wanted}: sum a wider type, as in sum(CAST(x AS DECIMAL(28, 0)))"
    casts = [each for each in tree.find_all(exp.Cast) if each.to.sql("spark").lower().replace(", ", ",") == wanted]
    where = f" in {to_sql_text(casts[0])}{_locate(casts[0])}" if len(casts) == 1 else ""
    return f"{value} is out of the range of {wanted}{where}. Leave such values out, or make them NULL with TRY_CAST"


_OVERFLOW = re.compile(
    r"Overflow in (?:HUGEINT |SUM of DECIMAL)?(addition|subtraction|multiplication|)(?: of (\w+)(?:\((\d+)\))?)?:? "
    r"\(?([^();]*)"
)
_TRY_FUNCTIONS = {"addition": "try_add", "subtraction": "try_subtract", "multiplication": "try_multiply"}


def _explain_overflow(found: re.Match[str]) -> str:
    operation, kind, digits, operands = found.groups()
    if kind is None:  # decimals are summed as HUGEINT
        return "a sum of decimals has more than 38 digits. Sum doubles, as in sum(CAST(x AS DOUBLE))"
    limit = f"has more than {digits} digits" if digits else f"is out of the range of {translate_type_name(kind)}"
    wider = "DOUBLE" if digits else "DECIMAL(38, 0)" if kind == "INT64" else "BIGINT"
    return (
        f"{operands} {limit}. Cast an operand, as in CAST(a AS {wider}), or make such values NULL with "
        f"{_TRY_FUNCTIONS[operation]}(a, b)"
    )


def _explain_invalid_date(found: re.Match[str], tree: exp.Expr) -> str:
    literal = next((each for each in tree.find_all(exp.Literal) if each.name == found[2]), None)
    example = "DATE '2024-01-31'" if found[1] == "date" else "TIMESTAMP '2024-01-31 12:00:00'"
    return f"invalid {found[1]} {found[2]!r}{_locate(literal)}. Write a value such as {example}"


_DIVISIONS = frozenset(("mod", "pmod", "div"))


def _explain_division_by_zero(tree: exp.Expr) -> str:
    """Return a message about a division by zero, with the division if only one can be meant."""
    found = [
        each
        for each in tree.find_all(exp.Div, exp.IntDiv, exp.Mod, exp.Anonymous)
        if not isinstance(each, exp.Anonymous) or (each.name.lower() in _DIVISIONS and len(each.expressions) == 2)
    ]
    of_zero = [each for each in found if _is_zero(each.expressions[1] if each.expressions else each.expression)]
    which = of_zero or found
    where = f" in {to_sql_text(which[0])}{_locate(which[0])}" if len(which) == 1 else ""
    example = "a / nullif(b, 0)"
    match which:
        case [exp.Anonymous(name=name), *_]:
            example = f"{name}(a, nullif(b, 0))"
        case [exp.IntDiv() | exp.Mod() as division, *_]:
            example = f"a {'%' if isinstance(division, exp.Mod) else 'DIV'} nullif(b, 0)"
    return f"division by zero{where}. Leave such rows out, or make them NULL, as in {example}"


def _is_zero(node: exp.Expr | None) -> bool:
    value = None if node is None else node.unnest()
    return isinstance(value, exp.Literal) and not value.is_string and not value.name.strip("0.")


_KNOWN_MESSAGES: tuple[tuple[str, type[TamisError], str | _Format], ...] = (
    (
        r"(?:column \"([^\"]+)\" must appear in the GROUP BY|[Nn]on-aggregating expression \"([^\"]+)\")",
        ExpressionError,
        _explain_ungrouped,
    ),
    (r"Referenced column \"(.+?)\" (?:was )?not found", UnknownColumn, _explain_unknown_column),
    (r"\* expression without FROM", ExpressionError, "SELECT * needs a FROM clause, and the query has none"),
    (
        r"(WHERE|GROUP BY|JOIN|LIMIT/OFFSET)(?: clause| condition)? cannot contain aggregates",
        ExpressionError,
        "{0} cannot contain aggregates, because it applies to single rows. Filter groups with HAVING",
    ),
    (
        r"(WHERE|GROUP BY|JOIN|LIMIT/OFFSET)(?: clause| condition)? cannot contain window functions",
        ExpressionError,
        "{0} cannot contain window functions, because it applies to single rows. Filter by a window function with "
        "QUALIFY",
    ),
    (r"(ORDER|GROUP) (?:BY )?term out of range - should be between 1 and (\d+)", ExpressionError, _explain_position),
    (r"Set operations can only apply to expressions with the same number", ExpressionError, _explain_unequal_widths),
    (
        r"Subquery returns (\d+) columns - expected (\d+)",
        ExpressionError,
        "a subquery returns {0} columns, expected {1}: select only the column that is compared",
    ),
    (
        r"More than one row returned by a subquery",
        EvaluationError,
        "a scalar subquery returned several rows. Aggregate it, as in (SELECT max(x) FROM t), or compare with IN",
    ),
    (
        r"VALUES lists must all be the same length, expected (\d+) entries but found a list with (\d+)",
        ExpressionError,
        "the rows of VALUES have different lengths, {0} and {1}",
    ),
    (r"Could not convert string ['\"](.*)['\"] to (\w+)", EvaluationError, _explain_invalid_value),
    (r"(date|timestamp) field value out of range: \"(.*?)\"", EvaluationError, _explain_invalid_date),
    (r"invalid (date|timestamp) field format: \"(.*?)\"", EvaluationError, _explain_invalid_date),
    (
        r"Unimplemented type for cast \((\w+) -> (\w+)\)",
        TypeMismatch,
        lambda found, tree: (
            f"{translate_type_name(found[1])} cannot be cast to {translate_type_name(found[2])}. "
            "A date is written DATE '2024-01-31', a time TIMESTAMP '2024-01-31 12:00:00'"
        ),
    ),
    (
        r"Cannot (?:compare|mix) values of type (\w+)\b[^A-Z]* (\w+)",
        TypeMismatch,
        lambda found, tree: (
            f"cannot compare {translate_type_name(found[1])} with {translate_type_name(found[2])}. "
            "Cast one side, as in CAST(x AS STRING)"
        ),
    ),
    (
        _NO_UNIT.pattern,
        EvaluationError,
        lambda found, tree: f"invalid unit of time {found[1].lower()!r}. Units: {_UNITS}",
    ),
    (
        r"Error: (missing [)\]]|invalid (?:perl operator|escape sequence|character class range)"
        r"|no argument for repetition operator|bad repetition operator): (.*)",
        EvaluationError,
        "invalid regular expression {1!r}: {0}",
    ),
    (
        r"UNNEST\(\) can only be applied to lists, structs and NULL, not MAP|len does not take map|array_length\(MAP",
        ExpressionError,
        "explode of a computed map needs column names: add them, as in AS (key, value)",
    ),
    (
        r"(PARTITION|ORDER) BY window expressions cannot be volatile",
        EvaluationError,
        "{0} BY of a window cannot contain maps or random numbers: compute them in a subquery first",
    ),
    (
        r"[Tt]ype (?P<given>\w+)(?:\([\d,]+\))? with value (?P<value>\S+) can't be cast because the value is out of "
        r"range for the destination type (?P<wanted>\w+)",
        EvaluationError,
        _explain_out_of_range,
    ),
    (
        r"(?P<given>[Cc]asting|[Cc]ould not cast) value \"?(?P<value>[^\s\"]+)\"? to (?:type )?"
        r"(?P<wanted>DECIMAL\([\d,]+\))",
        EvaluationError,
        _explain_out_of_range,
    ),
    (_OVERFLOW.pattern, EvaluationError, lambda found, tree: _explain_overflow(found)),
    (r"[Dd]ivision by zero\b", EvaluationError, lambda found, tree: _explain_division_by_zero(tree)),
)
"""Patterns of engine messages, each with the class and the message of the error that replaces it.

A message may have the groups of the pattern, by their numbers from 0.
"""


def _check_argument_count(call: exp.Anonymous) -> str | None:
    """Return a message if a call has more or fewer arguments than sqlglot's translation accepts."""
    kind = exp.FUNCTION_BY_NAME.get(call.name.upper())
    given = len(call.expressions)
    if kind is None:
        return None
    least = sum(kind.arg_types.values())
    most = given if kind.is_var_len_args else len(kind.arg_types)
    if least <= given <= most:
        return None
    wanted = format_count(most, "argument") if given > most else f"at least {format_count(least, 'argument')}"
    return f"{call.name} takes {wanted}, not {given}{_locate(call)}"

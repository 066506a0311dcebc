"""What the embedded engine says when it cannot evaluate a predicate, in one line that names the way out.

Its own words are about the columns that it was given (`given_value0`), go over several lines, and advise settings that
nobody can reach.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa
from sqlglot.errors import SqlglotError

from tamis.expr.functions import FUNCTIONS, type_of
from tamis.expr.kernels import DATE_TRUNC_UNITS
from tamis.expr.nodes import Call, Expr, walk
from tamis.types import a_type, is_number, is_text

_ELSEWHERE = "Write it with the functions that docs/expressions.md lists, or filter the rows that the scan returns"
_ENGINE_TYPES = {
    "varchar": "string", "integer_literal": "int", "string_literal": "string", "integer": "int", "int8": "tinyint",
    "int16": "smallint", "int32": "int", "int64": "bigint", "timestamp with time zone": "timestamp",
}  # fmt: skip
_NO_FUNCTION = re.compile(r"Function with name (.+?) does not exist!(?:\s*Did you mean \"(?:main\.)?([^\"]+)\")?")
_NO_EXTENSION = re.compile(r"Function with name \"(\w+)\" is not in the catalog")
_NO_MATCH = re.compile(r"No function matches the given name and argument types '(.+?)\((.*?)\)'")
_NO_VALUE = re.compile(r"Function \"(\w+)\" is a table function")
_NO_UNIT = re.compile(r"extract specifier \"(.+?)\" not recognized", re.IGNORECASE)


def unknown_function(error: Exception) -> str | None:
    """The name of the function that the engine does not know, if that was the error."""
    found = _NO_FUNCTION.search(str(error)) or _NO_EXTENSION.search(str(error)) or _NO_VALUE.search(str(error))
    return found[1] if found else None


def explain_engine_error(error: Exception, given: Mapping[str, str], parts: Sequence[Expr] = ()) -> str:
    """Why predicates could not be evaluated, and what to do; `given` are the texts of the columns that were given."""
    text = str(error)
    match error:
        case duckdb.CatalogException() if name := unknown_function(error):
            suggested = _NO_FUNCTION.search(text)
            # The engine names some function always, be it ever so far.
            known = [
                *(suggested.groups()[1:] if suggested and suggested[2] else ()),
                *filter(str.isidentifier, FUNCTIONS),
            ]
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
            return f"there is no function {name}{f'; did you mean {near[0]}?' if near else '.'} {_ELSEWHERE}"
        case duckdb.BinderException() if found := _NO_VALUE.search(text):
            return f"{found[1]} gives a table and no value, and a filter reads nothing but the table. {_ELSEWHERE}"
        case _ if found := _NO_UNIT.search(text):
            units = ", ".join(dict.fromkeys(DATE_TRUNC_UNITS.values()))
            return f"{found[1]!r} is no unit of time. Units: {units}"
        case duckdb.Error() if mixed := next(filter(None, map(_mixed_types, parts)), None):
            return mixed
        case duckdb.BinderException() if told := wrong_arguments(text):
            return told
    reason = _reason(text, given)
    return f"{reason}. {_way_out(error, text)}"


def wrong_arguments(text: str) -> str | None:
    """That a function does not take arguments of these types, if that is what the engine says."""
    found = _NO_MATCH.search(text)
    if found is None:
        return None
    taken = ", ".join(map(engine_type_name, found[2].split(","))) if found[2] else "no argument"
    wanted = "DOUBLE" if "string" in taken else "STRING"
    name = "LIKE" if found[1] in ("like_escape", "not_like_escape", "~~", "!~~") else found[1]
    return f"{name} does not take {taken}. Cast the argument, as in CAST(x AS {wanted})"


def _mixed_types(part: Expr) -> str | None:
    """That a CASE or a COALESCE gives a text here and something else there, where one does."""
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
                f"{what} of two types, {a_type(texts[0])} and {a_type(others[0])}. "
                f"Cast them to one, as in CAST(… AS STRING) or TRY_CAST(… AS {wanted})"
            )
    return None


def _reason(text: str, given: Mapping[str, str]) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "unknown reason")
    plain = re.sub(r"^[A-Z][A-Za-z -]* Error: ", "", line)
    # What follows a first sentence is advice for people who write the engine's SQL.
    plain = re.split(r"(?<=[\w)\]'\"!])[.!] [A-Z]", plain)[0].strip().rstrip(".!")
    plain = re.sub(r" when casting from source column (\w+)", r", of \1", plain)
    # Which way out there is, is said behind it.
    plain = re.sub(r"^(division by zero)\b.*", r"\1", plain, flags=re.IGNORECASE)
    for name, shown in given.items():
        plain = re.sub(rf"\b{re.escape(name)}\b", lambda _, shown=shown: shown, plain)  # type: ignore[misc]
    return plain[:1].lower() + plain[1:]


def _way_out(error: Exception, text: str) -> str:
    if "division by zero" in text.lower():
        return "Leave such rows out, as in CASE WHEN b <> 0 THEN a % b END = 1, or use try_divide or try_mod"
    match error:
        case duckdb.ConversionException() if "ould not convert" in text or "when casting" in text:
            return "Leave such values out, or make them NULL with TRY_CAST"
        case duckdb.BinderException():
            return "Cast its parts to one type, as in CAST(x AS STRING)"
        case duckdb.DataError() | duckdb.InvalidInputException() | pa.ArrowInvalid():
            return "Leave such values out with another condition"
        case _:
            return _ELSEWHERE


def explain_translation_error(error: SqlglotError) -> str:
    """Why a predicate has no counterpart in the engine's SQL, and what to do."""
    plain = re.sub(r"\x1b\[[0-9;]*m|<class '[^']*'>", "", str(error)).strip()
    first = plain.splitlines()[0] if plain else "no counterpart"
    return f"{re.sub(r' for . Line .*$|. Line [0-9]+, Col.*$', '', first).strip().rstrip('.')}. {_ELSEWHERE}"


def engine_type_name(name: str) -> str:
    """A type as Spark's SQL calls it.

    >>> engine_type_name("VARCHAR"), engine_type_name("INT64"), engine_type_name("DOUBLE")
    ('string', 'bigint', 'double')
    """
    lowered = name.strip().lower()
    return _ENGINE_TYPES.get(lowered, lowered)

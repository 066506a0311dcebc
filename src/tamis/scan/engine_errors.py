"""What the embedded engine says when it cannot evaluate a predicate, in one line that names the way out.

Its own words are about the columns that it was given (`given_value0`), go over several lines, and advise settings that
nobody can reach.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

import duckdb
import pyarrow as pa
from sqlglot.errors import SqlglotError

_ELSEWHERE = "Write it with the functions that docs/expressions.md lists, or filter the rows that the scan returns"
_ENGINE_TYPES = {"varchar": "string", "integer_literal": "int", "string_literal": "string", "integer": "int"}
_NO_FUNCTION = re.compile(r"Function with name (.+?) does not exist!(?:\s*Did you mean \"(?:main\.)?([^\"]+)\")?")
_NO_MATCH = re.compile(r"No function matches the given name and argument types '(.+?)\((.*?)\)'")


def explain_engine_error(error: Exception, given: Mapping[str, str]) -> str:
    """Why a predicate could not be evaluated, and what to do; `given` are the texts of the columns that were given."""
    text = str(error)
    match error:
        case duckdb.CatalogException() if found := _NO_FUNCTION.search(text):
            # The engine names some function always, be it ever so far.
            is_near = bool(difflib.get_close_matches(found[1], [found[2] or ""], cutoff=0.7))
            near = f"; did you mean {found[2]}?" if is_near else "."
            return f"there is no function {found[1]}{near} {_ELSEWHERE}"
        case duckdb.BinderException() if found := _NO_MATCH.search(text):
            taken = ", ".join(_type_name(each) for each in found[2].split(",")) if found[2] else "no argument"
            wanted = "DOUBLE" if "string" in taken else "STRING"
            return f"{found[1]} does not take {taken}. Cast the argument, as in CAST(x AS {wanted})"
    reason = _reason(text, given)
    return f"{reason}. {_way_out(error, text)}"


def _reason(text: str, given: Mapping[str, str]) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "unknown reason")
    plain = re.sub(r"^[A-Z][A-Za-z -]* Error: ", "", line)
    # What follows a first sentence is advice for people who write the engine's SQL.
    plain = re.split(r"(?<=[\w)\]'\"!])[.!] [A-Z]", plain)[0].strip().rstrip(".!")
    plain = re.sub(r" when casting from source column (\w+)", r", of \1", plain)
    for name, shown in given.items():
        plain = re.sub(rf"\b{re.escape(name)}\b", lambda _, shown=shown: shown, plain)  # type: ignore[misc]
    return plain[:1].lower() + plain[1:]


def _way_out(error: Exception, text: str) -> str:
    if "Division by zero" in text:
        return "Leave such rows out, as in CASE WHEN b <> 0 THEN a % b END = 1"
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


def _type_name(name: str) -> str:
    lowered = name.strip().lower()
    return _ENGINE_TYPES.get(lowered, lowered)

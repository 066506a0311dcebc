"""Error messages for predicates that the embedded engine cannot evaluate, in one line that says what to do.

DuckDB's own messages name internal columns (`given_value0`), span several lines, and recommend settings that users
cannot change.
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
from tamis.types import is_number, is_text, type_name_with_article

_ALTERNATIVE = "Write it with the functions that docs/expressions.md lists, or filter the rows that the scan returns"
_ENGINE_TYPES = {
    "varchar": "string", "integer_literal": "int", "string_literal": "string", "integer": "int", "int8": "tinyint",
    "int16": "smallint", "int32": "int", "int64": "bigint", "timestamp with time zone": "timestamp",
}  # fmt: skip
_NO_FUNCTION = re.compile(r"Function with name (.+?) does not exist!(?:\s*Did you mean \"(?:main\.)?([^\"]+)\")?")
_NO_EXTENSION = re.compile(r"Function with name \"(\w+)\" is not in the catalog")
_NO_OVERLOAD = re.compile(r"No function matches the given name and argument types '(.+?)\((.*?)\)'")
_TABLE_FUNCTION = re.compile(r"Function \"(\w+)\" is a table function")
_NO_UNIT = re.compile(r"extract specifier \"(.+?)\" not recognized", re.IGNORECASE)


def find_unknown_function(error: Exception) -> str | None:
    """Return the name of the function that DuckDB does not know, if that is the error."""
    found = _NO_FUNCTION.search(str(error)) or _NO_EXTENSION.search(str(error)) or _TABLE_FUNCTION.search(str(error))
    return found[1] if found else None


def explain_engine_error(error: Exception, given: Mapping[str, str], parts: Sequence[Expr] = ()) -> str:
    """Return why predicates could not be evaluated, and what to do; `given` maps internal columns to their texts."""
    text = str(error)
    match error:
        case duckdb.CatalogException() if name := find_unknown_function(error):
            suggested = _NO_FUNCTION.search(text)
            # DuckDB always suggests a function, however different its name is.
            known = [
                *(suggested.groups()[1:] if suggested and suggested[2] else ()),
                *filter(str.isidentifier, FUNCTIONS),
            ]
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
            return f"there is no function {name}{f'; did you mean {near[0]}?' if near else '.'} {_ALTERNATIVE}"
        case duckdb.BinderException() if found := _TABLE_FUNCTION.search(text):
            return f"{found[1]} returns a table, not a value, and a filter reads only its own table. {_ALTERNATIVE}"
        case _ if found := _NO_UNIT.search(text):
            units = ", ".join(dict.fromkeys(DATE_TRUNC_UNITS.values()))
            return f"{found[1]!r} is not a unit of time. Units: {units}"
        case duckdb.Error() if mixed := next(filter(None, map(_explain_mixed_types, parts)), None):
            return mixed
        case duckdb.BinderException() if message := explain_wrong_arguments(text):
            return message
    reason = _simplify_reason(text, given)
    return f"{reason}. {_give_advice(error, text)}"


def explain_wrong_arguments(text: str) -> str | None:
    """Return the message for arguments of wrong types, if that is DuckDB's error."""
    found = _NO_OVERLOAD.search(text)
    if found is None:
        return None
    types = ", ".join(map(engine_type_name, found[2].split(","))) if found[2] else "no argument"
    wanted = "DOUBLE" if "string" in types else "STRING"
    name = "LIKE" if found[1] in ("like_escape", "not_like_escape", "~~", "!~~") else found[1]
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
    plain = re.sub(r" when casting from source column (\w+)", r", of \1", plain)
    # The advice comes from `_give_advice`.
    plain = re.sub(r"^(division by zero)\b.*", r"\1", plain, flags=re.IGNORECASE)
    for name, shown in given.items():
        plain = re.sub(rf"\b{re.escape(name)}\b", lambda _, shown=shown: shown, plain)  # type: ignore[misc]
    return plain[:1].lower() + plain[1:]


def _give_advice(error: Exception, text: str) -> str:
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
            return _ALTERNATIVE


def explain_translation_error(error: SqlglotError) -> str:
    """Return why a predicate cannot be translated to DuckDB's SQL, and what to do."""
    plain = re.sub(r"\x1b\[[0-9;]*m|<class '[^']*'>", "", str(error)).strip()
    first = plain.splitlines()[0] if plain else "it cannot be translated"
    return f"{re.sub(r' for . Line .*$|. Line [0-9]+, Col.*$', '', first).strip().rstrip('.')}. {_ALTERNATIVE}"


def engine_type_name(name: str) -> str:
    """Return the name of a type in Spark's SQL.

    >>> engine_type_name("VARCHAR"), engine_type_name("INT64"), engine_type_name("DOUBLE")
    ('string', 'bigint', 'double')
    """
    lowered = name.strip().lower()
    return _ENGINE_TYPES.get(lowered, lowered)

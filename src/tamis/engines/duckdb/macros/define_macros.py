"""Macros from a text in which each one is an SQL expression below its name and parameters:

    array_append(x, item):
        -- A comment.
        CASE WHEN x IS NOT NULL
        THEN list_append(x, item) END

Macros of one name are the overloads of one macro, in their order.
"""

from __future__ import annotations

import re
import textwrap

from tamis.engines.duckdb.translate.calls import Macro, Macros

_HEADER = re.compile(r"(?P<name>\w+)\((?P<parameters>.*?)\):(?: (?P<body>.*))?")
_BETWEEN_PARAMETERS = re.compile(r", (?![^(]*\))")


def define_macros(text: str) -> Macros:
    """Return the macros of a text.

    >>> define_macros("half(x DECIMAL(9, 2), y): x / 2\\nhalf(x):\\n    CASE WHEN x > 0\\n    THEN x / 2 END")
    {'half': [(('x DECIMAL(9, 2)', 'y'), 'x / 2'), (('x',), 'CASE WHEN x > 0 THEN x / 2 END')]}
    """
    found: dict[str, list[tuple[tuple[str, ...], list[str]]]] = {}
    body: list[str] = []
    for line in textwrap.dedent(text).split("\n"):
        if not line.strip() or line.lstrip().startswith("--"):
            continue
        header = None if line.startswith(" ") else _HEADER.fullmatch(line)
        if header is None:
            body.append(line.strip())
            continue
        body = [header["body"]] if header["body"] else []
        parameters = _BETWEEN_PARAMETERS.split(header["parameters"]) if header["parameters"] else []
        found.setdefault(header["name"], []).append((tuple(parameters), body))
    macros = {name: [(parameters, " ".join(lines)) for parameters, lines in each] for name, each in found.items()}
    return {name: _get_only(overloads) for name, overloads in macros.items()}


def _get_only(overloads: list[Macro]) -> Macro | list[Macro]:
    return overloads[0] if len(overloads) == 1 else overloads

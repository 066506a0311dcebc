"""Macros from a text in which each one is an SQL expression below its name and parameters:

    array_append(x, item):
        -- A comment.
        CASE WHEN x IS NOT NULL
        THEN list_append(x, item) END
    add_days | add_times(x TIMESTAMP | TIMESTAMPTZ, i): x + i

Macros of one name are the overloads of one macro, in their order. A vertical bar separates names that share an
expression, and the types of a parameter, which have an overload each.
"""

from __future__ import annotations

import re
import textwrap
from itertools import product

from tamis.engines.duckdb.translate.calls import Macro, Macros

_HEADER = re.compile(r"(?P<names>\w+(?: \| \w+)*)\((?P<parameters>.*?)\):(?: (?P<body>.*))?")
_BETWEEN_PARAMETERS = re.compile(r", (?![^(]*\))")


def define_macros(text: str) -> Macros:
    """Return the macros of a text.

    >>> define_macros("half(x DECIMAL(9, 2), y): x / 2\\nhalf(x):\\n    CASE WHEN x > 0\\n    THEN x / 2 END")
    {'half': [(('x DECIMAL(9, 2)', 'y'), 'x / 2'), (('x',), 'CASE WHEN x > 0 THEN x / 2 END')]}
    >>> define_macros("a | b(x DATE | TIME): x")
    {'a': [(('x DATE',), 'x'), (('x TIME',), 'x')], 'b': [(('x DATE',), 'x'), (('x TIME',), 'x')]}
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
        for name in header["names"].split(" | "):
            found.setdefault(name, []).extend((each, body) for each in product(*map(_list_types, parameters)))
    macros = {name: [(parameters, " ".join(lines)) for parameters, lines in each] for name, each in found.items()}
    return {name: _get_only(overloads) for name, overloads in macros.items()}


def _list_types(parameter: str) -> list[str]:
    """Return a parameter with each of its types."""
    name, _, types = parameter.partition(" ")
    return [f"{name} {each}".strip() for each in types.split(" | ")]


def _get_only(overloads: list[Macro]) -> Macro | list[Macro]:
    return overloads[0] if len(overloads) == 1 else overloads

"""SQL expressions with numbered arguments, as in `power({0}, {1})`: how databases spell a function of the table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import sqlglot
from sqlglot import exp

_ARGUMENT = re.compile(r"\{(\d+)\}")
_ATOMS = (exp.Column, exp.Literal, exp.Paren, exp.Null, exp.Boolean, exp.Func)


def fill_template(template: str, dialect: str, args: Sequence[exp.Expr]) -> exp.Expr:
    """Return the tree of an expression in a dialect of sqlglot, with the arguments in their places.

    >>> fill_template("{0} * 2", "duckdb", [exp.column("a") + 1]).sql("duckdb")
    '(a + 1) * 2'
    """

    def replace(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Placeholder):
            return node
        arg = args[int(node.name.removeprefix("argument"))].copy()
        return arg if isinstance(arg, _ATOMS) and not isinstance(arg, exp.Binary) else exp.Paren(this=arg)

    return _parse(template, dialect).transform(replace)


@cache
def _parse(template: str, dialect: str) -> exp.Expr:
    return sqlglot.parse_one(_ARGUMENT.sub(r":argument\1", template), read=dialect)

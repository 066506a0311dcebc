"""Operators and casts with Spark's semantics, where DuckDB's operator differs.

An operator becomes a macro whose overloads DuckDB picks by the types of its operands when it binds a query. So it
means the same everywhere: in a projection, beside a window, under a lateral view, in a filter. The overload for all
other types is the plain operator, which DuckDB's optimizer understands.

| Spark (ANSI mode)                            | DuckDB                           |
|----------------------------------------------|----------------------------------|
| a text beside a whole number is a bigint     | no such operator                 |
| a text beside any other number is a double   | no such operator                 |
| a text beside a date, … is a date, …         | only where the text is a literal |
| a boolean is not a number: an error          | TRUE is 1                        |
| x / 0 and x % 0 are errors                   | infinite, NULL or NaN            |
| a float beside another number is a double    | a float                          |
| a literal is an int, and so is `tiny * 2`    | of the type of the other side    |
| quotients of decimals have their own scale   | a double                         |
| `div` of decimals is a bigint                | a decimal with a fraction        |
"""

from __future__ import annotations

import re

from sqlglot import exp

from tamis.engines.duckdb.macros.define_macros import define_macros
from tamis.engines.duckdb.translate.calls import (
    Macro,
    Macros,
    call_macro,
    define_by_type,
    has_aggregate_or_window,
    is_in_nested_subquery,
    strip_parentheses,
)
from tamis.expr.sql.to_tree import build_type

_TEXT_BESIDE = {"BOOLEAN": "spark_boolean", "DATE": "spark_text_date", "TIMESTAMP": "spark_text_timestamp_ntz",
                "TIMESTAMPTZ": "spark_text_timestamp"}  # fmt: skip
"""The macros that cast a text beside a value of a type."""


def coerce_texts(body: str, prefix: str = "") -> list[Macro]:
    """Return the overloads of an operator of two numbers where at least one operand is a text."""
    number = re.sub(r"\b([xy])\b", r"{\1}", body)
    double, whole = f"spark_{prefix}double({{}})", f"spark_{prefix}bigint({{}})"
    return [
        (("x VARCHAR", "y VARCHAR"), number.format(x=double.format("x"), y=double.format("y"))),
        (("x VARCHAR", "y BIGINT"), number.format(x=whole.format("x"), y="y")),
        (("x BIGINT", "y VARCHAR"), number.format(x="x", y=whole.format("y"))),
        (("x VARCHAR", "y DOUBLE"), number.format(x=double.format("x"), y="y")),
        (("x DOUBLE", "y VARCHAR"), number.format(x="x", y=double.format("y"))),
    ]


def _define_small_integers(plain: str) -> list[Macro]:
    """Return overloads for two operands that are NULL without a type: without them several others would match."""
    return [((f"x {kind}", f"y {kind}"), plain) for kind in ("TINYINT", "SMALLINT", "INTEGER")]


def _reject_booleans(what: str) -> list[Macro]:
    refused = f"CASE WHEN x IS NULL AND y IS NULL THEN NULL ELSE error('{what}: cast the boolean') END"
    return [(("x BOOLEAN", "y DOUBLE"), refused), (("x DOUBLE", "y BOOLEAN"), refused)]


def _define_arithmetic(plain: str) -> list[Macro]:
    refused = "error('booleans are not numbers: cast them')"
    return [
        *coerce_texts(plain),
        *_define_small_integers(plain),
        *_reject_booleans("a number and a boolean cannot be combined"),
        (("x BOOLEAN", "y BOOLEAN"), refused),
        (("x", "y"), plain),
    ]


def _define_for_numbers(name: str, body: str) -> Macros:
    """Return a macro of two numbers `p` and `q`, and a variant that computes its operands once, for nested operands."""
    once = f"list_transform([{{'p': p, 'q': q}}], lambda pair: spark_{name}(pair.p, pair.q))[1]"
    return {name: (("p", "q"), body), f"{name}_once": (("p", "q"), once)}


_COMPARISONS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("equal", "="), exp.NEQ: ("not_equal", "<>"), exp.LT: ("less", "<"), exp.LTE: ("less_or_equal", "<="),
    exp.GT: ("greater", ">"), exp.GTE: ("greater_or_equal", ">="), exp.NullSafeEQ: ("same", "IS NOT DISTINCT FROM"),
    exp.NullSafeNEQ: ("not_same", "IS DISTINCT FROM"),
}  # fmt: skip
"""The macros of comparisons, and DuckDB's operators."""


def _define_comparison(sign: str) -> list[Macro]:
    found = coerce_texts(f"x {sign} y")
    # Two texts are compared as texts.
    found[0] = (("x VARCHAR", "y VARCHAR"), f"x {sign} y")
    for kind, cast in _TEXT_BESIDE.items():
        found.append(((f"x {kind}", "y VARCHAR"), f"x {sign} {cast}(y)"))
        found.append((("x VARCHAR", f"y {kind}"), f"{cast}(x) {sign} y"))
    found += [
        *_define_small_integers(f"x {sign} y"),
        (("x BLOB", "y VARCHAR"), f"x {sign} encode(y)"),
        (("x VARCHAR", "y BLOB"), f"encode(x) {sign} y"),
        *_reject_booleans("a number and a boolean cannot be compared"),
        (("x BOOLEAN", "y BOOLEAN"), f"x {sign} y"),
        (("x", "y"), f"x {sign} y"),
    ]
    return found


_SCALE = "CAST(coalesce(nullif(regexp_extract(typeof({0}), 'DECIMAL\\(\\d+,(\\d+)\\)', 1), ''), '0') AS INTEGER)"
_DIGITS = (
    "CASE typeof({0}) WHEN 'TINYINT' THEN 3 WHEN 'SMALLINT' THEN 5 WHEN 'INTEGER' THEN 10 WHEN 'BIGINT' THEN 20 "
    "WHEN 'HUGEINT' THEN 20 "  # a sum of whole numbers, which is a bigint in Spark
    # A sum has 38 digits in DuckDB, and in Spark ten more than its values have.
    "ELSE CAST(replace(coalesce(nullif(regexp_extract(typeof({0}), 'DECIMAL\\((\\d+),', 1), ''), '0'), '38', '20') "
    "AS INTEGER) END"
)
_ARE_DECIMALS = (
    "(typeof(p) LIKE 'DECIMAL%' OR typeof(q) LIKE 'DECIMAL%') "
    "AND typeof(p) NOT IN ('DOUBLE', 'FLOAT') AND typeof(q) NOT IN ('DOUBLE', 'FLOAT')"
)
_DIVISION_BY_ZERO = "error('division by zero: leave such rows out, or use try_divide')"

_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_TRIMMED = "trim(CAST(x AS VARCHAR), ' \t\n\r\f\v')"


def _define_casts(prefix: str) -> Macros:
    """Return the casts to numbers and booleans: with the prefix `try_` they return NULL where the others fail."""

    def fail(wanted: str, target: str) -> str:
        if prefix:
            return f"CAST(NULL AS {target})"
        shown = (
            "CASE WHEN typeof(x) = 'VARCHAR' THEN 'the text ''' || CAST(x AS VARCHAR) || '''' ELSE lower(typeof(x)) END"
        )
        found = f"error({shown} || ' is not a {wanted}: correct it, or use TRY_CAST')"
        return f"CASE WHEN x IS NOT NULL THEN CAST({found} AS {target}) END"

    cast = "TRY_CAST" if prefix else "CAST"
    found: Macros = {}
    for name, target in (("double", "DOUBLE"), ("float", "FLOAT")):
        bodies = {
            "VARCHAR": f"CASE WHEN regexp_full_match({_TRIMMED}, '{_NUMBER}[dDfF]?') "
            f"THEN {cast}(rtrim({_TRIMMED}, 'dDfF') AS {target}) "
            f"WHEN regexp_full_match(lower({_TRIMMED}), 'nan|[+-]?inf(inity)?') THEN {cast}({_TRIMMED} AS {target}) "
            f"ELSE {fail('number', target)} END",
            "DATE | TIMESTAMP | INTERVAL | BLOB": fail("number", target),
            "TIMESTAMPTZ": f"CAST(epoch_us(x) / 1000000 AS {target})",
            "": f"{cast}(x AS {target})",
        }
        found |= define_by_type(f"{prefix}{name}", bodies)
    found |= define_by_type(
        f"{prefix}boolean",
        {
            "VARCHAR": f"CASE WHEN lower({_TRIMMED}) IN ('t', 'true', 'y', 'yes', '1') THEN TRUE "
            f"WHEN lower({_TRIMMED}) IN ('f', 'false', 'n', 'no', '0') THEN FALSE "
            f"ELSE {fail('boolean', 'BOOLEAN')} END",
            "DATE | TIMESTAMP | TIMESTAMPTZ | INTERVAL | BLOB": fail("boolean", "BOOLEAN"),
            "DOUBLE | FLOAT": "x <> 0",
            "": f"{cast}(x AS BOOLEAN)",
        },
    )
    # The source of a cast to a decimal: a float is cast by its decimal digits.
    found |= define_by_type(
        f"{prefix}exact_number",
        {
            "VARCHAR": f"CASE WHEN regexp_full_match({_TRIMMED}, '{_NUMBER}') THEN {_TRIMMED} "
            f"ELSE {fail('number', 'VARCHAR')} END",
            "DOUBLE | FLOAT": "CAST(x AS VARCHAR)",
            "BOOLEAN": "CAST(x AS INTEGER)",
            "DATE | TIMESTAMP | BLOB": fail("number", "INTEGER"),
            "TIMESTAMPTZ": "CAST(epoch_us(x) AS DECIMAL(38, 6)) / 1000000",
            "": "x",
        },
    )
    return found


CASTS: Macros = {
    **_define_casts(""),
    **_define_casts("try_"),
    **define_by_type(
        "binary",
        {
            "VARCHAR": "encode(x)",
            "BLOB": "x",
            "": "CASE WHEN x IS NOT NULL THEN CAST(error(lower(typeof(x)) || "
            "' cannot be cast to bytes: cast it to a text first') AS BLOB) END",
        },
    ),
}

MACROS: Macros = CASTS | define_macros(
    rf"""
    quotient(p, q, i, j):
        CASE WHEN q = 0 AND p IS NOT NULL THEN {_DIVISION_BY_ZERO}
        WHEN {_ARE_DECIMALS} THEN round(p / q, spark_scale_of_quotient({_SCALE.format('p')}, {_SCALE.format('q')},
        coalesce(i, {_DIGITS.format('p')}), coalesce(j, {_DIGITS.format('q')})))
        ELSE CAST(p AS DOUBLE) / CAST(q AS DOUBLE) END
    -- Exact where the product has at most 38 digits; Spark has no more digits either.
    rounded_product(p, q, s): round(coalesce(TRY(p * q), CAST(p AS DOUBLE) * CAST(q AS DOUBLE)), s)
    try_quotient(p, q, i, j): CASE WHEN q <> 0 THEN spark_quotient(p, q, i, j) END
    quotient_once(p, q, i, j):
        list_transform([{{'p': p, 'q': q}}], lambda pair: spark_quotient(pair.p, pair.q, i, j))[1]
    -- A quotient of decimals has at least six digits after the point, and loses others beyond a precision of 38.
    scale_of_quotient(s, t, i, j):
        CASE WHEN i - s + t + greatest(6, s + j + 1) <= 38 THEN greatest(6, s + j + 1)
        ELSE greatest(6, 38 - (i - s + t)) END
    """
) | {
    "add": _define_arithmetic("x + y"),
    "subtract": _define_arithmetic("x - y"),
    "multiply": _define_arithmetic("x * y"),
    # `i` and `j` are the precisions of operands that are literals, because their types differ in DuckDB; else NULL.
    "divide": [
        ((*parameters, "i", "j"), body) for parameters, body in _define_arithmetic("spark_quotient(x, y, i, j)")
    ],
    "mod": _define_arithmetic("spark_remainder(x, y)"),
    **_define_for_numbers("remainder", f"CASE WHEN q = 0 AND p IS NOT NULL THEN {_DIVISION_BY_ZERO} ELSE p % q END"),
    "div": [
        *coerce_texts("spark_whole_quotient(x, y)"),
        *_reject_booleans("a number and a boolean cannot be combined"),
        (("x", "y"), "spark_whole_quotient(x, y)"),
    ],
    **_define_for_numbers(
        "whole_quotient",
        f"CASE WHEN q = 0 AND p IS NOT NULL THEN {_DIVISION_BY_ZERO} "
        "WHEN typeof(p) IN ('DOUBLE', 'FLOAT') OR typeof(q) IN ('DOUBLE', 'FLOAT') "
        "THEN error('div divides whole numbers and decimals: cast the float') "
        "WHEN typeof(p) LIKE 'DECIMAL%' OR typeof(q) LIKE 'DECIMAL%' THEN CAST(round((p - p % q) / q) AS BIGINT) "
        "ELSE CAST(p // q AS BIGINT) END",
    ),
    **{name: _define_comparison(sign) for name, sign in _COMPARISONS.values()},
    # Whether Spark finds a common type for two values: checked for the values of IN before they are compared.
    "comparable": [
        *(
            (types, f"error('{what} cannot be compared: cast one of them')")
            for what, pairs in {
                "a number and a boolean": [("DOUBLE", "BOOLEAN")],
                "a number and a date or a timestamp": [("DOUBLE", "DATE"), ("DOUBLE", "TIMESTAMP"),
                                                       ("DOUBLE", "TIMESTAMPTZ")],
                "bytes and another type": [("BLOB", each) for each in ("DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP",
                                                                       "TIMESTAMPTZ")],
                "a boolean and a date or a timestamp": [("BOOLEAN", "DATE"), ("BOOLEAN", "TIMESTAMP"),
                                                        ("BOOLEAN", "TIMESTAMPTZ")],
            }.items()
            for one, other in pairs
            for types in ((f"x {one}", f"y {other}"), (f"x {other}", f"y {one}"))
        ),
        (("x", "y"), "TRUE"),
    ],
}  # fmt: skip

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "add",
    exp.Sub: "subtract",
    exp.Mul: "multiply",
    exp.Div: "divide",
    exp.Mod: "mod",
    exp.IntDiv: "div",
    **{kind: name for kind, (name, _) in _COMPARISONS.items()},
}

PLAIN_OPERATORS = {sign: f"spark_plain_{_OPERATORS[kind]}" for sign, kind in {
    "+": exp.Add, "-": exp.Sub, "*": exp.Mul, "=": exp.EQ, "<>": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT,
    ">=": exp.GTE, "<=>": exp.NullSafeEQ,
}.items()}  # fmt: skip
"""Calls that stand for DuckDB's plain operators, for operands whose types Tamis knows."""
_PLAIN_KINDS = {f"spark_plain_{name}": kind for kind, name in _OPERATORS.items()}


def resolve_plain_operator(node: exp.Anonymous) -> exp.Expr | None:
    """Return the operator that a call of `PLAIN` stands for; None for other calls."""
    kind = _PLAIN_KINDS.get(node.name.lower())
    return None if kind is None else exp.Paren(this=kind(this=node.expressions[0], expression=node.expressions[1]))


# --- Parentheses ------------------------------------------------------------------------------------------------------

_BITWISE = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseLeftShift, exp.BitwiseRightShift, exp.BitwiseNot)
_ADDITIVE = (exp.Add, exp.Sub)
_MULTIPLICATIVE = (exp.Mul, exp.Div, exp.IntDiv, exp.Mod)
_PRECEDENCE: dict[type[exp.Expr], int] = {
    kind: level
    for level, kinds in enumerate((
        (exp.Or,),
        (exp.And,),
        (exp.Not,),
        (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.EqualNull,
         exp.Is, exp.Between, exp.In, exp.Like, exp.ILike, exp.Escape),
        (exp.DPipe, *_BITWISE),  # `~a + b` is `~(a + b)`
        _ADDITIVE,
        _MULTIPLICATIVE,
        (exp.Neg, exp.AtTimeZone),
        (exp.Bracket, exp.Dot),
    ))
    for kind in kinds
}  # fmt: skip
"""The operators that are printed as such in DuckDB's SQL; one that binds more tightly has a larger number."""
_READ_FROM_LEFT = frozenset((exp.Or, exp.And, exp.DPipe, *_ADDITIVE, *_MULTIPLICATIVE, exp.Bracket, exp.Dot))
"""Operators whose first operand may be an operator of the same precedence: `a - b + c` is `(a - b) + c`."""
_OPERANDS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Between: ("this", "low", "high"),
    **dict.fromkeys((exp.In, exp.Bracket, exp.Dot), ("this",)),
    exp.Escape: (),  # its LIKE belongs to it
}
"""The operands of operators that do not have the usual two, or that have other parts besides."""


_PRINTED_AS_CALLS = (exp.Anonymous, exp.Case, exp.If, exp.Cast, exp.Coalesce, exp.Sum, exp.Min, exp.Max, exp.Count)
"""Functions that sqlglot prints with their arguments in parentheses or between keywords."""


def parenthesise_operands(tree: exp.Expr) -> None:
    """Put parentheses around the operands that DuckDB would otherwise read as parts of another expression, in place.

    Rewrites make operands of what they find, such as the argument of a call: `isnull(a OR b)` becomes
    `Is(Or(a, b), NULL)`. sqlglot prints such a tree as `a OR b IS NULL`, which is another condition.
    """
    for node in list(tree.find_all(*_PRECEDENCE, exp.Func)):
        kind = type(node)
        if kind in _PRECEDENCE:
            for key in _OPERANDS.get(kind, ("this", "expression")):
                operand = node.args.get(key)
                if isinstance(operand, exp.Expr) and _needs_parentheses(operand, kind, is_first=key == "this"):
                    node.set(key, exp.Paren(this=operand))
        elif not isinstance(node, _PRINTED_AS_CALLS):
            # sqlglot prints some functions as operators: `equal_null(a, b)` as `a IS NOT DISTINCT FROM b`.
            for argument in list(node.iter_expressions()):
                if type(argument) in _PRECEDENCE:
                    around = exp.Paren()
                    argument.replace(around)
                    around.set("this", argument)


def _needs_parentheses(operand: exp.Expr, around: type[exp.Expr], *, is_first: bool) -> bool:
    level = _PRECEDENCE.get(type(operand))
    if level is None:
        return False
    if around in _BITWISE:
        # Their precedence differs between dialects more than that of other operators.
        return True
    if level == _PRECEDENCE[around] and type(operand) in _READ_FROM_LEFT and around in _READ_FROM_LEFT:
        # AND and OR are associative, and sqlglot prints a chain of them without recursion.
        return not is_first and around not in (exp.And, exp.Or)
    return level <= _PRECEDENCE[around]


MAX_CHECKED_VALUES = 100
"""The number of values of IN that are checked for a comparable type: later ones are not checked."""


def translate_operator(node: exp.Expr) -> exp.Expr:
    """Replace an operator by a call of its macro where the types of its operands may matter."""
    name = _OPERATORS.get(type(node))
    if name is None:
        return node
    sides = (strip_parentheses(node.this), strip_parentheses(node.expression))
    if any(isinstance(side, exp.Null | exp.Any | exp.All | exp.Interval) for side in sides):
        # NULL matches every overload, and the list of a quantified comparison is not a value.
        return node
    sides = cast_operands(name, *sides)
    node.set("this", sides[0])
    node.set("expression", sides[1])
    others = tuple(map(read_literal_precision, sides)) if name == "divide" else ()
    if any(map(_is_number, sides)) or is_in_nested_subquery(node):
        # The other operand is a number too, or DuckDB rejects the operator.
        if name not in _NUMBER_MACROS:
            return node
        is_nested = any(side.find(exp.Anonymous) is not None for side in sides)
        return call_macro(f"{_NUMBER_MACROS[name]}{'_once' if is_nested else ''}", *sides, *others)
    return call_macro(name, *sides, *others)


def cast_operands(name: str, one: exp.Expr, other: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    """Return the operands of an operator, cast to the types that they have in Spark where the text shows them."""
    if _is_float(one) != _is_float(other):
        one, other = (exp.cast(side, "double") if _is_float(side) else side for side in (one, other))
    if name in ("add", "subtract", "multiply"):
        return _make_type_literal(name, one, other), _make_type_literal(name, other, one)
    return one, other


def _is_float(side: exp.Expr) -> bool:
    """Return whether an operand is a cast to a 32-bit float, written as such or as a macro."""
    if isinstance(side, exp.Cast):
        return side.to.this is exp.DType.FLOAT
    return isinstance(side, exp.Anonymous) and side.name.lower() in _FLOAT_CASTS


_FLOAT_CASTS = frozenset(f"spark_{name}" for name in ("float", "float_of", "try_float", "try_float_of"))


def _make_type_literal(name: str, side: exp.Expr, other: exp.Expr) -> exp.Expr:
    """Cast a literal to the type that it has in Spark, because DuckDB would use the type of the other operand."""
    number = _strip_sign(side)
    if number is None or next(other.find_all(exp.Column, exp.Anonymous, exp.Query), None) is None:
        return side
    if number.this.isdecimal():
        return exp.cast(side, "int") if int(number.this) < 2**31 else side
    if name == "multiply" and "e" not in number.this.lower():
        # Precision 19 makes DuckDB compute a product that may exceed 18 digits with 38.
        scale = len(number.this.partition(".")[2])
        return exp.cast(side, build_type(f"decimal({max(19, len(number.this))}, {scale})"))
    return side


def _strip_sign(side: exp.Expr) -> exp.Literal | None:
    """Return a numeric literal without its sign; None for other operands."""
    number = side.this if isinstance(side, exp.Neg) else side
    return number if isinstance(number, exp.Literal) and not number.is_string else None


def read_literal_precision(side: exp.Expr) -> exp.Expr:
    """Return the precision of an operand in Spark where its text shows it: 1 for `3`, 2 for `0.25`; else NULL."""
    if isinstance(side, exp.Cast) and side.to.this is exp.DType.DECIMAL and side.to.expressions:
        return exp.Literal.number(side.to.expressions[0].name)
    number = _strip_sign(side)
    if number is None or "e" in number.this.lower():
        return exp.null()
    whole, _, part = number.this.partition(".")
    return exp.Literal.number(max(len(whole.lstrip("0")) + len(part), 1))


_NUMBER_MACROS = {"divide": "quotient", "mod": "remainder", "div": "whole_quotient"}
"""Macros of operators on two numbers that fail, unlike DuckDB's, for a divisor of 0."""
_ARITHMETIC_MACROS = frozenset(f"spark_{name}" for name in ("add", "subtract", "multiply", "divide", "mod", "div",
                                                           *_NUMBER_MACROS.values(),
                                                           *(f"{each}_once"
                                                             for each in _NUMBER_MACROS.values())))  # fmt: skip


def _is_number(node: exp.Expr) -> bool:
    """Return whether a value is arithmetic or an aggregate, and therefore usually neither a text nor a boolean."""
    node = strip_parentheses(node)
    if has_aggregate_or_window(node):
        # DuckDB does not know the type of an aggregate when it picks an overload.
        return True
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _ARITHMETIC_MACROS
    return isinstance(node, exp.Add | exp.Sub | exp.Mul)


def widen_floats(*values: exp.Expr) -> None:
    """Cast each float among compared values to a double, unless all of them are floats."""
    floats = [value for value in values if _is_float(strip_parentheses(value))]
    if len(floats) < len(values):
        for value in floats:
            value.replace(exp.cast(value.copy(), "double"))


def translate_in(node: exp.In) -> exp.Expr:
    """Build `x IN (…)` that fails where Spark finds no common type for the values."""
    widen_floats(node.this, *node.expressions)
    items = [strip_parentheses(item) for item in node.expressions[:MAX_CHECKED_VALUES]]
    asked = [item for item in items if not isinstance(item, exp.Literal | exp.Null | exp.Tuple | exp.Query)]
    if not asked or isinstance(strip_parentheses(node.this), exp.Null | exp.Tuple | exp.Query):
        return node
    checks = exp.and_(*(call_macro("comparable", node.this.copy(), item.copy()) for item in asked), copy=False)
    return exp.Paren(this=exp.Case(ifs=[exp.If(this=checks, true=node.copy())]))

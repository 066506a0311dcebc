"""Operators and casts as Spark means them, where DuckDB means something else by the same sign.

An operator becomes a macro whose overloads DuckDB picks by the types of its operands when it binds a query, so that it
means the same wherever it stands: in a projection, beside a window, under a lateral view, in a filter. The overload of
two operands of which nothing is to be said is the plain operator, so that nothing is lost to DuckDB's optimizer.

| in Spark (ANSI mode)                         | DuckDB's own                     |
|----------------------------------------------|----------------------------------|
| a text beside a whole number is a bigint     | no such operator                 |
| a text beside any other number is a double   | no such operator                 |
| a text beside a date, … is a date, …         | only where the text is a literal |
| a boolean is no number: an error             | TRUE is 1                        |
| x / 0 and x % 0 are errors                   | infinite, NULL or NaN            |
| a float beside another number is a double    | a float                          |
| a literal is an int: `tiny * 2` is one, too  | of the type of the other side    |
| decimals are divided to a scale of their own | a double                         |
| `div` of decimals is a bigint                | a decimal with a fraction        |
"""

from __future__ import annotations

import re

from sqlglot import exp

from tamis.scan.spark_calls import Macro, Macros, by_kind, is_in_nested_subquery, is_of_rows, macro_call

_TEXT_BESIDE = {"BOOLEAN": "spark_boolean", "DATE": "spark_text_date", "TIMESTAMP": "spark_text_timestamp_ntz",
                "TIMESTAMPTZ": "spark_text_timestamp"}  # fmt: skip
"""What a text becomes beside a value of a type."""


def _coerced(body: str) -> list[Macro]:
    """The overloads of an operator of two numbers, of which one may be a text."""
    number = re.sub(r"\b([xy])\b", r"{\1}", body)
    double, whole = "spark_double({})", "spark_bigint({})"
    return [
        (("x VARCHAR", "y VARCHAR"), number.format(x=double.format("x"), y=double.format("y"))),
        (("x VARCHAR", "y BIGINT"), number.format(x=whole.format("x"), y="y")),
        (("x BIGINT", "y VARCHAR"), number.format(x="x", y=whole.format("y"))),
        (("x VARCHAR", "y DOUBLE"), number.format(x=double.format("x"), y="y")),
        (("x DOUBLE", "y VARCHAR"), number.format(x="x", y=double.format("y"))),
    ]


def _of_small_numbers(plain: str) -> list[Macro]:
    """Overloads that DuckDB picks where both operands are NULL and no type is known: it would find several else."""
    return [((f"x {kind}", f"y {kind}"), plain) for kind in ("TINYINT", "SMALLINT", "INTEGER")]


def _without_booleans(what: str) -> list[Macro]:
    refused = f"CASE WHEN x IS NULL AND y IS NULL THEN NULL ELSE error('{what}: cast the boolean') END"
    return [(("x BOOLEAN", "y DOUBLE"), refused), (("x DOUBLE", "y BOOLEAN"), refused)]


def _arithmetic(sign: str, plain: str = "", otherwise: str = "") -> list[Macro]:
    plain = plain or f"x {sign} y"
    refused = "error('booleans are no numbers: cast them')"
    return [
        *_coerced(plain),
        *_of_small_numbers(plain),
        *_without_booleans("a number and a boolean are not computed with each other"),
        (("x BOOLEAN", "y BOOLEAN"), refused),
        (("x", "y"), otherwise or plain),
    ]


def _of_numbers(name: str, body: str) -> Macros:
    """A macro of two numbers `p` and `q`, and one that computes its operands once, for operands that nest."""
    once = f"list_transform([{{'p': p, 'q': q}}], lambda pair: spark_{name}(pair.p, pair.q))[1]"
    return {name: (("p", "q"), body), f"{name}_once": (("p", "q"), once)}


def _compared(sign: str) -> list[Macro]:
    found = _coerced(f"x {sign} y")
    # Two texts are compared as texts.
    found[0] = (("x VARCHAR", "y VARCHAR"), f"x {sign} y")
    for kind, cast in _TEXT_BESIDE.items():
        found.append(((f"x {kind}", "y VARCHAR"), f"x {sign} {cast}(y)"))
        found.append((("x VARCHAR", f"y {kind}"), f"{cast}(x) {sign} y"))
    found += [
        *_of_small_numbers(f"x {sign} y"),
        (("x BLOB", "y VARCHAR"), f"x {sign} encode(y)"),
        (("x VARCHAR", "y BLOB"), f"encode(x) {sign} y"),
        *_without_booleans("a number and a boolean are not compared with each other"),
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
_QUOTIENT = "spark_quotient(x, y, i, j)"
_NO_DIVISOR = "error('division by zero: leave such rows out, or use try_divide')"

_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_TRIMMED = "trim(CAST(x AS VARCHAR), ' \t\n\r\f\v')"


def _casts(prefix: str) -> Macros:
    """Casts to numbers, booleans and bytes: those of `try_` give NULL where the others fail."""

    def fail(wanted: str, target: str) -> str:
        if prefix:
            return f"CAST(NULL AS {target})"
        shown = (
            "CASE WHEN typeof(x) = 'VARCHAR' THEN 'the text ''' || CAST(x AS VARCHAR) || '''' ELSE lower(typeof(x)) END"
        )
        found = f"error({shown} || ' is no {wanted}: correct it, or use TRY_CAST')"
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
        found |= by_kind(f"{prefix}{name}", bodies)
    found |= by_kind(
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
    # What a decimal is made of: the digits of a float are those that it is written with.
    found |= by_kind(
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
    **_casts(""),
    **_casts("try_"),
    **by_kind(
        "binary",
        {
            "VARCHAR": "encode(x)",
            "BLOB": "x",
            "": "CASE WHEN x IS NOT NULL THEN CAST(error(lower(typeof(x)) || ' has no bytes: cast it to a text first') "
            "AS BLOB) END",
        },
    ),
}

MACROS: Macros = CASTS | {
    "add": _arithmetic("+"),
    "subtract": _arithmetic("-"),
    "multiply": _arithmetic("*"),
    # The digits of an operand are given where it is a literal, whose type in DuckDB has others, and NULL elsewhere.
    "divide": [
        ((*parameters, "i", "j"), body) for parameters, body in _arithmetic("/", _QUOTIENT, _QUOTIENT)
    ],
    "quotient": (
        ("p", "q", "i", "j"),
        f"CASE WHEN q = 0 AND p IS NOT NULL THEN {_NO_DIVISOR} "
        f"WHEN {_ARE_DECIMALS} THEN round(p / q, spark_scale_of_quotient({_SCALE.format('p')}, {_SCALE.format('q')}, "
        f"coalesce(i, {_DIGITS.format('p')}), coalesce(j, {_DIGITS.format('q')}))) "
        "ELSE CAST(p AS DOUBLE) / CAST(q AS DOUBLE) END",
    ),
    # Exact where the engine has digits for it, which Spark has not either.
    "rounded_product": (
        ("p", "q", "s"), "round(coalesce(TRY(p * q), CAST(p AS DOUBLE) * CAST(q AS DOUBLE)), s)"
    ),
    "try_quotient": (("p", "q", "i", "j"), "CASE WHEN q <> 0 THEN spark_quotient(p, q, i, j) END"),
    "quotient_once": (
        ("p", "q", "i", "j"),
        "list_transform([{'p': p, 'q': q}], lambda pair: spark_quotient(pair.p, pair.q, i, j))[1]",
    ),
    # A quotient of decimals has at least six digits after the point, and gives up others beyond 38 digits in all.
    "scale_of_quotient": (
        ("s", "t", "i", "j"),
        "CASE WHEN i - s + t + greatest(6, s + j + 1) <= 38 THEN greatest(6, s + j + 1) "
        "ELSE greatest(6, 38 - (i - s + t)) END",
    ),
    "mod": _arithmetic("%", "spark_remainder(x, y)", "spark_remainder(x, y)"),
    **_of_numbers("remainder", f"CASE WHEN q = 0 AND p IS NOT NULL THEN {_NO_DIVISOR} ELSE p % q END"),
    "div": [
        *_coerced("spark_whole_quotient(x, y)"),
        *_without_booleans("a number and a boolean are not computed with each other"),
        (("x", "y"), "spark_whole_quotient(x, y)"),
    ],
    **_of_numbers(
        "whole_quotient",
        f"CASE WHEN q = 0 AND p IS NOT NULL THEN {_NO_DIVISOR} "
        "WHEN typeof(p) IN ('DOUBLE', 'FLOAT') OR typeof(q) IN ('DOUBLE', 'FLOAT') "
        "THEN error('div divides whole numbers and decimals: cast the float') "
        "WHEN typeof(p) LIKE 'DECIMAL%' OR typeof(q) LIKE 'DECIMAL%' THEN CAST(round((p - p % q) / q) AS BIGINT) "
        "ELSE CAST(p // q AS BIGINT) END",
    ),
    **{
        name: _compared(sign)
        for name, sign in {
            "equal": "=",
            "not_equal": "<>",
            "less": "<",
            "less_or_equal": "<=",
            "greater": ">",
            "greater_or_equal": ">=",
            "same": "IS NOT DISTINCT FROM",
            "not_same": "IS DISTINCT FROM",
        }.items()
    },
    # Whether Spark finds one type for two values: what is asked of a list of values before they are looked through.
    "comparable": [
        *(
            (types, f"error('{what} are not compared with each other: cast one of them')")
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
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.LT: "less",
    exp.LTE: "less_or_equal",
    exp.GT: "greater",
    exp.GTE: "greater_or_equal",
    exp.NullSafeEQ: "same",
    exp.NullSafeNEQ: "not_same",
}

PLAIN = {sign: f"spark_plain_{_OPERATORS[kind]}" for sign, kind in {
    "+": exp.Add, "-": exp.Sub, "*": exp.Mul, "=": exp.EQ, "<>": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT,
    ">=": exp.GTE, "<=>": exp.NullSafeEQ,
}.items()}  # fmt: skip
"""Calls that stand for operators of DuckDB as they are, where Tamis knows the types of the operands."""
_PLAIN_KINDS = {f"spark_plain_{name}": kind for kind, name in _OPERATORS.items()}


def plain_operator(node: exp.Anonymous) -> exp.Expr | None:
    """The operator that a call of `PLAIN` stands for; None for other calls."""
    kind = _PLAIN_KINDS.get(node.name.lower())
    return None if kind is None else exp.Paren(this=kind(this=node.expressions[0], expression=node.expressions[1]))


MOST_TYPED = 100
"""Of longer lists of values only the first are asked whether they can be compared."""


def operator(node: exp.Expr) -> exp.Expr:
    """An operator as a call of its macro, where the types of its operands may matter."""
    name = _OPERATORS.get(type(node))
    if name is None:
        return node
    sides = (_bare(node.this), _bare(node.expression))
    if any(isinstance(side, exp.Null | exp.Any | exp.All | exp.Interval) for side in sides):
        # NULL fits every overload, and lists of a quantified comparison are no values.
        return node
    sides = give_types(name, *sides)
    node.set("this", sides[0])
    node.set("expression", sides[1])
    others = tuple(map(digits_of, sides)) if name == "divide" else ()
    if any(map(_is_number, sides)) or is_in_nested_subquery(node):
        # The other one is a number too, or DuckDB has no such operator.
        if name not in _OF_NUMBERS:
            return node
        is_nested = any(side.find(exp.Anonymous) is not None for side in sides)
        return macro_call(f"{_OF_NUMBERS[name]}{'_once' if is_nested else ''}", *sides, *others)
    return macro_call(name, *sides, *others)


def give_types(name: str, one: exp.Expr, other: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    """Return the operands of an operator with the types that Spark gives them, as far as the text tells."""
    if _is_float(one) != _is_float(other):
        one, other = (exp.cast(side, "double") if _is_float(side) else side for side in (one, other))
    if name in ("add", "subtract", "multiply"):
        return _give_type(name, one, other), _give_type(name, other, one)
    return one, other


def _is_float(side: exp.Expr) -> bool:
    """Whether an operand is a cast to a float of 32 bits, as it is written or as a macro computes it."""
    if isinstance(side, exp.Cast):
        return side.to.this is exp.DType.FLOAT
    return isinstance(side, exp.Anonymous) and side.name.lower() in _FLOATS


_FLOATS = frozenset(f"spark_{name}" for name in ("float", "float_of", "try_float", "try_float_of"))


def _give_type(name: str, side: exp.Expr, other: exp.Expr) -> exp.Expr:
    """Return an operand, a literal with the type that it has in Spark: DuckDB gives it that of the other operand."""
    number = _number(side)
    if number is None or next(other.find_all(exp.Column, exp.Anonymous, exp.Query), None) is None:
        return side
    if number.this.isdecimal():
        return exp.cast(side, "int") if int(number.this) < 2**31 else side
    if name == "multiply" and "e" not in number.this.lower():
        # A product that may have more than 18 digits is computed with 38 of them.
        scale = len(number.this.partition(".")[2])
        return exp.cast(side, f"decimal({max(19, len(number.this))}, {scale})")
    return side


def _number(side: exp.Expr) -> exp.Literal | None:
    """Return the literal without its sign that an operand is, if it is one."""
    number = side.this if isinstance(side, exp.Neg) else side
    return number if isinstance(number, exp.Literal) and not number.is_string else None


def digits_of(side: exp.Expr) -> exp.Expr:
    """Return how many digits an operand has in Spark, where its text tells: `3` has 1, `0.25` 2; else NULL."""
    if isinstance(side, exp.Cast) and side.to.this is exp.DType.DECIMAL and side.to.expressions:
        return exp.Literal.number(side.to.expressions[0].name)
    number = _number(side)
    if number is None or "e" in number.this.lower():
        return exp.null()
    whole, _, part = number.this.partition(".")
    return exp.Literal.number(max(len(whole.lstrip("0")) + len(part), 1))


_OF_NUMBERS = {"divide": "quotient", "mod": "remainder", "div": "whole_quotient"}
"""Operators of two numbers that fail where DuckDB's do not."""
_COMPUTED = frozenset(f"spark_{name}" for name in ("add", "subtract", "multiply", "divide", "mod", "div",
                                                   *_OF_NUMBERS.values(),
                                                   *(f"{each}_once" for each in _OF_NUMBERS.values())))  # fmt: skip


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _is_number(node: exp.Expr) -> bool:
    """Whether a value is computed, or made of several rows, and so no text and no boolean as a rule."""
    while isinstance(node, exp.Paren):
        node = node.this
    if is_of_rows(node):
        # DuckDB does not know its type when it picks an overload.
        return True
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _COMPUTED
    return isinstance(node, exp.Add | exp.Sub | exp.Mul)


def widen_floats(*values: exp.Expr) -> None:
    """Put a double in the place of each float among values that are compared, unless all of them are floats."""
    floats = [value for value in values if _is_float(_bare(value))]
    if len(floats) < len(values):
        for value in floats:
            value.replace(exp.cast(value.copy(), "double"))


def listed(node: exp.In) -> exp.Expr:
    """`x IN (…)`, with an error where Spark finds no type for all of them."""
    widen_floats(node.this, *node.expressions)
    items = [_bare(item) for item in node.expressions[:MOST_TYPED]]
    asked = [item for item in items if not isinstance(item, exp.Literal | exp.Null | exp.Tuple | exp.Query)]
    if not asked or isinstance(_bare(node.this), exp.Null | exp.Tuple | exp.Query):
        return node
    checks = exp.and_(*(macro_call("comparable", node.this.copy(), item.copy()) for item in asked), copy=False)
    return exp.Paren(this=exp.Case(ifs=[exp.If(this=checks, true=node.copy())]))

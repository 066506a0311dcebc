"""SQL that a filter cannot contain: subqueries, aggregates, windows, parameters. Each error says what to write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from sqlglot import Token, TokenType, exp

from tamis.errors import ParseError, Position
from tamis.expr.functions.aggregates import Kind, is_aggregate, is_of_kind

_REFUSED: tuple[tuple[tuple[type[exp.Expr], ...], str, str], ...] = (
    ((exp.Query, exp.Exists), "a subquery cannot be part of a filter", "Run it first and compare with its values"),
    ((exp.Window,), "a window function cannot be part of a filter", "A filter sees one row at a time"),
    ((exp.Star,), "* is not a value", "Name the column"),
    (
        (exp.Placeholder, exp.Parameter, exp.SessionParameter),
        "a parameter has no value here",
        "Put the value into the text, or build the filter with col('name') == value",
    ),
    (
        (exp.AtTimeZone, exp.FromTimeZone),
        "Spark's SQL has no AT TIME ZONE",
        "Write from_utc_timestamp(ts, 'Europe/Paris')",
    ),
    ((exp.Distinct,), "DISTINCT belongs to aggregate functions", "A filter sees one row at a time"),
)


def refuse(node: object) -> None:
    """Raise if a node is not allowed in a filter."""
    for kinds, message, hint in _REFUSED:
        if isinstance(node, kinds):
            raise ParseError(message, position=find_position(node), hint=hint)
    if isinstance(node, exp.Any) and not isinstance(node.parent, exp.Like | exp.ILike):
        raise _make_aggregate_error("any", node)
    if isinstance(node, exp.DataType) and getattr(node.this, "name", None) == "TIME":
        # sqlglot would print it as TIMESTAMP, which is another type.
        raise ParseError(
            "a TIME is not supported inside of this syntax",
            position=find_position(node),
            hint="Compare a time alone, as in clock > TIME '10:30:00'",
        )
    if isinstance(node, exp.Anonymous):
        refuse_aggregate(node)


_RESERVED_PREFIXES = ("duckdb_", "spark_")
"""Prefixes of the functions that Tamis itself writes into SQL for the embedded engine: see
`engines.duckdb.translate.calls`."""


def refuse_reserved(tree: exp.Expr) -> None:
    """Raise if a user's text calls a function whose name is reserved for Tamis."""
    for call in tree.find_all(exp.Anonymous):
        if call.name.lower().startswith(_RESERVED_PREFIXES) and call.name.lower() != "spark_partition_id":
            raise ParseError(
                f"there is no function {call.name} with Spark's meaning on the embedded engine",
                position=find_position(call),
                hint="The reference of expressions lists what there is; functions of DuckDB run with "
                "c.sql(…, dialect='duckdb')",
            )


def refuse_aggregate(node: exp.Expr) -> None:
    if is_of_kind(node.name, Kind.WINDOW):
        raise ParseError(
            f"the window function {node.name}() cannot be part of a filter",
            position=find_position(node),
            hint="A filter sees one row at a time",
        )
    if is_aggregate(node.name):
        raise _make_aggregate_error(node.name.lower(), node)


def _make_aggregate_error(name: str, node: exp.Expr) -> ParseError:
    return ParseError(
        f"{name} is an aggregate function",
        position=find_position(node),
        hint="A filter sees one row at a time: filter the result of the query, in HAVING or afterwards",
    )


def find_position(node: exp.Expr) -> int | None:
    """Return the 1-based position of a node, or of the first node inside it that has one."""
    # The name of a function precedes its arguments, which may be ten thousand levels deep.
    is_first = isinstance(node, exp.Anonymous) and "start" in node.meta
    metas = [node.meta] if is_first else [inner.meta for inner in node.dfs() if "start" in inner.meta]
    if not metas:
        return None
    first = min(metas, key=lambda meta: int(meta["start"]))
    # sqlglot records the column in which a token ends.
    return Position(first["start"] + 1, first["line"], first["col"] - (first["end"] - first["start"]))


# --- Errors for the syntax of other dialects, which sqlglot parses and the embedded engine would run ------------------
#
# Spark's SQL does not have it, so filters and queries refuse it by name, with a position and a hint.
# Syntax that the tree no longer shows (`~~` is parsed as LIKE) is found in the tokens, the rest in the tree.


def make_unsupported_syntax_error(node: exp.Expr, message: str, hint: str | None = None) -> ParseError:
    """Return the error for syntax that Spark does not have, or that has no meaning there."""
    return ParseError(message, position=find_position(node), hint=hint)


# --- Tokens -----------------------------------------------------------------------------------------------------------

MAX_DIGITS = 38

_POSTFIXES = {TokenType.ISNULL: "IS NULL", TokenType.NOTNULL: "IS NOT NULL"}
_VALUES = frozenset({TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING, TokenType.R_PAREN})


def refuse_foreign_tokens(tokens: Sequence[Token], position: Callable[[int], int]) -> None:
    """Raise if one or two tokens are an operator or a clause that only other dialects have.

    `position` returns the position of a character offset.
    """
    for index, token in enumerate(tokens):
        kind, text = token.token_type, token.text
        after = tokens[index + 1] if index + 1 < len(tokens) else None
        found: tuple[str, str] | None = None
        if kind in (TokenType.LIKE, TokenType.ILIKE) and text.startswith("~"):
            found = f"Spark's SQL has no operator {text}", f"Write {kind.name}"
        elif kind is TokenType.TILDE and index and tokens[index - 1].token_type in _VALUES:
            found = "Spark's SQL has no operator ~", "Write RLIKE, as in name RLIKE '^a'"
        elif text == "!" and index and tokens[index - 1].token_type in _VALUES and after and after.text == "~":
            found = "Spark's SQL has no operator !~", "Write NOT RLIKE, as in name NOT RLIKE '^a'"
        elif kind in _POSTFIXES and index and not (after and after.token_type is TokenType.L_PAREN):
            found = f"Spark's SQL has no {text.upper()} after a value", f"Write {_POSTFIXES[kind]}"
        elif kind is TokenType.IN and after is not None and after.token_type is TokenType.L_BRACKET:
            found = "IN needs a list", "Write it in round brackets, as in a IN (1, 2)"
        elif kind is TokenType.NATIONAL_STRING:
            found = "Spark's SQL has no N prefix of texts", "Leave it out: every text is Unicode"
        elif kind is TokenType.USING and after is not None and after.text.upper() == "SAMPLE":
            found = "Spark's SQL has no USING SAMPLE", "Write TABLESAMPLE (10 PERCENT) after the table"
        if found is not None:
            raise ParseError(found[0], position=position(token.start), hint=found[1])


def refuse_foreign_stars(tokens: Sequence[Token], position: Callable[[int], int]) -> None:
    """Raise for `* EXCLUDE`, which removes columns from a star; `a * exclude` is a product."""
    for index, (star, word) in enumerate(pairwise(tokens)):
        is_product = index > 0 and tokens[index - 1].token_type in _VALUES
        if star.token_type is TokenType.STAR and word.text.upper() == "EXCLUDE" and not is_product:
            raise ParseError(
                "Spark's SQL has no * EXCLUDE", position=position(word.start), hint="Write * EXCEPT (a, b)"
            )


def refuse_unrepresentable_numbers(tokens: Sequence[Token], position: Callable[[int], int]) -> None:
    """Raise if no type holds a number: it is too large for a double, or has too many digits for a decimal."""
    for index, token in enumerate(tokens):
        if token.token_type is not TokenType.NUMBER:
            continue
        text = token.text.replace("_", "").upper()
        after = tokens[index + 1] if index + 1 < len(tokens) else None
        has_suffix = after is not None and after.token_type is TokenType.DCOLON and after.start == token.start
        try:
            is_infinite = float(text) == float("inf")
        except ValueError:
            continue
        if is_infinite:
            raise ParseError(
                f"{token.text} is larger than every DOUBLE",
                position=position(token.start),
                hint="The largest one is 1.7976931348623157E308",
            )
        digits = text.replace(".", "").lstrip("0")
        if "E" not in text and not has_suffix and len(digits) > MAX_DIGITS:
            raise ParseError(
                f"a number has at most {MAX_DIGITS} digits, not {len(digits)}",
                position=position(token.start),
                hint="Write it with an exponent, or with a D after it, for a DOUBLE",
            )


# --- Trees ------------------------------------------------------------------------------------------------------------

_UNSUPPORTED_SYNTAX: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Array: ("[…] does not make an array", "Write array(1, 2)"),
    exp.Struct: ("{…} does not make a struct", "Write named_struct('a', 1), or map('a', 1)"),
    exp.ToMap: ("MAP {…} does not make a map", "Write map('a', 1)"),
    exp.Slice: ("a value has no slices, as in x[1:2]", "Write slice(x, 1, 2)"),
    exp.AtTimeZone: ("Spark's SQL has no AT TIME ZONE", "Write from_utc_timestamp(ts, 'Europe/Paris')"),
    exp.Glob: ("Spark's SQL has no GLOB", "Write LIKE"),
    exp.SimilarTo: ("Spark's SQL has no SIMILAR TO", "Write RLIKE"),
    exp.Pow: ("Spark's SQL has no operator **", "Write power(x, 2)"),
    exp.PropertyEQ: ("an argument has its name before =>, not :=", "Write f(name => value)"),
    exp.Columns: ("there is no function COLUMNS", "Name the columns, or write *"),
    exp.JSONExtract: ("Spark's SQL has no -> for JSON", "Write get_json_object(text, '$.name')"),
}
_UNSUPPORTED_KINDS = tuple(_UNSUPPORTED_SYNTAX)


def refuse_foreign_value(node: exp.Expr) -> None:
    """Raise if a node of an expression is syntax that Spark does not have."""
    if isinstance(node, _UNSUPPORTED_KINDS):
        raise make_unsupported_syntax_error(
            node, *next(found for kind, found in _UNSUPPORTED_SYNTAX.items() if isinstance(node, kind))
        )
    match node:
        case exp.Collate() if node.expression.name.upper() != "UTF8_BINARY":
            raise make_unsupported_syntax_error(
                node, f"the embedded engine has no collation {node.expression.name}", "Compare lower(x)"
            )
        case exp.Between() if node.args.get("symmetric"):
            raise make_unsupported_syntax_error(
                node, "Spark's SQL has no BETWEEN SYMMETRIC", "Write least(a, b) and greatest(a, b)"
            )
        case exp.Any() | exp.All() if isinstance(node.this, exp.Tuple) and not node.this.expressions:
            raise make_unsupported_syntax_error(
                node, f"{node.key.upper()} needs patterns", "Write it as in LIKE ANY ('a%', 'b%')"
            )
        case exp.Any() | exp.All() if isinstance(node.this, exp.Query):
            word = node.key.upper()
            advice = "Write IN (SELECT …)" if word == "ANY" else "Compare with (SELECT max(…) …)"
            raise make_unsupported_syntax_error(node, f"Spark's SQL has no comparison with {word} (SELECT …)", advice)
        case exp.Is(expression=exp.Column(name=name)) if name.lower() == "nan":
            raise make_unsupported_syntax_error(
                node, "Spark's SQL has no IS NAN", "Write isnan(x), and NOT isnan(x) for the others"
            )
        case exp.In() if not node.expressions and not any(node.args.get(key) for key in ("query", "unnest", "field")):
            raise make_unsupported_syntax_error(node, "IN needs a list", "Write it in brackets, as in a IN (1, 2)")
        case _:
            pass

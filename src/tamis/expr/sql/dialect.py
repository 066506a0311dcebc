"""Spark's dialect for sqlglot, which parses and prints text unchanged.

Three things differ from sqlglot's own dialect: function calls keep their name and arguments (sqlglot would turn
`date_trunc(x, ts)` and many others into its own nodes), operators have Spark's precedence, and every type name of
`tamis.types` is a type.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.transforms import any_to_exists, preprocess

from tamis.expr.sql.intervals import (
    UNITS,
    IntervalLiteral,
    InvalidInterval,
    interval_from_range,
    interval_from_text,
    interval_from_units,
    make_unknown_unit_error,
)
from tamis.expr.sql.pipes import parse_pipes

# --- Spark's syntax of interval literals and times of day, where sqlglot's differs: parser and generator mixins -------

_TIME_TYPES = frozenset(
    kind
    for name in ("DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ")
    if (kind := getattr(TokenType, name, None)) is not None
)


class TimeParser:
    """A mixin for a parser of Spark's dialect."""

    def _parse_interval(self: Any, *args: Any, **options: Any) -> Any:
        """Parse an interval literal by Spark's grammar into its canonical form; None if `interval` is a name."""
        start = self._index
        token = self._curr
        if not self._match(TokenType.INTERVAL):
            return None
        try:
            found = self._parse_interval_literal()
        except InvalidInterval as reason:
            self.raise_error(f"invalid interval: {reason}", token)
            return None
        if found is None:
            self._retreat(start)
            return None
        node = found.to_node()
        node.update_positions(token)
        node.this.update_positions(token)
        return node

    def _parse_type(self: Any, *args: Any, **options: Any) -> Any:
        """Parse `DATE '2024-01-01' :: STRING` as a cast of the date; sqlglot would cast the text inside it."""
        start = self._index
        after = self._tokens[start + 1] if start + 1 < len(self._tokens) else None
        is_literal = after is not None and after.token_type is TokenType.STRING
        if self._curr is not None and self._curr.token_type in _TIME_TYPES and is_literal:
            kind = self._parse_types()
            text = self._parse_string()
            if isinstance(kind, exp.DataType) and text is not None:
                return self._parse_column_ops(self.expression(exp.Cast(this=text, to=kind)))
            self._retreat(start)
        return Spark.Parser._parse_type(self, *args, **options)

    def _parse_interval_literal(self: Any) -> IntervalLiteral | None:
        values: list[tuple[str, str]] = []
        while True:
            start = self._index
            value = self._parse_interval_number()
            unit = self._parse_interval_unit() if value is not None else None
            if value is None or unit is None:
                self._retreat(start)
                break
            if not self._match_text_seq("TO"):
                values.append((value, unit))
                continue
            last = self._curr.text if self._curr else ""
            self._advance()
            is_followed = self._curr is not None and self._curr.token_type in (TokenType.STRING, TokenType.NUMBER)
            if values or is_followed:
                raise InvalidInterval("TO may occur only once, and not with further values")
            return interval_from_range(value, unit, last)
        if values:
            return interval_from_units(values)
        if self._match(TokenType.STRING):
            return interval_from_text(self._prev.text)
        if self._match(TokenType.NUMBER):
            word = self._curr.text if self._curr else ""
            raise make_unknown_unit_error(word)
        return None

    def _parse_interval_number(self: Any) -> str | None:
        """Parse a value with its sign: a number, or a quoted text."""
        sign = "-" if self._match(TokenType.DASH) else ""
        if not sign:
            self._match(TokenType.PLUS)
        if self._match(TokenType.NUMBER):
            return f"{sign}{self._prev.text}"
        if self._match_pair(TokenType.DOT, TokenType.NUMBER):
            return f"{sign}.{self._prev.text}"
        if self._match(TokenType.STRING):
            text = self._prev.text
            return f"-{text}" if sign and not text.startswith("-") else text[1:] if sign else text
        return None

    def _parse_interval_unit(self: Any) -> str | None:
        if self._curr is None or self._curr.text.lower() not in UNITS or self._curr.token_type is TokenType.STRING:
            return None
        self._advance()
        return str(self._prev.text)


class TimeGenerator:
    """A mixin for a generator of Spark's dialect."""

    # Spark has had a time type since version 4.1, but sqlglot writes it as a timestamp.
    TYPE_MAPPING: ClassVar[dict[Any, Any]] = {
        kind: name for kind, name in Spark.Generator.TYPE_MAPPING.items() if kind is not exp.DType.TIME
    }

    def datatype_sql(self: Any, expression: exp.DataType) -> str:
        if expression.this is exp.DType.TIME and expression.expressions:
            return f"TIME({self.expressions(expression, flat=True)})"
        return str(Spark.Generator.datatype_sql(self, expression))


def _select_entries(parsers: Any, *names: str) -> Any:
    """Return the entries of one of sqlglot's tables whose key (a name or a token type) is among the names."""
    return {key: parser for key, parser in parsers.items() if getattr(key, "name", key) in names}


MAX_LEVELS_OPTION = "max_recursion_level"
"""The argument of a recursive query's alias that holds its MAX RECURSION LEVEL."""


class SparkText(Spark):
    """Spark's dialect with Tamis's additional types (`UBIGINT`, `TIMESTAMP_NS`) and the quotes of Spark 4."""

    SUPPORTS_USER_DEFINED_TYPES = True

    class Parser(TimeParser, Spark.Parser):  # type: ignore[misc, valid-type]  # sqlglot declares it as a variable
        # `list[0]` is the first item of a column called list, not a list of one item.
        ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}

        # --- Operators: `* / % DIV`, then `+ - ||`, then `<< >> >>>`, then `&`, then `^`, then `|`, each from the left

        def _parse_term(self, parse_mod: bool = True) -> Any:
            this = super()._parse_term(parse_mod)
            while self._match(TokenType.DPIPE):
                this = self.expression(exp.DPipe(this=this, expression=self._parse_factor(parse_mod), safe=False))
                this = self._parse_terms_after(this, parse_mod)
            return this

        def _parse_terms_after(self, this: Any, parse_mod: bool) -> Any:
            while self._match_set(self.TERM):
                kind = self.TERM[self._prev.token_type]
                this = self.expression(kind(this=this, expression=self._parse_factor(parse_mod)))
            return this

        def _parse_bitwise(self) -> Any:
            return self._parse_operators(
                TokenType.PIPE,
                exp.BitwiseOr,
                lambda: self._parse_operators(
                    TokenType.CARET,
                    exp.BitwiseXor,
                    lambda: self._parse_operators(TokenType.AMP, exp.BitwiseAnd, self._parse_shift),
                ),
            )

        def _parse_operators(self, token: TokenType, kind: type[exp.Expr], operand: Callable[[], Any]) -> Any:
            this = operand()
            while self._match(token):
                this = self.expression(kind(this=this, expression=operand()))
            return this

        def _parse_shift(self) -> Any:
            this = self._parse_term()
            while (operator := self._match_shift()) is not None:
                other = self._parse_term()
                if other is None:
                    self.raise_error(f"Expected a value after {operator}")
                match operator:
                    case "<<":
                        this = self.expression(exp.BitwiseLeftShift(this=this, expression=other))
                    case ">>":
                        this = self.expression(exp.BitwiseRightShift(this=this, expression=other))
                    case _:
                        this = self.expression(exp.Anonymous(this="shiftrightunsigned", expressions=[this, other]))
            return this

        def _match_shift(self) -> str | None:
            """Match a shift operator, whose characters must be adjacent: `a > > b` is not a shift."""
            for operator in (">>>", ">>", "<<"):
                kind = TokenType.GT if operator[0] == ">" else TokenType.LT
                found = self._tokens[self._index : self._index + len(operator)]
                if len(found) < len(operator) or any(each.token_type is not kind for each in found):
                    continue
                if all(one.end + 1 == other.start for one, other in pairwise(found)):
                    self._advance(len(operator))
                    return operator
            return None

        def _parse_unary(self) -> Any:
            """Parse `-128Y` as one number: 128Y alone would be out of range."""
            ahead = self._tokens[self._index : self._index + 3]
            found = super()._parse_unary()
            if [token.token_type for token in ahead] != [TokenType.DASH, TokenType.NUMBER, TokenType.DCOLON]:
                return found
            # The type of a suffix has the position of its number; that of -128::TINYINT does not.
            cast = found.this if isinstance(found, exp.Neg) and ahead[1].start == ahead[2].start else None
            if isinstance(cast, exp.Cast) and isinstance(cast.this, exp.Literal) and not cast.this.is_string:
                cast.set("this", exp.Neg(this=cast.this))
                return cast
            return found

        def _parse_escape(self, this: Any) -> Any:
            """Parse ESCAPE, which `LIKE ANY (…)` and `LIKE ALL (…)` do not support."""
            found = super()._parse_escape(this)
            if found is not this and isinstance(this.expression, exp.Any | exp.All):
                self.raise_error("LIKE ANY and LIKE ALL do not support ESCAPE")
            return found

        def _parse_pipe_syntax_query(self, query: exp.Query) -> exp.Query:
            return parse_pipes(self, query)

        def _parse_table_alias(self, alias_tokens: Any = None) -> Any:
            """Parse an alias, which for a recursive query may limit the number of levels."""
            alias = super()._parse_table_alias(alias_tokens)
            if alias is not None and self._match_text_seq("MAX", "RECURSION", "LEVEL"):
                alias.set(MAX_LEVELS_OPTION, self._parse_number() or self.raise_error("a number of levels is missing"))
            return alias

        def _parse_value(self, values: bool = True) -> Any:
            """Parse one row of VALUES: `1, 2` are two rows of one column, and names inside a row are ignored."""
            if self._match(TokenType.L_PAREN, advance=False):
                row = super()._parse_value(values)
                for item in row.expressions if isinstance(row, exp.Tuple) else ():
                    if isinstance(item, exp.Alias):
                        item.replace(item.this)
                return row
            value = self._parse_disjunction()
            return None if value is None else self.expression(exp.Tuple(expressions=[value]))

    class Generator(TimeGenerator, Spark.Generator):  # type: ignore[misc, valid-type]
        TABLESAMPLE_SEED_KEYWORD = "REPEATABLE"

        def lateral_sql(self, expression: exp.Lateral) -> str:
            """Print a lateral view whose name keeps its quotes."""
            alias = expression.args.get("alias")
            if not expression.args.get("view") or alias is None or not isinstance(alias.this, exp.Identifier):
                return str(super().lateral_sql(expression))
            columns = self.expressions(alias, key="columns", flat=True)
            outer = " OUTER" if expression.args.get("outer") else ""
            named = f" {self.sql(alias, 'this')}{f' AS {columns}' if columns else ''}"
            return f"{self.seg(f'LATERAL VIEW{outer}')}{self.sep()}{self.sql(expression, 'this')}{named}"

        def tablealias_sql(self, expression: exp.TableAlias) -> str:
            levels = self.sql(expression, MAX_LEVELS_OPTION)
            alias = str(super().tablealias_sql(expression))
            return f"{alias} MAX RECURSION LEVEL {levels}" if levels else alias

        def unnest_sql(self, expression: exp.Unnest) -> str:
            """Print UNNEST as in Spark 4: sqlglot would write EXPLODE."""
            offset, alias = expression.args.get("offset"), expression.args.get("alias")
            ordinality = " WITH ORDINALITY" if offset else ""
            names = [each.name for each in alias.columns] if alias is not None else []
            if isinstance(offset, exp.Identifier) and names:
                names.append(offset.name)
            columns = [self.sql(exp.to_identifier(each, quoted=True)) for each in names]
            named = "" if alias is None else f" AS {self.sql(alias, 'this')}"
            listed = f"({', '.join(columns)})" if columns else ""
            return f"UNNEST({self.expressions(expression, flat=True)}){ordinality}{named}{listed}"

        # Both engines support QUALIFY, which sqlglot would write as a query around the query.
        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            **Spark.Generator.TRANSFORMS,
            exp.Select: preprocess([any_to_exists]),
            exp.Unnest: lambda self, node: self.unnest_sql(node),
        }

    class Tokenizer(Spark.Tokenizer):
        # Since Spark 4, 'it''s' is one text with a quote, not two adjacent texts.
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']


def _parse_substr(parser: Any) -> exp.Expr:
    """Parse `substr(…)`, and keep its name: sqlglot's tree is that of `substring(…)`."""
    found: exp.Expr = parser._parse_substring()
    found.meta["name"] = "substr"
    return found


class SparkCalls(SparkText):
    """Spark's dialect in which every function is a call by its own name."""

    class Parser(SparkText.Parser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            **_select_entries(
                Spark.Parser.FUNCTION_PARSERS,
                "CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "TRIM", "POSITION", "OVERLAY",
            ),
            "SUBSTR": _parse_substr,
        }  # fmt: skip
        NO_PAREN_FUNCTION_PARSERS = _select_entries(Spark.Parser.NO_PAREN_FUNCTION_PARSERS, "CASE", "IF", "ANY")
        NO_PAREN_IF_COMMANDS = False
        RANGE_PARSERS = _select_entries(Spark.Parser.RANGE_PARSERS, "BETWEEN", "ILIKE", "IN", "IS", "LIKE", "RLIKE")
        UNARY_PARSERS = _select_entries(Spark.Parser.UNARY_PARSERS, "PLUS", "NOT", "TILDE", "DASH")
        COLUMN_OPERATORS = _select_entries(Spark.Parser.COLUMN_OPERATORS, "DOT", "DCOLON")
        # In Spark `a = b < c` is `(a = b) < c`: there is one level of comparisons.
        COMPARISON: ClassVar[dict[Any, Any]] = {**Spark.Parser.EQUALITY, **Spark.Parser.COMPARISON}
        EQUALITY: ClassVar[dict[Any, Any]] = {}

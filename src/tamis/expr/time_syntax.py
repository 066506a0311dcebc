"""Spark's syntax of interval literals and times of day, where sqlglot's differs: parser and generator mixins."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark

from tamis.expr.interval_literals import (
    UNITS,
    IntervalLiteral,
    InvalidInterval,
    interval_from_range,
    interval_from_text,
    interval_from_units,
    unknown_unit_error,
)

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
            raise unknown_unit_error(word)
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

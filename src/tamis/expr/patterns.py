"""LIKE patterns and prefixes, and the bounds of the texts that match them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import takewhile
from typing import Any, AnyStr

DEFAULT_ESCAPE = "\\"
_LARGEST_CODE_POINT = 0x10FFFF


class _Wildcard:
    """A `%` or a `_` in a pattern."""

    def __init__(self, sign: str, regex: str) -> None:
        self.sign = sign
        self.regex = regex


ANY_TEXT = _Wildcard("%", ".*")
ANY_CHARACTER = _Wildcard("_", ".")


@dataclass(frozen=True)
class LikePattern:
    """A parsed LIKE pattern: literal characters, or single bytes, and wildcards, with escapes resolved."""

    parts: tuple[Any, ...]
    empty: Any = ""
    """The empty text, or the empty bytes if the pattern is one of bytes."""

    @cached_property
    def prefix(self) -> Any:
        """The text, or the bytes, that every match starts with."""
        return self.empty.join(takewhile(lambda part: not isinstance(part, _Wildcard), self.parts))

    @property
    def is_exact(self) -> bool:
        """Return whether the pattern has no wildcard, and so matches only its prefix."""
        return len(self.prefix) == len(self.parts)

    @property
    def is_prefix(self) -> bool:
        """Return whether every text with the prefix matches, as for `abc%`."""
        rest = self.parts[len(self.prefix) :]
        return bool(rest) and all(part is ANY_TEXT for part in rest)

    @property
    def regex(self) -> str:
        body = "".join(re.escape(part) if isinstance(part, str) else part.regex for part in self.parts)
        # \z matches only at the end of the text, and with (?s) `.` matches line breaks too.
        return rf"(?s)\A{body}\z"


@lru_cache(maxsize=256)
def parse_like(pattern: str, escape: str = DEFAULT_ESCAPE) -> LikePattern:
    r"""Parse a LIKE pattern. An escape makes the next character literal; at the end of the pattern it is a literal.

    >>> parse_like("a\\%b%").prefix, parse_like("abc%").is_prefix, parse_like("abc").is_exact
    ('a%b', True, True)
    """
    parts: list[str | _Wildcard] = []
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            parts.append(next(characters, character))
        elif character == "%":
            if not (parts and parts[-1] is ANY_TEXT):
                parts.append(ANY_TEXT)
        elif character == "_":
            parts.append(ANY_CHARACTER)
        else:
            parts.append(character)
    return LikePattern(tuple(parts))


def find_successor_of_prefix(prefix: AnyStr) -> AnyStr | None:
    """Return the smallest text, or bytes, above all that start with the prefix, or None if nothing is above them.

    >>> find_successor_of_prefix("ab"), find_successor_of_prefix("a\\U0010ffff")
    ('ac', 'b')
    >>> find_successor_of_prefix("\\ud7ff") == "\\ue000"
    True
    >>> find_successor_of_prefix("") is find_successor_of_prefix("\\U0010ffff") is None
    True
    >>> find_successor_of_prefix(b"a\\xff"), find_successor_of_prefix(b"\\xff")
    (b'b', None)
    """
    if isinstance(prefix, bytes):
        kept = prefix.rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    for length in range(len(prefix), 0, -1):
        code = ord(prefix[length - 1])
        if code < _LARGEST_CODE_POINT:
            # Surrogates are not characters: U+E000 follows U+D7FF.
            return prefix[: length - 1] + chr(0xE000 if code == 0xD7FF else code + 1)
    return None

"""Policies: which rows of a table a principal may see, and the masks of its columns.

A policy of a table is a list of rules. The first rule that names a principal applies: its condition over the raw values
decides which rows the principal sees, and its masks replace columns by expressions over the raw values. A principal
whom no rule names sees nothing. A table without a policy is denied unless `default` is `allow`. An unknown or invalid
policy denies access too.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tamis.errors import AccessDenied, InvalidArgument
from tamis.expr.nodes import TRUE, AnyExpr, and_
from tamis.io.location import Location

logger = logging.getLogger("tamis")
"""Logs why a function denies: for the owner of the session, not for the user who queries."""

EVERYBODY = "*"
GROUP = "@"
ALLOW, DENY = "allow", "deny"


@dataclass(frozen=True)
class TablePolicy:
    """What a principal sees of a table: rows for which `rows` is TRUE, and `masks` instead of columns.

    Both are expressions over the raw columns, not yet bound to them.
    """

    rows: AnyExpr = TRUE
    masks: Mapping[str, AnyExpr] = field(default_factory=dict)

    def __and__(self, other: TablePolicy) -> TablePolicy:
        """Return the policy under which both hold. Two masks of one column deny: each may show what the other hides."""
        mine = {name.casefold(): mask for name, mask in self.masks.items()}
        if any(mine.get(name.casefold(), mask) != mask for name, mask in other.masks.items()):
            raise AccessDenied("two policies mask one column of a table, and either might show what the other hides")
        added = {name: mask for name, mask in other.masks.items() if name.casefold() not in mine}
        return TablePolicy(and_(self.rows, other.rows), {**self.masks, **added})


@dataclass(frozen=True)
class PolicyRule:
    """A policy of a table for some principals: their names, `@group`, or `*` for everybody."""

    principals: frozenset[str]
    policy: TablePolicy


Lookup = Callable[[str, str | None], object]
"""Returns the policy of a table for a principal: a mapping with `rows` and `masks`, or a `TablePolicy`."""


@dataclass(frozen=True)
class Policies:
    """The policies of a session. `tamis.query.policies.load_policies` makes them."""

    tables: Mapping[str, Sequence[PolicyRule]] = field(default_factory=dict)
    """By names or URIs of tables; `*` stands for any characters. Every entry that matches a table applies to it."""
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    default: str = DENY
    """`allow` or `deny`, for tables without an entry."""
    lookup: Lookup | None = None
    """Called instead of a search in `tables`."""
    read: Callable[[object, str], TablePolicy] | None = None
    """Converts what `lookup` returns to a policy."""

    def find_policy(
        self, names: Sequence[str], principal: str | None, doubles: Sequence[Sequence[str]] = ()
    ) -> TablePolicy | None:
        """Return the policy of a table with these names; None if all of it may be read. Otherwise deny.

        `doubles` are its names in other databases of the session that are the same database: policies for these names
        apply too.
        """
        if principal is not None and (not isinstance(principal, str) or not principal):
            raise InvalidArgument("a principal is a name, and not an empty one")
        if self.lookup is not None:
            policy = self._look_up(names[0], principal)
            for first, *_ in doubles:
                policy = policy & self._look_up(first, principal, if_none=policy)
            return policy
        every = (*names, *(name for double in doubles for name in double))
        spelled = tuple(spelling for name in every for spelling in _list_spellings(name))
        rules = [self.tables[entry] for entry in self.tables if _matches(entry, *spelled)]
        if not rules:
            if self.default == ALLOW:
                return None
            raise AccessDenied(f"no policy lets {_describe_principal(principal)} read {names[0]}")
        combined = TablePolicy()
        for each in rules:
            combined = combined & self._choose(each, names[0], principal)
        return combined

    def _choose(self, rules: Sequence[PolicyRule], table: str, principal: str | None) -> TablePolicy:
        for rule in rules:
            if self._has_principal(rule, principal):
                return rule.policy
        raise AccessDenied(f"no policy lets {_describe_principal(principal)} read {table}")

    def _has_principal(self, rule: PolicyRule, principal: str | None) -> bool:
        if EVERYBODY in rule.principals:
            return True
        if principal is None:
            return False
        # A principal is not a group, or everybody, because of a name that looks like one.
        is_named = principal in rule.principals and not principal.startswith((GROUP, EVERYBODY))
        groups = (name.removeprefix(GROUP) for name in rule.principals if name.startswith(GROUP))
        return is_named or any(principal in self.groups.get(group, ()) for group in groups)

    def _look_up(self, table: str, principal: str | None, if_none: TablePolicy | None = None) -> TablePolicy:
        assert self.lookup is not None
        assert self.read is not None
        refusal = f"the policy that {_describe_principal(principal)} needs to read {table} could not be looked up"
        try:
            found: Any = self.lookup(table, principal)
            if found is None and if_none is not None:
                return if_none
            # A mapping or a TablePolicy; None, for an unknown table or principal, is an error.
            return found if isinstance(found, TablePolicy) else self.read(found, table)
        except AccessDenied:
            raise
        except Exception as error:  # noqa: BLE001 - the user's function may fail in any way, and must not grant access
            logger.info("%s: %s: %s", refusal, type(error).__name__, error)
            raise AccessDenied(refusal) from None


def _matches(entry: str, *names: str) -> bool:
    """Return whether an entry is about a table with one of these names. Case does not matter, as in SQL.

    A location includes everything below it, so that opening a part of a table does not bypass a policy.

    >>> _matches("Orders", "orders"), _matches("s3://lake/a/*", "s3://lake/a/b"), _matches("/a", "/a/day=1/b")
    (True, True, True)
    """
    inside = "(?:/.*)?" if "/" in entry else ""
    for spelled in _list_spellings(entry):
        pattern = ".*".join(map(re.escape, spelled.casefold().rstrip("/").split(EVERYBODY)))
        if any(re.fullmatch(pattern + inside, name.casefold().rstrip("/"), re.DOTALL) for name in names):
            return True
    return False


def _list_spellings(text: str) -> tuple[str, ...]:
    """Return a name, or the spellings of a location: relative or absolute, through links, as a URI.

    >>> _list_spellings("orders"), _list_spellings("s3a://lake/orders"), _list_spellings("file:///srv/no%20such")[1]
    (('orders',), ('s3a://lake/orders', 's3://lake/orders'), '/srv/no such')
    """
    if "/" not in text:
        return (text,)
    location = Location.of(text)
    if location.scheme != "file":
        return text, f"{location.scheme}://{location.path}"
    path = unquote(location.path) if "://" in text else location.path
    path = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - as tables are opened, but for any text
    # The links of a pattern cannot be resolved.
    return (text, path) if EVERYBODY in path else (text, path, os.path.realpath(path))


def _describe_principal(principal: str | None) -> str:
    return "a session without a principal" if principal is None else repr(principal)

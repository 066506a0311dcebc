"""Policies: who may see which rows of which tables, and what in place of columns.

A policy of a table is a list of rules, of which the first that names a principal is his. It says which rows he sees, by
a condition over the raw values, and what he sees in place of columns, each an expression over the raw values too.
Whoever no rule names sees nothing, and of a table without a policy nobody sees anything unless `default` is `allow`:
whatever is missing, unknown or wrong denies.
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
from tamis.expr.nodes import TRUE, Expr, and_
from tamis.tables.iceberg.relocation import Location

logger = logging.getLogger("tamis")
"""Told is why a function denies: to whoever runs the session, not to whoever queries."""

EVERYBODY = "*"
GROUP = "@"
ALLOW, DENY = "allow", "deny"


@dataclass(frozen=True)
class TablePolicy:
    """What somebody sees of a table: rows for which `rows` is TRUE, and `masks` in place of columns.

    Both are expressions over the raw columns, not yet bound to them.
    """

    rows: Expr = TRUE
    masks: Mapping[str, Expr] = field(default_factory=dict)

    def __and__(self, other: TablePolicy) -> TablePolicy:
        """What is left where both hold. A column with two masks would show what one of them hides."""
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
"""Asked for the policy of a table for a principal: a mapping with `rows` and `masks`, or a `TablePolicy`."""


@dataclass(frozen=True)
class Policies:
    """The policies of a session. Made with `tamis.pushdown.policies.load_policies`."""

    tables: Mapping[str, Sequence[PolicyRule]] = field(default_factory=dict)
    """By names or URIs of tables; `*` stands for any characters. Every entry that fits a table applies to it."""
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    default: str = DENY
    """What holds for tables without an entry."""
    lookup: Lookup | None = None
    """Asked in place of `tables`."""
    read: Callable[[object, str], TablePolicy] | None = None
    """Makes a policy of what `lookup` returns."""

    def policy_of(
        self, names: Sequence[str], principal: str | None, doubles: Sequence[Sequence[str]] = ()
    ) -> TablePolicy | None:
        """The policy of a table that has these names; None where it may be read as it is, AccessDenied where not.

        `doubles` are its names in other databases of the session that are the same one: what is said of the table
        there holds here too.
        """
        if principal is not None and (not isinstance(principal, str) or not principal):
            raise InvalidArgument("a principal is a name, and not an empty one")
        if self.lookup is not None:
            policy = self._asked(names[0], principal)
            for first, *_ in doubles:
                policy = policy & self._asked(first, principal, if_none=policy)
            return policy
        every = (*names, *(name for double in doubles for name in double))
        spelled = tuple(spelling for name in every for spelling in _spellings(name))
        rules = [self.tables[entry] for entry in self.tables if _fits(entry, *spelled)]
        if not rules:
            if self.default == ALLOW:
                return None
            raise AccessDenied(f"no policy lets {_who(principal)} read {names[0]}")
        combined = TablePolicy()
        for each in rules:
            combined = combined & self._chosen(each, names[0], principal)
        return combined

    def _chosen(self, rules: Sequence[PolicyRule], table: str, principal: str | None) -> TablePolicy:
        for rule in rules:
            if self._names(rule, principal):
                return rule.policy
        raise AccessDenied(f"no policy lets {_who(principal)} read {table}")

    def _names(self, rule: PolicyRule, principal: str | None) -> bool:
        if EVERYBODY in rule.principals:
            return True
        if principal is None:
            return False
        # A principal whose name looks like a group or like everybody is none of them.
        is_named = principal in rule.principals and not principal.startswith((GROUP, EVERYBODY))
        groups = (name.removeprefix(GROUP) for name in rule.principals if name.startswith(GROUP))
        return is_named or any(principal in self.groups.get(group, ()) for group in groups)

    def _asked(self, table: str, principal: str | None, if_none: TablePolicy | None = None) -> TablePolicy:
        assert self.lookup is not None
        assert self.read is not None
        refusal = f"the policy that {_who(principal)} needs to read {table} could not be had"
        try:
            found: Any = self.lookup(table, principal)
            if found is None and if_none is not None:
                return if_none
            # TablePolicy or a mapping; None is what a lookup says of somebody or something that it does not know.
            return found if isinstance(found, TablePolicy) else self.read(found, table)
        except AccessDenied:
            raise
        except Exception as error:  # noqa: BLE001 - it is the user's, may fail in any way, and must not let anybody in
            logger.info("%s: %s: %s", refusal, type(error).__name__, error)
            raise AccessDenied(refusal) from None


def _fits(entry: str, *names: str) -> bool:
    """Whether an entry is about a table of these names: SQL does not tell upper from lower case, so neither do we.

    What lies inside of a place belongs to it, so that nobody gets around a policy by opening a part of a table.

    >>> _fits("Orders", "orders"), _fits("s3://lake/private/*", "s3://lake/private/a"), _fits("/a", "/a/day=1/b")
    (True, True, True)
    """
    inside = "(?:/.*)?" if "/" in entry else ""
    for spelled in _spellings(entry):
        pattern = ".*".join(map(re.escape, spelled.casefold().rstrip("/").split(EVERYBODY)))
        if any(re.fullmatch(pattern + inside, name.casefold().rstrip("/"), re.DOTALL) for name in names):
            return True
    return False


def _spellings(text: str) -> tuple[str, ...]:
    """A name as it is, or a place in the ways in which it may be written: relative or not, by a link, as a URI.

    >>> _spellings("orders"), _spellings("s3a://lake/orders"), _spellings("file:///srv/no%20such")[1]
    (('orders',), ('s3a://lake/orders', 's3://lake/orders'), '/srv/no such')
    """
    if "/" not in text:
        return (text,)
    location = Location.of(text)
    if location.scheme != "file":
        return text, f"{location.scheme}://{location.path}"
    path = unquote(location.path) if "://" in text else location.path
    path = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - as tables are opened, but for any text
    # Where a pattern leads to cannot be looked up.
    return (text, path) if EVERYBODY in path else (text, path, os.path.realpath(path))


def _who(principal: str | None) -> str:
    return "a session without a principal" if principal is None else repr(principal)

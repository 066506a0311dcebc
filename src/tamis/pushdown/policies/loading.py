"""Policies from Python, from a file, or from a function.

    groups:
      europe: [ana, ben]
    default: deny                        # tables without an entry; or allow
    tables:
      orders:                            # a name, or a URI; * stands for any characters
        - principals: [admin]
          rows: "TRUE"                   # all of them
        - principals: ["@europe"]        # a group; "*" is everybody
          rows: region = 'eu' OR owner = current_user()
          masks:
            card: concat('****', right(card, 4))
            email: "NULL"

A mapping in Python has the same form, where expressions may also be built with `tamis.col`. Nothing is guessed: a key
that is not known, a key twice, an expression that cannot be read are errors when the session is made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tamis.errors import InvalidArgument, MissingDependency, TamisError, one_line, with_article
from tamis.expr.builder import Expression
from tamis.expr.nodes import TRUE, Call, Column, Expr, Literal
from tamis.expr.sql import parse_sql
from tamis.pushdown.policies.model import ALLOW, DENY, EVERYBODY, GROUP, Policies, PolicyRule, TablePolicy

PolicySource = str | os.PathLike[str] | Mapping[str, Any] | Callable[[str, str | None], Any] | Policies


def load_policies(given: PolicySource | None) -> Policies | None:
    """The policies that `tamis.connect(policies=…)` means: a file, a mapping, a function; None where there are none."""
    match given:
        case None | Policies():
            return given
        case str() | os.PathLike():
            path = Path(given)
            return _from_document(_read_file(path), str(path))
        case Mapping():
            return _from_document(given, "policies")
        case _ if callable(given):
            return Policies(lookup=given, read=lambda found, table: _policy(found, f"the policy of {table}"))
        case _:
            raise InvalidArgument(
                f"policies are a path, a mapping or a function, not {with_article(type(given).__name__)}"
            )


def _from_document(document: object, place: str) -> Policies:
    found = _mapping(document, place, ("tables", "groups", "default"))
    default = found.get("default", DENY)
    if default not in (ALLOW, DENY):
        raise InvalidArgument(f"{place}: default is allow or deny, not {default!r}")
    if "tables" not in found:
        raise InvalidArgument(f"{place}: there are no tables: name each, as in tables: {{orders: [...]}}")
    groups = {
        name: _names(members, f"{place}: groups.{name}")
        for name, members in _mapping(found.get("groups", {}), f"{place}: groups").items()
    }
    tables = {
        name: _rules(rules, f"{place}: tables.{name}", groups)
        for name, rules in _mapping(found["tables"], f"{place}: tables").items()
    }
    return Policies(tables, groups, default)


def _rules(given: object, place: str, groups: Mapping[str, frozenset[str]]) -> tuple[PolicyRule, ...]:
    rules = [given] if isinstance(given, Mapping) else given
    if not isinstance(rules, Sequence) or isinstance(rules, str):
        raise InvalidArgument(f"{place} is a list of rules, not {with_article(type(given).__name__)}")
    return tuple(_rule(rule, f"{place}[{index}]", groups) for index, rule in enumerate(rules))


def _rule(given: object, place: str, groups: Mapping[str, frozenset[str]]) -> PolicyRule:
    found = _mapping(given, place, ("principals", "rows", "masks"))
    if "principals" not in found:
        raise InvalidArgument(f"{place} names no principals: list them, or write '*' for everybody")
    principals = _names(found["principals"], f"{place}.principals")
    for name in principals:
        if name.startswith(GROUP) and name.removeprefix(GROUP) not in groups:
            raise InvalidArgument(f"{place}.principals: there is no group {name.removeprefix(GROUP)!r}")
        if EVERYBODY in name and name != EVERYBODY:
            raise InvalidArgument(f"{place}.principals: {name!r} is no name; '*' alone is everybody")
    return PolicyRule(principals, _policy({key: found[key] for key in found if key != "principals"}, place))


def _policy(given: object, place: str) -> TablePolicy:
    found = _mapping(given, place, ("rows", "masks"))
    if not found:
        raise InvalidArgument(f"{place} says nothing: for all rows and columns write rows: 'TRUE'")
    masks = _mapping(found.get("masks", {}), f"{place}.masks")
    return TablePolicy(
        _expression(found["rows"], f"{place}.rows") if "rows" in found else TRUE,
        {name: _expression(mask, f"{place}.masks.{name}") for name, mask in masks.items()},
    )


def _expression(given: object, place: str) -> Expr:
    match given:
        case str():
            try:
                return parse_sql(given)
            except TamisError as error:
                raise InvalidArgument(f"{place}: {error}") from error
        case bool():
            return Literal(given, TRUE.type)
        case Expression():
            return given.node
        case Column() | Literal() | Call():
            return given
        case _:
            raise InvalidArgument(f"{place} is SQL text or an expression, not {given!r}; NULL is the text 'NULL'")


def _names(given: object, place: str) -> frozenset[str]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Sequence | set | frozenset) or not all(isinstance(name, str) and name for name in names):
        raise InvalidArgument(f"{place} is a list of names, not {given!r}")
    return frozenset(names)


def _mapping(given: object, place: str, known: Sequence[str] | None = None) -> Mapping[str, Any]:
    if given is None:
        raise InvalidArgument(f"{place} is empty: it is a mapping, as docs/security.md shows")
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"{place} is a mapping, not {with_article(type(given).__name__)}")
    for key in given:
        if not isinstance(key, str):
            raise InvalidArgument(f"{place}: the name {key!r} is no text: write it between quotes")
        if known is not None and key not in known:
            raise InvalidArgument(f"{place}: {key!r} is not known here. Known: {', '.join(known)}")
    return given


# --- Files ----------------------------------------------------------------------------------------------------------


def _read_file(path: Path) -> object:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # bytes that are no text, or a path that no file can have
        raise InvalidArgument(f"the policies in {str(path)!r} cannot be read: {one_line(error)}") from error
    return _from_json(text, path) if path.suffix == ".json" else _from_yaml(text, path)


def _from_json(text: str, path: Path) -> object:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidArgument(f"{path}: {twice!r} is there twice")
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except ValueError as error:
        raise InvalidArgument(f"{path} is no JSON: {one_line(error)}") from error


def _from_yaml(text: str, path: Path) -> object:
    try:
        import yaml
    except ImportError as error:
        raise MissingDependency(
            "policies in YAML need PyYAML: pip install 'tamis[policies]', or write them as .json"
        ) from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # it has no types
        """Plain values only, and no key twice: of two rules with one name the second would win in silence."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            for index, key in enumerate(keys):
                if key in keys[:index]:
                    raise InvalidArgument(f"{path}: {key!r} is there twice (line {node.start_mark.line + 1})")
            return super().construct_mapping(node, deep)  # type: ignore[no-any-return]

    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise InvalidArgument(f"{path} is no YAML: {one_line(error)}") from error

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

A mapping in Python has the same form; its expressions may also be built with `tamis.col`. Unknown keys, repeated keys
and invalid expressions are errors when the session is made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tamis.errors import InvalidArgument, TamisError, add_article, make_missing_package_error, to_one_line
from tamis.expr.builder import Expression
from tamis.expr.nodes import TRUE, AnyExpr, Call, Column, Literal, Name
from tamis.expr.sql.parse import parse_sql
from tamis.expr.wire.partition_filter import PartitionFilter
from tamis.query.policies.model import ALLOW, DENY, EVERYBODY, GROUP, Policies, PolicyRule, TablePolicy

PolicySource = str | os.PathLike[str] | Mapping[str, Any] | Callable[[str, str | None], Any] | Policies


def load_policies(given: PolicySource | None) -> Policies | None:
    """Return the policies of `tamis.connect(policies=…)`: from a file, a mapping or a function; None for none."""
    match given:
        case None | Policies():
            return given
        case str() | os.PathLike():
            path = Path(given)
            return _from_document(_read_file(path), str(path))
        case Mapping():
            return _from_document(given, "policies")
        case _ if callable(given):
            return Policies(lookup=given, read=lambda found, table: _parse_policy(found, f"the policy of {table}"))
        case _:
            raise InvalidArgument(
                f"policies must be a path, a mapping or a function, found {add_article(type(given).__name__)}"
            )


def _from_document(document: object, where: str) -> Policies:
    found = _check_mapping(document, where, ("tables", "groups", "default"))
    default = found.get("default", DENY)
    if default not in (ALLOW, DENY):
        raise InvalidArgument(f"{where}: default must be allow or deny, found {default!r}")
    if "tables" not in found:
        raise InvalidArgument(f"{where}: tables is missing: name each table, as in tables: {{orders: [...]}}")
    groups = {
        name: _check_names(members, f"{where}: groups.{name}")
        for name, members in _check_mapping(found.get("groups", {}), f"{where}: groups").items()
    }
    tables = {
        name: _parse_rules(rules, f"{where}: tables.{name}", groups)
        for name, rules in _check_mapping(found["tables"], f"{where}: tables").items()
    }
    return Policies(tables, groups, default)


def _parse_rules(given: object, where: str, groups: Mapping[str, frozenset[str]]) -> tuple[PolicyRule, ...]:
    rules = [given] if isinstance(given, Mapping) else given
    if not isinstance(rules, Sequence) or isinstance(rules, str):
        raise InvalidArgument(f"{where} must be a list of rules, found {add_article(type(given).__name__)}")
    return tuple(_parse_rule(rule, f"{where}[{index}]", groups) for index, rule in enumerate(rules))


def _parse_rule(given: object, where: str, groups: Mapping[str, frozenset[str]]) -> PolicyRule:
    found = _check_mapping(given, where, ("principals", "rows", "masks"))
    if "principals" not in found:
        raise InvalidArgument(f"{where} has no principals: list them, or write '*' for everybody")
    principals = _check_names(found["principals"], f"{where}.principals")
    for name in principals:
        if name.startswith(GROUP) and name.removeprefix(GROUP) not in groups:
            listed = ", ".join(sorted(groups)) or "none"
            raise InvalidArgument(
                f"{where}.principals: there is no group {name.removeprefix(GROUP)!r}. Groups: {listed}"
            )
        if EVERYBODY in name and name != EVERYBODY:
            raise InvalidArgument(f"{where}.principals: {name!r} is not a name; '*' alone means everybody")
    return PolicyRule(principals, _parse_policy({key: found[key] for key in found if key != "principals"}, where))


def _parse_policy(given: object, where: str) -> TablePolicy:
    found = _check_mapping(given, where, ("rows", "masks"))
    if not found:
        raise InvalidArgument(f"{where} is empty: for all rows and columns write rows: 'TRUE'")
    masks = _check_mapping(found.get("masks", {}), f"{where}.masks")
    return TablePolicy(
        _parse_expression(found["rows"], f"{where}.rows") if "rows" in found else TRUE,
        {name: _parse_expression(mask, f"{where}.masks.{name}") for name, mask in masks.items()},
    )


def _parse_expression(given: object, where: str) -> AnyExpr:
    match given:
        case str():
            try:
                return parse_sql(given)
            except TamisError as error:
                raise InvalidArgument(f"{where}: {error}") from error
        case bool():
            return Literal(given, TRUE.type)
        case Expression():
            return given.node
        case PartitionFilter():
            return given.to_expr()
        case Name() | Column() | Literal() | Call():
            return given
        case _:
            raise InvalidArgument(
                f"{where} must be SQL text or an expression, found {given!r}; NULL is the text 'NULL'"
            )


def _check_names(given: object, where: str) -> frozenset[str]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Sequence | set | frozenset) or not all(isinstance(name, str) and name for name in names):
        raise InvalidArgument(f"{where} must be a list of names, found {given!r}")
    return frozenset(names)


def _check_mapping(given: object, where: str, known: Sequence[str] | None = None) -> Mapping[str, Any]:
    if given is None:
        raise InvalidArgument(f"{where} is empty: it is a mapping, as docs/explanation/security.md shows")
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"{where} must be a mapping, found {add_article(type(given).__name__)}")
    for key in given:
        if not isinstance(key, str):
            raise InvalidArgument(f"{where}: the name {key!r} is not a text: write it between quotes")
        if known is not None and key not in known:
            raise InvalidArgument(f"{where}: unknown key {key!r}. Known: {', '.join(known)}")
    return given


# --- Files ----------------------------------------------------------------------------------------------------------


def _read_file(path: Path) -> object:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # bytes that are not text, or a path that no file can have
        raise InvalidArgument(f"the policies in {str(path)!r} cannot be read: {to_one_line(error)}") from error
    return _from_json(text, path) if path.suffix == ".json" else _from_yaml(text, path)


def _from_json(text: str, path: Path) -> object:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidArgument(f"{path}: the key {twice!r} is repeated")
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except ValueError as error:
        raise InvalidArgument(f"{path} is not valid JSON: {to_one_line(error)}") from error


def _from_yaml(text: str, path: Path) -> object:
    try:
        import yaml
    except ImportError as error:
        raise make_missing_package_error(
            "a policy file in YAML", "policies", "pyyaml", otherwise=", or write it as .json"
        ) from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # it has no types
        """Plain values without repeated keys: YAML would use the last of two rules with one name."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            for index, key in enumerate(keys):
                if key in keys[:index]:
                    raise InvalidArgument(f"{path}: the key {key!r} is repeated (line {node.start_mark.line + 1})")
            return super().construct_mapping(node, deep)  # type: ignore[no-any-return]

    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise InvalidArgument(f"{path} is not valid YAML: {to_one_line(error)}") from error

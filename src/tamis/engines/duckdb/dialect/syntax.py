"""The tables, columns and conditions of a DuckDB SQL text, from DuckDB's own parser.

`json_serialize_sql` returns the syntax tree that DuckDB will run, so both read the text alike. The tree differs a
little between versions of DuckDB, and has more kinds of nodes than this module knows. An unknown node never narrows a
scan: a table without a known condition is read completely, and a query with an unknown kind of source reads all columns
of all tables.

    SELECT o.id FROM orders o JOIN items i USING (id) WHERE o.day = DATE '2024-01-01' AND i.price > 5

    orders: columns id, day; conditions o.day = …      items: columns id, price; conditions i.price > 5
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from tamis.errors import ParseError, Position, UnsupportedFeature, format_position

Json = Mapping[str, Any]

_PURE_TABLE_FUNCTIONS = frozenset(
    ("range", "generate_series", "unnest", "json_each", "json_tree", "repeat", "repeat_row", "generate_subscripts")
)
"""Table functions that depend on their arguments only. Any other may read a table whose name is in a string."""

_SOURCES = frozenset(
    ("BASE_TABLE", "JOIN", "SUBQUERY", "TABLE_FUNCTION", "EMPTY", "EXPRESSION_LIST", "EMPTY_FROM", "CTE", "VALUES")
)
"""Kinds of sources that read only the columns that the query names."""

_JOINS = frozenset(("REGULAR", "CROSS", "ASOF", "POSITIONAL"))
"""Joins on columns that the query names. NATURAL matches all columns of the same name."""

MAX_NAME_PARTS = 3
"""The maximum number of parts of a table name: database, schema, table."""


@dataclass(eq=False)
class Reference:
    """A reference to a table in a query."""

    name: tuple[str, ...]
    alias: str
    """The qualifier of its columns; empty if that is the table name."""
    is_renamed: bool
    """Whether it has column aliases, which rename its columns by position."""
    is_sampled: bool
    needs_all: bool = False
    """Whether a star expands to its columns."""

    @property
    def qualifier(self) -> tuple[str, ...]:
        return (self.alias,) if self.alias else self.name


@dataclass(frozen=True)
class Block:
    """A SELECT with conditions: the sources of its FROM, and the conditions that each row of its result satisfies."""

    references: tuple[Reference, ...]
    filtered: tuple[Reference, ...]
    """References whose rows may be skipped if they fail a condition: no outer join preserves them."""
    conditions: tuple[Json, ...]
    merged: frozenset[str]
    """Columns of USING, which belong to several sources."""
    aliases: frozenset[str]
    """Aliases in the SELECT list, except those of a column of the same name."""
    other_sources: frozenset[str]
    """The names of sources that are not tables."""


@dataclass
class Syntax:
    """The tables, columns and conditions of a text."""

    references: list[Reference] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    mentioned: set[str] = field(default_factory=set)
    """Every name and string in the query, case-folded: a column that is not among them is not read."""
    commons: set[str] = field(default_factory=set)
    """Names of common table expressions, case-folded."""
    is_opaque: bool = False
    """Whether it may read tables or columns that the tree does not name."""
    is_listing: bool = False
    """Whether it lists table names, which only the session knows."""
    has_data_columns: bool = False
    """Whether the columns of the result depend on the rows, as those of PIVOT do."""
    parameters: frozenset[str] = frozenset()


def format_duckdb_error(error: BaseException) -> str:
    """Return the first line of DuckDB's error message about a text, its suggestion of a name, and the position.

    >>> format_duckdb_error(Exception("Binder Error: no b!\\nDid you mean a?\\n\\nLINE 2: , b FROM t\\n          ^"))
    'no b! Did you mean a? (at: query, line 2, character 3)'
    """
    first, *others = str(error).splitlines() or [""]
    text = re.sub(r"^(?:[A-Z][A-Za-z]* )+Error: ", "", " ".join(first.split()))
    suggested = next((line.strip() for line in others if _SUGGESTION.match(line)), None)
    position = _find_position(str(error))
    where = "" if position is None else f" (at: query, {format_position(position)})"
    return f"{text or type(error).__name__}{f' {suggested}' if suggested else ''}{where}"


_SUGGESTION = re.compile(r"\s*(?:Did you mean|Candidate bindings:)")
_MARKED_LINE = re.compile(r"^LINE (?P<line>\d+): (?P<shown>.*)\n(?P<indent> *)\^", re.MULTILINE)


def _find_position(message: str) -> Position | None:
    """Return the position that an error of DuckDB marks; None if it marks none, or shows only a part of a long line."""
    found = _MARKED_LINE.search(message)
    if found is None or found["shown"].startswith("..."):
        return None
    column = len(found["indent"]) - len(f"LINE {found['line']}: ") + 1
    return Position(column, line=int(found["line"]), column=column)


def fold_name(name: str) -> str:
    """Fold a name as DuckDB compares names: without regard to the case of ASCII letters."""
    return "".join(sign.lower() if sign.isascii() else sign for sign in name)


def read_syntax(text: str, connection: duckdb.DuckDBPyConnection) -> Syntax:
    """Parse a text without running it; raise `ParseError` if it is not a query."""
    try:
        statements = connection.extract_statements(text)
    except duckdb.Error as error:
        raise ParseError(format_duckdb_error(error)) from error
    # PIVOT becomes several statements: a type for the values that it finds, and the query. So does a COPY of a PIVOT.
    is_many = bool(statements) and (len(statements) > 1 or statements[0].type.name.startswith("MULTI"))
    is_pivot = is_many and _is_row_source(text, connection)
    if len(statements) != 1 and not is_pivot:
        found = "no query" if not statements else f"{len(statements)} statements"
        raise ParseError(f"expected one query, found {found}")
    statement = statements[-1]
    kind = statement.type.name
    if kind != "SELECT" and not is_pivot:
        raise ParseError(
            f"{kind.replace('_', ' ')} is not a query",
            hint="Only queries run here: SELECT, FROM, WITH, VALUES, PIVOT, DESCRIBE, SUMMARIZE",
        )
    parameters = frozenset(statement.named_parameters)
    node = None if is_many else _serialise_tree(text, connection)
    if node is None:
        return Syntax(is_opaque=True, has_data_columns=is_many, parameters=parameters)
    reader = _Reader()
    reader.read(node)
    reader.found.parameters = parameters
    return reader.found


def _is_row_source(text: str, connection: duckdb.DuckDBPyConnection) -> bool:
    """Return whether a statement can be a source in FROM, which only queries can."""
    try:
        found = connection.extract_statements(f"SELECT * FROM (\n{text.rstrip().rstrip(';')}\n) AS pivoted")
    except duckdb.Error:
        return False
    return found[-1].type.name.startswith(("SELECT", "MULTI"))


def _serialise_tree(text: str, connection: duckdb.DuckDBPyConnection) -> Json | None:
    """Return the syntax tree of a query; None if DuckDB cannot serialise it."""
    try:
        row = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
        found: dict[str, Any] = json.loads(row[0]) if row is not None else {"error": True}
    except (duckdb.Error, RecursionError, ValueError):
        return None
    if found.get("error") or len(found.get("statements", ())) != 1:
        return None
    node = found["statements"][0].get("node")
    return node if isinstance(node, dict) else None


class _Reader:
    def __init__(self) -> None:
        self.found = Syntax()
        self._sources: set[str] = set()
        """Names and aliases of all sources."""
        self._references: dict[int, Reference] = {}
        """References by the `id()` of their nodes."""
        self._tested: set[int] = set()
        """The queries inside of EXISTS, by `id()`, whose columns do not matter."""

    def read(self, root: Json) -> None:
        for node in walk_nodes(root):
            self._collect_names(node)
        self.found.references += self._references.values()
        for node in walk_nodes(root):
            if node.get("type") == "SELECT_NODE":
                self._read_select(node)
            if node.get("class") == "COLUMN_REF" and fold_name(_get_column_names(node)[-1]) in self._sources:
                # A table name as a column is its whole row.
                self.found.is_opaque = True

    # --- Names --------------------------------------------------------------------------------------------------------

    def _collect_names(self, node: Json) -> None:
        found = self.found
        for value in node.values():
            if isinstance(value, str):
                found.mentioned.add(fold_name(value))
            elif isinstance(value, list):
                found.mentioned.update(fold_name(each) for each in value if isinstance(each, str))
        kind = node.get("type")
        if "from_table" in node and kind != "SELECT_NODE":
            found.is_opaque = True
        if node.get("class") == "POSITIONAL_REFERENCE":
            found.is_opaque = True
        if kind == "JOIN":
            found.is_opaque |= node.get("ref_type") not in _JOINS
        if kind == "SHOW_REF":
            found.is_opaque = True
            found.is_listing |= not isinstance(node.get("query"), dict)
        if "sample" in node and kind not in _SOURCES and kind != "SELECT_NODE":
            # PIVOT, SHOW, and sources of later versions.
            found.is_opaque = True
        if kind == "TABLE_FUNCTION" and not _depends_on_arguments_only(node):
            found.is_opaque = True
        if "sample" in node and "alias" in node:
            self._sources.add(fold_name(node["alias"]))
        if kind == "BASE_TABLE":
            self._sources.add(fold_name(node["table_name"]))
            self._references[id(node)] = _make_reference(node)
        if node.get("class") == "SUBQUERY" and node.get("subquery_type") == "EXISTS":
            self._tested.add(id(node["subquery"].get("node")))
        if isinstance(node.get("cte_map"), dict):
            names = [fold_name(each["key"]) for each in node["cte_map"].get("map", ())]
            found.commons.update(names)
            self._sources.update(names)
        self._sources.discard("")

    # --- Sources ------------------------------------------------------------------------------------------------------

    def _read_select(self, node: Json) -> None:
        sources: list[tuple[Json, Reference | None]] = []
        kept: list[Reference] = []
        conditions: list[Json] = []
        merged: set[str] = set()
        self._read_source(node.get("from_table"), sources, kept, conditions, merged, is_kept=node.get("sample") is None)
        references = tuple(each for _, each in sources if each is not None)
        self._read_stars(node, references)
        where = node.get("where_clause")
        if isinstance(where, dict):
            conditions += _split_conjuncts(where)
        if conditions and kept:
            others = frozenset(fold_name(each.get("alias", "")) for each, reference in sources if reference is None)
            self.found.blocks.append(
                Block(references, tuple(kept), tuple(conditions), frozenset(merged), _collect_aliases(node), others)
            )

    def _read_source(
        self,
        node: object,
        sources: list[tuple[Json, Reference | None]],
        kept: list[Reference],
        conditions: list[Json],
        merged: set[str],
        *,
        is_kept: bool,
    ) -> None:
        """Collect the sources of a FROM. `is_kept`: rows that fail a condition of the SELECT may be skipped."""
        waiting: list[tuple[object, bool]] = [(node, is_kept)]
        while waiting:
            each, is_free = waiting.pop()
            if not isinstance(each, dict):
                continue
            if each.get("type") == "JOIN":
                merged.update(map(fold_name, each.get("using_columns") or ()))
                is_plain = each.get("ref_type") in ("REGULAR", "CROSS") and each.get("sample") is None
                kind = each.get("join_type")
                left = is_free and is_plain and kind in ("INNER", "LEFT", "SEMI", "ANTI")
                right = is_free and is_plain and kind in ("INNER", "RIGHT")
                if left and right and isinstance(each.get("condition"), dict):
                    conditions += _split_conjuncts(each["condition"])
                waiting += [(each.get("right"), right), (each.get("left"), left)]
            elif each.get("type") == "BASE_TABLE":
                reference = self._references[id(each)]
                sources.append((each, reference))
                if is_free and not reference.is_sampled and not reference.is_renamed:
                    kept.append(reference)
            else:
                sources.append((each, None))

    def _read_stars(self, node: Json, references: Sequence[Reference]) -> None:
        is_tested = id(node) in self._tested
        for star in _iter_own_stars(node):
            if is_tested and any(star is each for each in node["select_list"]):
                continue
            name = star.get("relation_name")
            if name and not any(fold_name(each.qualifier[-1]) == fold_name(name) for each in references):
                # The star belongs to an outer query, or to another kind of source.
                self.found.is_opaque |= fold_name(name) not in {
                    fold_name(each) for each in _iter_source_aliases(node.get("from_table"))
                }
                continue
            for each in references:
                each.needs_all = True


def walk_nodes(root: object) -> Iterator[Json]:
    waiting: list[object] = [root]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            yield current
            waiting += current.values()
        elif isinstance(current, list):
            waiting += current


def _iter_own_stars(select: Json) -> Iterator[Json]:
    """Yield the stars of a SELECT outside of its subqueries."""
    waiting: list[object] = [value for key, value in select.items() if key != "cte_map"]
    while waiting:
        current = waiting.pop()
        if isinstance(current, list):
            waiting += current
        elif isinstance(current, dict):
            if current.get("class") == "STAR":
                yield current
            if "cte_map" not in current:
                waiting += current.values()


def _iter_source_aliases(node: object) -> Iterator[str]:
    return (
        each["alias"] or each.get("table_name") or ""
        for each in walk_nodes(node)
        if "sample" in each and "alias" in each
    )


def _make_reference(node: Json) -> Reference:
    name = tuple(node["qualified_name"]["path"])
    if node.get("at_clause") is not None:
        raise UnsupportedFeature(
            f"{'.'.join(name)} AT (…): dialect='duckdb' does not support time travel. Register the version, "
            "as in c.register('before', c.open(uri, version=3))"
        )
    if len(name) > MAX_NAME_PARTS:
        raise UnsupportedFeature(
            f"the table name {'.'.join(name)} has {len(name)} parts, and DuckDB supports at most "
            f"{MAX_NAME_PARTS}. Register the table under a shorter name with c.register(name, table)"
        )
    return Reference(
        name, node.get("alias") or "", bool(node.get("column_name_alias")), is_sampled=node.get("sample") is not None
    )


def _depends_on_arguments_only(node: Json) -> bool:
    call = node.get("function")
    return isinstance(call, dict) and fold_name(call.get("function_name", "")) in _PURE_TABLE_FUNCTIONS


def _get_column_names(column: Json) -> list[str]:
    return list(column.get("column_names") or ("",))


def _split_conjuncts(node: Json) -> list[Json]:
    found: list[Json] = []
    waiting: list[Json] = [node]
    while waiting:
        current = waiting.pop()
        if current.get("type") == "CONJUNCTION_AND":
            waiting += reversed(current["children"])
        else:
            found.append(current)
    return found


def _collect_aliases(select: Json) -> frozenset[str]:
    found = set()
    for each in select.get("select_list", ()):
        alias = fold_name(each.get("alias") or "")
        is_same = each.get("class") == "COLUMN_REF" and fold_name(_get_column_names(each)[-1]) == alias
        if alias and not is_same:
            found.add(alias)
    return frozenset(found)


_NAME = re.compile(
    r"""'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/|((?:"(?:[^"]|"")+"|[^\W\d]\w*)(?:\s*\.\s*(?:"(?:[^"]|"")+"|\w+))*)""",
    re.DOTALL,
)
_PART = re.compile(r'"((?:[^"]|"")+)"|(\w+)')


def find_names(text: str) -> Iterator[tuple[str, ...]]:
    """Yield everything in a text that may be a table name.

    >>> list(find_names("PIVOT sales.orders ON \\"of day\\" -- of t"))
    [('PIVOT',), ('sales', 'orders'), ('ON',), ('of day',)]
    """
    for found in _NAME.finditer(text):
        if found[1] is not None:
            parts = (quoted.replace('""', '"') or bare for quoted, bare in _PART.findall(found[1]))
            yield tuple(parts)

"""What a text in DuckDB's language reads from, as the engine's own parser tells it.

`json_serialize_sql` gives the tree that DuckDB will run, so nothing is read in another way here than there. The tree
differs a little between versions of DuckDB, and has more kinds of nodes than are known here. So what is not known never
takes anything away: a table without a condition is read whole, and a query with an unknown source of rows has all
columns of all tables.

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

from tamis.errors import ParseError, UnsupportedFeature

Json = Mapping[str, Any]

_ROWS_OF_ARGUMENTS = frozenset(
    ("range", "generate_series", "unnest", "json_each", "json_tree", "repeat", "repeat_row", "generate_subscripts")
)
"""Functions that make rows of their arguments alone. Any other may read a table by a name in a text."""

_SOURCES = frozenset(
    ("BASE_TABLE", "JOIN", "SUBQUERY", "TABLE_FUNCTION", "EMPTY", "EXPRESSION_LIST", "EMPTY_FROM", "CTE", "VALUES")
)
"""Kinds of sources that take from a table only the columns that the query names."""

_JOINS = frozenset(("REGULAR", "CROSS", "ASOF", "POSITIONAL"))
"""Joins that match columns which the query names. NATURAL takes whichever have the same name."""

MOST_PARTS = 3
"""Of the name of a table: database, schema, table."""


@dataclass(eq=False)
class Reference:
    """A table where a query reads from it."""

    name: tuple[str, ...]
    alias: str
    """What columns are called after; empty where that is the table's own name."""
    is_renamed: bool
    """Whether its columns have other names in the query, by their positions."""
    is_sampled: bool
    needs_all: bool = False
    """Whether a star stands for its columns."""

    @property
    def called(self) -> tuple[str, ...]:
        return (self.alias,) if self.alias else self.name


@dataclass(frozen=True)
class Block:
    """A SELECT with conditions: the sources in its FROM, and what each row of its answer satisfies."""

    references: tuple[Reference, ...]
    filtered: tuple[Reference, ...]
    """Those whose rows may be left out where they do not satisfy a condition: no outer join keeps them."""
    conditions: tuple[Json, ...]
    merged: frozenset[str]
    """Columns of USING, which belong to several sources."""
    aliases: frozenset[str]
    """Names that the SELECT gives to something else than a column of that name."""
    other_sources: frozenset[str]
    """The names of sources that are no tables."""


@dataclass
class Syntax:
    """What is known of a text before it runs."""

    references: list[Reference] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    mentioned: set[str] = field(default_factory=set)
    """Every name and every text in the query, folded: a column that is not among them is not asked for."""
    commons: set[str] = field(default_factory=set)
    """Names of common table expressions, folded."""
    is_opaque: bool = False
    """Whether it may read from tables, or columns, that the tree does not name."""
    is_listing: bool = False
    """Whether it asks for the names of tables, which only the session knows."""
    has_data_columns: bool = False
    """Whether the columns of the answer follow from the rows, as those of PIVOT do."""
    parameters: frozenset[str] = frozenset()


def said_by(error: BaseException) -> str:
    """What DuckDB says is wrong with a text in its own language, advice included, in one line."""
    text = re.split(r"\n\s*LINE \d+:", str(error))[0]
    text = re.sub(r"^(?:[A-Z][A-Za-z]* )+Error: ", "", " ".join(text.split()))
    return text or type(error).__name__


def fold_name(name: str) -> str:
    """A name as DuckDB compares names: without regard to the case of ASCII letters."""
    return "".join(sign.lower() if sign.isascii() else sign for sign in name)


def read_syntax(text: str, connection: duckdb.DuckDBPyConnection) -> Syntax:
    """What a text asks for; `ParseError` where it is no query. Nothing of it runs on the connection."""
    try:
        statements = connection.extract_statements(text)
    except duckdb.Error as error:
        raise ParseError(said_by(error)) from error
    # PIVOT becomes several statements: a type for the values that it finds, and the query. So does a COPY of one.
    is_many = bool(statements) and (len(statements) > 1 or statements[0].type.name.startswith("MULTI"))
    is_pivot = is_many and _stands_for_rows(text, connection)
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
    node = None if is_many else _tree_of(text, connection)
    if node is None:
        return Syntax(is_opaque=True, has_data_columns=is_many, parameters=parameters)
    reader = _Reader()
    reader.read(node)
    reader.found.parameters = parameters
    return reader.found


def _stands_for_rows(text: str, connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether a statement can stand where rows are read from, which only queries can."""
    try:
        found = connection.extract_statements(f"SELECT * FROM (\n{text.rstrip().rstrip(';')}\n) AS pivoted")
    except duckdb.Error:
        return False
    return found[-1].type.name.startswith(("SELECT", "MULTI"))


def _tree_of(text: str, connection: duckdb.DuckDBPyConnection) -> Json | None:
    """The tree of a query; None where the engine does not show it."""
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
        """Names and aliases of everything that rows come from."""
        self._references: dict[int, Reference] = {}
        """By the identity of their nodes."""
        self._tested: set[int] = set()
        """The queries inside of EXISTS, whose columns do not matter."""

    def read(self, root: Json) -> None:
        for node in nodes_of(root):
            self._take_in(node)
        self.found.references += self._references.values()
        for node in nodes_of(root):
            if node.get("type") == "SELECT_NODE":
                self._read_select(node)
            if node.get("class") == "COLUMN_REF" and fold_name(_names(node)[-1]) in self._sources:
                # A row as a whole, by the name of its table.
                self.found.is_opaque = True

    # --- Names --------------------------------------------------------------------------------------------------------

    def _take_in(self, node: Json) -> None:
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
            # PIVOT, SHOW, and whatever a later version reads rows from.
            found.is_opaque = True
        if kind == "TABLE_FUNCTION" and not _makes_rows_of_arguments(node):
            found.is_opaque = True
        if "sample" in node and "alias" in node:
            self._sources.add(fold_name(node["alias"]))
        if kind == "BASE_TABLE":
            self._sources.add(fold_name(node["table_name"]))
            self._references[id(node)] = _reference(node)
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
            conditions += _conjuncts(where)
        if conditions and kept:
            others = frozenset(fold_name(each.get("alias", "")) for each, reference in sources if reference is None)
            self.found.blocks.append(
                Block(references, tuple(kept), tuple(conditions), frozenset(merged), _aliases(node), others)
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
        """Collect the sources of a FROM. `is_kept`: a row that fails a condition of the SELECT changes nothing."""
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
                    conditions += _conjuncts(each["condition"])
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
        for star in _own_stars(node):
            if is_tested and any(star is each for each in node["select_list"]):
                continue
            name = star.get("relation_name")
            if name and not any(fold_name(each.called[-1]) == fold_name(name) for each in references):
                # Of the query around this one, or of another source.
                self.found.is_opaque |= fold_name(name) not in {
                    fold_name(each) for each in _aliases_of_sources(node.get("from_table"))
                }
                continue
            for each in references:
                each.needs_all = True


def nodes_of(root: object) -> Iterator[Json]:
    """All nodes of a tree, whatever they are."""
    waiting: list[object] = [root]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            yield current
            waiting += current.values()
        elif isinstance(current, list):
            waiting += current


def _own_stars(select: Json) -> Iterator[Json]:
    """The stars of a SELECT that are not those of a query inside of it."""
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


def _aliases_of_sources(node: object) -> Iterator[str]:
    return (
        each["alias"] or each.get("table_name") or "" for each in nodes_of(node) if "sample" in each and "alias" in each
    )


def _reference(node: Json) -> Reference:
    qualified = node.get("qualified_name")
    path = qualified.get("path") if isinstance(qualified, dict) else None
    name = tuple(path or filter(None, (node.get("catalog_name"), node.get("schema_name"), node.get("table_name"))))
    if node.get("at_clause") is not None:
        raise UnsupportedFeature(
            f"{'.'.join(name)} AT (…): dialect='duckdb' reads tables as they were registered. Register the version, "
            "as in c.register('before', c.open(uri, version=3))"
        )
    if len(name) > MOST_PARTS:
        raise UnsupportedFeature(
            f"the name {'.'.join(name)} has {len(name)} parts, and in DuckDB's language a table has at most "
            f"{MOST_PARTS}. Register the table under a shorter name with c.register(name, table)"
        )
    return Reference(
        name, node.get("alias") or "", bool(node.get("column_name_alias")), is_sampled=node.get("sample") is not None
    )


def _makes_rows_of_arguments(node: Json) -> bool:
    call = node.get("function")
    return isinstance(call, dict) and fold_name(call.get("function_name", "")) in _ROWS_OF_ARGUMENTS


def _names(column: Json) -> list[str]:
    return list(column.get("column_names") or ("",))


def _conjuncts(node: Json) -> list[Json]:
    found: list[Json] = []
    waiting: list[Json] = [node]
    while waiting:
        current = waiting.pop()
        if current.get("type") == "CONJUNCTION_AND":
            waiting += reversed(current["children"])
        else:
            found.append(current)
    return found


def _aliases(select: Json) -> frozenset[str]:
    found = set()
    for each in select.get("select_list", ()):
        alias = fold_name(each.get("alias") or "")
        is_same = each.get("class") == "COLUMN_REF" and fold_name(_names(each)[-1]) == alias
        if alias and not is_same:
            found.add(alias)
    return frozenset(found)


_NAME = re.compile(
    r"""'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/|((?:"(?:[^"]|"")+"|[^\W\d]\w*)(?:\s*\.\s*(?:"(?:[^"]|"")+"|\w+))*)""",
    re.DOTALL,
)
_PART = re.compile(r'"((?:[^"]|"")+)"|(\w+)')


def names_in(text: str) -> Iterator[tuple[str, ...]]:
    """Everything in a text that may be the name of a table.

    >>> list(names_in("PIVOT sales.orders ON \\"of day\\" -- of t"))
    [('PIVOT',), ('sales', 'orders'), ('ON',), ('of day',)]
    """
    for found in _NAME.finditer(text):
        if found[1] is not None:
            parts = (quoted.replace('""', '"') or bare for quoted, bare in _PART.findall(found[1]))
            yield tuple(parts)

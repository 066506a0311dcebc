"""Random queries over the tables of `sql_tables`, in SQL that means the same in Spark and in DuckDB."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

COLUMNS = {
    "orders": {"id": "int", "customer": "int", "day": "date", "amount": "float", "price": "decimal", "note": "text",
               "region": "text"},
    "customers": {"Id": "int", "name": "text", "region": "text"},
    "events": {"order_id": "int", "kind": "text", "value": "float"},
}  # fmt: skip

LITERALS = {
    "int": ("0", "3", "8", "57", "120", "239", "1000"),
    "date": ("DATE '2023-12-31'", "DATE '2024-01-05'", "DATE '2024-01-24'", "DATE '2024-02-01'"),
    "float": ("0.0", "1.0", "2.5", "100.0", "-1.5", "1e10"),
    "decimal": ("0.00", "12.25", "30", "59.75"),
    "text": ("'eu'", "'us'", "'asia'", "'note 3'", "'customer 1'", "'buy'", "''"),
}
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
CONSTANTS = ("TRUE", "FALSE", "1 < 2", "1 > 2", "NOT (1 = 1)", "'a' = 'b'", "CAST(NULL AS BOOLEAN)")
"""Conditions without columns."""


@dataclass(frozen=True)
class Source:
    """A FROM clause, and the columns that it provides, with their types."""

    text: str
    columns: dict[str, str]


def _atoms(columns: dict[str, str]) -> st.SearchStrategy[str]:
    def of(item: tuple[str, str]) -> st.SearchStrategy[str]:
        name, kind = item
        literal = st.sampled_from(LITERALS[kind])
        same = [other for other, its in columns.items() if its == kind]
        choices = [
            st.builds("{} {} {}".format, st.just(name), st.sampled_from(COMPARISONS), literal),
            st.builds("{} BETWEEN {} AND {}".format, st.just(name), literal, literal),
            st.builds("{} IN ({}, {})".format, st.just(name), literal, literal | st.just("NULL")),
            st.builds("{} NOT IN ({}, {})".format, st.just(name), literal, literal | st.just("NULL")),
            st.just(f"{name} IS NULL"),
            st.just(f"{name} IS NOT NULL"),
            st.builds("{} {} {}".format, st.just(name), st.sampled_from(COMPARISONS), st.sampled_from(same)),
        ]
        if kind == "text":
            choices.append(st.builds("{} LIKE {}".format, st.just(name), st.sampled_from(("'%o%'", "'note%'", "'_s'"))))
        if kind == "int":
            choices.append(st.builds("{} % 7 = {}".format, st.just(name), st.sampled_from(("0", "3"))))
            choices.append(st.builds("{} + 1 > {}".format, st.just(name), literal))
        if kind == "date":
            choices.append(st.builds("month({}) = {}".format, st.just(name), st.sampled_from(("1", "2"))))
        return st.one_of(choices)

    return st.sampled_from(list(columns.items())).flatmap(of)


def predicates(columns: dict[str, str]) -> st.SearchStrategy[str]:
    atom = _atoms(columns)
    return st.recursive(
        st.one_of(atom, atom, atom, st.sampled_from(CONSTANTS)),
        lambda inner: st.one_of(
            st.builds("({} AND {})".format, inner, inner),
            st.builds("({} OR {})".format, inner, inner),
            st.builds("NOT ({})".format, inner),
        ),
        max_leaves=4,
    )


@st.composite
def tables(draw: st.DrawFn, alias: str) -> Source:
    """A table, or a subquery over one."""
    if draw(st.integers(0, 3)) == 0:
        return draw(derived_tables(alias))
    name = draw(st.sampled_from(list(COLUMNS)))
    return Source(f"{name} {alias}", {f"{alias}.{column}": kind for column, kind in COLUMNS[name].items()})


@st.composite
def derived_tables(draw: st.DrawFn, alias: str, depth: int = 2) -> Source:
    """A deterministic subquery with at least an `int` and a `text` column."""
    inner = f"{alias}{depth}"
    if depth and draw(st.booleans()):
        source = draw(derived_tables(inner, depth - 1))
    else:
        name = draw(st.sampled_from(list(COLUMNS)))
        source = Source(f"{name} {inner}", {f"{inner}.{column}": kind for column, kind in COLUMNS[name].items()})
    where = f" WHERE {draw(predicates(source.columns))}" if draw(st.booleans()) else ""
    match draw(st.sampled_from(("all", "some", "some", "distinct", "groups", "one group", "passed on"))):
        case "all":
            columns = {name.partition(".")[2]: kind for name, kind in source.columns.items()}
            text = f"SELECT * FROM {source.text}{where}"
        case "passed on":
            # The subquery fixes the order of rows, and so its first rows.
            columns = {name.partition(".")[2]: kind for name, kind in source.columns.items()}
            ordered = _order_query(draw, f"SELECT * FROM {source.text}{where}", len(columns))
            text = f"SELECT * FROM ({ordered}) {inner}_o{draw(_limits)}"
            return Source(f"({text}) {alias}", {f"{alias}.{name}": kind for name, kind in columns.items()})
        case "one group":
            columns = {"n": "int", "t": "text"}
            of_text = next(name for name, kind in source.columns.items() if kind == "text")
            outputs = draw(st.sampled_from((f"count(*) AS n, max({of_text}) AS t", "7 AS n, 'eu' AS t")))
            having = draw(_having_clauses(source.columns, "7 AS n" in outputs))
            text = f"SELECT {outputs} FROM {source.text}{where}{having}"
        case "groups":
            key = draw(st.sampled_from([name for name, kind in source.columns.items() if kind == "text"]))
            columns = {"t": "text", "n": "int"}
            having = draw(st.just("") | _having_clauses(source.columns, False))
            text = f"SELECT {key} AS t, count(*) AS n FROM {source.text}{where} GROUP BY {key}{having}"
        case word:
            kinds = [next(name for name, kind in source.columns.items() if kind == each) for each in ("int", "text")]
            more = draw(st.lists(st.sampled_from(list(source.columns)), max_size=2, unique=True))
            names = list(dict.fromkeys((*kinds, *more)))
            columns = {f"c{position}": source.columns[name] for position, name in enumerate(names)}
            outputs = ", ".join(f"{name} AS c{position}" for position, name in enumerate(names))
            text = f"SELECT {'DISTINCT ' if word == 'distinct' else ''}{outputs} FROM {source.text}{where}"
    if draw(st.booleans()):
        text = _order_query(draw, text, len(columns)) + draw(_limits)
    return Source(f"({text}) {alias}", {f"{alias}.{name}": kind for name, kind in columns.items()})


_order = st.sampled_from(("ASC NULLS FIRST", "DESC NULLS LAST", "ASC NULLS LAST", "DESC NULLS FIRST"))
_limits = st.sampled_from(
    ("", " LIMIT 9", " LIMIT 3", " LIMIT 1", " LIMIT 0", " OFFSET 2", " LIMIT 4 OFFSET 1", " LIMIT 2 OFFSET 300")
)


def _order_query(draw: st.DrawFn, text: str, width: int) -> str:
    """Return a query sorted by all of its columns, so that its first rows are deterministic."""
    return f"{text} ORDER BY {', '.join(f'{position + 1} {draw(_order)}' for position in range(width))}"


@st.composite
def _having_clauses(draw: st.DrawFn, columns: dict[str, str], needed: bool) -> str:
    """A HAVING clause, or an empty text unless it is `needed`. Constants are as likely as conditions of groups."""
    conditions = [
        *CONSTANTS,
        "NULL",
        f"count(*) > {draw(st.sampled_from((0, 2, 30)))}",
        f"min({next(iter(columns))}) IS NULL",
    ]
    chosen = draw(st.sampled_from(conditions if needed else ["", *conditions]))
    return f" HAVING {chosen}" if chosen else ""


@st.composite
def sources(draw: st.DrawFn) -> Source:
    """One to three tables, with every kind of join."""
    found = draw(tables("a"))
    for alias in ("b", "c")[: draw(st.sampled_from((0, 0, 1, 1, 2)))]:
        other = draw(tables(alias))
        pairs = [(one, two) for one, kind in found.columns.items() for two, its in other.columns.items()
                 if kind == its and kind in ("int", "text")]  # fmt: skip
        one, two = draw(st.sampled_from(pairs))
        kind = draw(
            st.sampled_from(
                ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
            )
        )
        condition = f"{one} = {two}"
        if kind != "FULL JOIN" and draw(st.booleans()):
            both = {**found.columns, **other.columns}
            condition += f" AND {draw(_atoms(both) | st.sampled_from(CONSTANTS))}"
        columns = found.columns if "SEMI" in kind or "ANTI" in kind else {**found.columns, **other.columns}
        found = Source(f"{found.text} {kind} {other.text} ON {condition}", columns)
    return found


def _aggregates(columns: dict[str, str]) -> st.SearchStrategy[str]:
    names = list(columns)
    # Floats in these tables have sums that do not depend on the order of rows.
    numbers = [name for name, kind in columns.items() if kind in ("int", "decimal", "float")] or names
    distinct = st.sampled_from(("", "DISTINCT "))
    return st.one_of(
        st.just("count(*)"),
        st.builds("count({}{})".format, distinct, st.sampled_from(names)),
        st.builds("min({})".format, st.sampled_from(names)),
        st.builds("max({})".format, st.sampled_from(names)),
        st.builds("{}({})".format, st.sampled_from(("sum", "avg")), st.sampled_from(numbers))
        if numbers is not names
        else st.just("count(*)"),
    )


@st.composite
def queries(draw: st.DrawFn) -> str:
    """A query whose rows do not depend on the order of its input."""
    source = draw(sources())
    where = f" WHERE {draw(predicates(source.columns))}" if draw(st.booleans()) else ""
    if draw(st.integers(0, 4)) == 0:
        where += f"{' AND' if where else ' WHERE'} {draw(_subqueries(source))}"
    if draw(st.booleans()):
        return _draw_grouped_query(draw, source, where)
    names = draw(st.lists(st.sampled_from(list(source.columns)), min_size=1, max_size=4, unique=True))
    distinct = draw(st.sampled_from(("", "", "DISTINCT ")))
    outputs = [f"{name} AS x{n}" for n, name in enumerate(names)]
    if draw(st.integers(0, 3)) == 0:
        # Only window functions that do not depend on the order of ties.
        key, value = (draw(st.sampled_from(list(source.columns))) for _ in range(2))
        window = draw(st.sampled_from((f"count(*) OVER (PARTITION BY {key})", f"max({value}) OVER (PARTITION BY {key})",
                                       f"rank() OVER (ORDER BY {key} NULLS FIRST)")))  # fmt: skip
        outputs.append(f"{window} AS w")
    text = f"SELECT {distinct}{', '.join(outputs)} FROM {source.text}{where}"
    if draw(st.integers(0, 3)) == 0:
        text = _order_query(draw, text, len(outputs)) + draw(_limits)
        if draw(st.booleans()):
            text = f"SELECT * FROM ({text}) AS inner_rows{draw(_limits)}"
    return text


def _draw_grouped_query(draw: st.DrawFn, source: Source, where: str) -> str:
    keys = draw(st.lists(st.sampled_from(list(source.columns)), max_size=2, unique=True))
    calls = draw(st.lists(_aggregates(source.columns), max_size=3, unique=True))
    calls = calls or ([] if keys else ["1"])
    outputs = ", ".join(
        [*(f"{key} AS k{n}" for n, key in enumerate(keys)), *(f"{call} AS v{n}" for n, call in enumerate(calls))]
    )
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    is_needed = not keys and calls == ["1"]
    having = draw(_having_clauses(source.columns, is_needed)) if is_needed or draw(st.integers(0, 2)) == 0 else ""
    return f"SELECT {outputs} FROM {source.text}{where}{group}{having}"


@st.composite
def _subqueries(draw: st.DrawFn, source: Source) -> str:
    inner = draw(tables("s"))
    pairs = [(one, two) for one, kind in source.columns.items() for two, its in inner.columns.items()
             if kind == its and kind in ("int", "text")]  # fmt: skip
    one, two = draw(st.sampled_from(pairs))
    condition = draw(predicates(inner.columns))
    constant = draw(st.sampled_from(CONSTANTS))
    below = f"FROM {inner.text} WHERE"
    return draw(
        st.sampled_from(
            (
                f"{one} IN (SELECT {two} {below} {condition})",
                f"{one} NOT IN (SELECT {two} {below} {condition})",
                f"EXISTS (SELECT 1 {below} {one} = {two} AND {condition})",
                f"NOT EXISTS (SELECT 1 {below} {one} = {two} AND {condition})",
                f"EXISTS (SELECT 1 {below} {condition})",
                f"{one} >= (SELECT min({two}) {below} {condition})",
                f"{one} = (SELECT max({two}) {below} {two} <= {one} AND {condition})",
                f"{one} <= (SELECT max({two}) {below} {condition} HAVING {constant})",
                f"{one} IN (SELECT max({two}) {below} {condition} HAVING {constant})",
                f"EXISTS (SELECT count(*) {below} {condition} HAVING {constant})",
                f"NOT EXISTS (SELECT 1 {below} {condition} HAVING {constant})",
                f"{one} IN (SELECT {two} {below} {condition} ORDER BY 1 NULLS FIRST LIMIT 2)",
            )
        )
    )

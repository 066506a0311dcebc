"""Only calls that the function table builds reach the embedded engine."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.query.duckdb_text import translate_to_duckdb
from tamis import types
from tamis.engines.duckdb.translate.calls import CallMacro, Refused, Same, UnknownFunction
from tamis.engines.duckdb.translate.functions import FUNCTIONS, MACROS, find_translation, index_once
from tamis.errors import EvaluationError, InvalidArgument, ParseError
from tamis.expr.functions.table import FUNCTIONS as LANGUAGE
from tamis.expr.functions.table import Function, register_function


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table({"s": ["a", "b", None], "n": [1, 2, 3], "bound": ["b", "x", "B"]}), folder / "f.parquet")
    return folder


@pytest.fixture
def session(folder: Path) -> tamis.Session:
    session = tamis.connect()
    session.register("t", folder)
    return session


def read_rows(session: tamis.Session, query: str) -> list[object]:
    (column,) = session.sql(query).to_arrow().columns
    found: list[object] = column.to_pylist()
    return found


# --- Names ------------------------------------------------------------------------------------------------------------


def test_a_listed_function_is_known_in_any_case() -> None:
    names = [*FUNCTIONS, "char_length", "ucase"]
    assert all(find_translation(each) and find_translation(each.upper()) for each in names)
    unknown = ["uper", "getenv", "read_text", "list_reverse", "spark_add", "duckdb_len", ""]
    assert not any(map(find_translation, unknown))


def test_all_kinds_of_translations_are_in_the_table() -> None:
    assert find_translation("sum") == Same()
    assert find_translation("signum") == CallMacro("sign")
    assert find_translation("version") == Refused("it would return the version of the embedded engine")
    # Other names of a function are those of its row in the table of the language.
    assert find_translation("len") is find_translation("length")
    macros = {name: found.macro or name for name, found in FUNCTIONS.items() if isinstance(found, CallMacro)}
    assert set(macros.values()) <= set(MACROS)


def test_a_function_or_macro_is_declared_once() -> None:
    with pytest.raises(InvalidArgument, match="the function 'f' is declared twice"):
        index_once("function", [("f", Same()), ("g", Same()), ("f", CallMacro())])


def test_a_row_of_the_language_does_not_replace_a_translation() -> None:
    register_function(Function("soundex", ("text",), types.STRING, 1, 1, duckdb="{0}"))
    try:
        with pytest.raises(InvalidArgument, match="the embedded engine has 'soundex' already"):
            translate_to_duckdb("soundex(a)")
    finally:
        del LANGUAGE["soundex"]
    assert translate_to_duckdb("soundex('a')") == "SPARK_SOUNDEX('a')"


@pytest.mark.parametrize("call", ["to_date(a, 'yyyy', b)", "sequence(1, 2, 3, 4)", "last_day(a, b)", "log2(a, b)"])
def test_surplus_arguments_are_rejected(call: str) -> None:
    with pytest.raises(EvaluationError, match="arguments"):
        translate_to_duckdb(call)


@pytest.mark.parametrize(
    "text",
    [
        "getenv('HOME')", "`getenv`('HOME')", "GetEnv('HOME')", "upper(getenv('HOME'))", "x.getenv('HOME')",
        "list_reverse(a)", "spark_nothing(a)", "SPARK_nothing(a)", "add(a, b)", "equal(a, b)",
    ],
)  # fmt: skip
def test_an_unlisted_function_is_unknown(text: str) -> None:
    for of_query in (True, False):
        with pytest.raises(UnknownFunction):
            translate_to_duckdb(text, of_query=of_query)


def test_calls_built_by_the_table_pass() -> None:
    assert translate_to_duckdb("a + 1") == "SPARK_ADD(a, CAST(1 AS INT))"
    assert translate_to_duckdb("SPARK_ADD(a, 1)") == "SPARK_ADD(a, 1)"
    assert translate_to_duckdb("duckdb_octet_length(a)") == "OCTET_LENGTH(a)"
    assert translate_to_duckdb("DUCKDB_octet_length(a)") == "OCTET_LENGTH(a)"


@pytest.mark.parametrize("call", ["hash(n)", "xxhash64(n)", "typeof(n)"])
def test_type_dependent_functions_run_in_queries_only(folder: Path, session: tamis.Session, call: str) -> None:
    with pytest.raises(EvaluationError, match=f"{call[:-3]}: a filter does not pass the types"):
        tamis.open(folder).scan(f"{call} IS NULL").count()
    assert read_rows(session, f"SELECT count({call}) FROM t") == [3]


@pytest.mark.parametrize(
    "call",
    [
        "duckdb_version()", "DuckDB_current_setting('memory_limit')", "`duckdb_version`()", "upper(duckdb_version())",
        "spark_double('1')", "SPARK_add(1, 2)", "spark_nothing()",
    ],
)  # fmt: skip
def test_internal_function_names_are_rejected(folder: Path, session: tamis.Session, call: str) -> None:
    """These prefixes call DuckDB's functions with DuckDB's semantics, and macros."""
    with pytest.raises(ParseError, match="there is no function"):
        tamis.open(folder).scan(f"{call} IS NOT NULL")
    for query in (
        f"SELECT {call}",
        f"SELECT s FROM t WHERE {call} IS NOT NULL",
        f"SELECT s, row_number() OVER (ORDER BY {call}) FROM t",
        f"SELECT s FROM (SELECT s, {call} AS v FROM t) WHERE v IS NULL",
    ):
        with pytest.raises(ParseError, match="there is no function"):
            session.sql(query).to_arrow()


@pytest.mark.parametrize("function", ["duckdb_query('SELECT 1')", "duckdb_duckdb_settings()", "duckdb_range(3)"])
def test_table_functions_of_the_engine_are_rejected(session: tamis.Session, function: str) -> None:
    with pytest.raises(ParseError, match="there is no function"):
        session.sql(f"SELECT * FROM {function}").to_arrow()


def test_tables_and_columns_may_have_internal_prefixes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"duckdb_len": [1, 2], "spark_add": [2, 1]}), tmp_path / "f.parquet")
    session = tamis.connect()
    session.register("duckdb_tables", tmp_path)
    assert read_rows(session, "SELECT duckdb_len FROM duckdb_tables WHERE spark_add > 1") == [1]
    assert tamis.open(tmp_path).scan("duckdb_len < spark_add").count() == 1


# --- Arguments of overloaded macros -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("max(b)", "MAX(b)"),
        ("max(b) OVER (PARTITION BY c)", "MAX(b) OVER (PARTITION BY c)"),
        ("row_number() OVER (PARTITION BY c)", "ROW_NUMBER() OVER (PARTITION BY c)"),
        ("sum(b) FILTER (WHERE c)", "SUM(b) FILTER(WHERE c)"),
        ("try_sum(b)", "SPARK_TRY_SUM(b)"),
        ("max_by(b, c)", "ARG_MAX_NULL(b, c)"),
        ("grouping(b)", "GROUPING(b)"),
        ("coalesce(max(b), 1)", "COALESCE(MAX(b), 1)"),
    ],
)
def test_aggregates_and_windows_are_bound_first(text: str, value: str) -> None:
    """The macro is that of `contains`, and gets the value by its name in the list."""
    for given, expected in (
        (f"contains(a, {text})", 'a, bound."value_1"'),
        (f"contains({text}, a)", 'bound."value_1", a'),
    ):
        assert translate_to_duckdb(given, of_query=True) == (
            f"LIST_TRANSFORM([{{'value_1': {value}}}], LAMBDA bound : SPARK_CONTAINS({expected}))[1]"
        )


def test_two_aggregates_are_bound_to_different_names() -> None:
    assert translate_to_duckdb("contains(max(a), min(b))", of_query=True) == (
        "LIST_TRANSFORM([{'value_1': MAX(a), 'value_2': MIN(b)}], "
        'LAMBDA bound : SPARK_CONTAINS(bound."value_1", bound."value_2"))[1]'
    )


@pytest.mark.parametrize(
    "text", ["contains(a, b)", "contains(a, upper(b))", "upper((SELECT max(b) FROM t))", "max(b) IS NULL", "max(a = b)"]
)
def test_scalar_values_stay_in_the_call(text: str) -> None:
    assert "LAMBDA" not in translate_to_duckdb(text, of_query=True)


def _nest(levels: int) -> str:
    text = "a"
    for level in range(levels):
        text = f"(b{level} = {text})"
    return text


def test_at_most_five_levels_of_overloads_nest() -> None:
    found = [translate_to_duckdb(_nest(levels), of_query=True).count("LAMBDA") for levels in range(1, 17)]
    assert found == [0] * 5 + [1] * 5 + [2] * 5 + [3]
    # Levels without overloads do not count.
    assert "LAMBDA" not in translate_to_duckdb("upper(" * 9 + "a" + ")" * 9 + " IS NULL", of_query=True)


def test_a_nested_call_keeps_values_that_are_bound_first(session: tamis.Session) -> None:
    """It is the argument of a function, not an operator that a macro replaces."""
    assert read_rows(session, "SELECT concat(upper(max(s) OVER ()), 'x') FROM t") == ["Bx"] * 3
    assert read_rows(session, "SELECT bound = lower(upper(max(s) OVER ())) FROM t") == [True, False, False]
    assert read_rows(session, "SELECT length(concat(upper(max(s) OVER ()), lower(min(s) OVER ()))) FROM t") == [2] * 3
    assert read_rows(session, "SELECT transform(array('y'), v -> concat(v, upper(max(s)))) FROM t") == [["yB"]]


# --- Operators --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # NULL matches every overload, and intervals have their own operators.
        ("NULL = a", "NULL = a"),
        ("a <=> NULL", "a IS NOT DISTINCT FROM NULL"),
        ("a = (NULL)", "a = (NULL)"),
        # One operand is a number, so the other one is too.
        ("a + 1 = b", "SPARK_ADD(a, CAST(1 AS INT)) = b"),
        ("b > a * 2", "b > SPARK_MULTIPLY(a, CAST(2 AS INT))"),
        ("a / b", "SPARK_DIVIDE(a, b, NULL, NULL)"),
        ("a = max(b)", "a = MAX(b)"),
        ("a / max(b)", "SPARK_QUOTIENT(a, MAX(b), NULL, NULL)"),
        ("a / (SELECT b FROM t)", "SPARK_DIVIDE(a, (SELECT b FROM t), NULL, NULL)"),
        ("(a + b) / c", "SPARK_QUOTIENT_ONCE(SPARK_ADD(a, b), c, NULL, NULL)"),
        ("c % (a + b)", "SPARK_REMAINDER_ONCE(c, SPARK_ADD(a, b))"),
        ("a div b div c", "SPARK_WHOLE_QUOTIENT_ONCE(SPARK_DIV(a, b), c)"),
        # DuckDB knows the types of literals.
        ("a IN (1, 2)", "a IN (1, 2)"),
        ("NULL IN (a)", "NULL IN (a)"),
        ("a IN (1, b)", "(CASE WHEN SPARK_COMPARABLE(a, b) THEN a IN (1, b) END)"),
        ("a IN (NULL, b)", "(CASE WHEN SPARK_COMPARABLE(a, b) THEN a IN (NULL, b) END)"),
    ],
)
def test_operators_are_macros_where_types_matter(text: str, expected: str) -> None:
    assert translate_to_duckdb(text, of_query=True) == expected


def test_only_the_first_hundred_values_of_a_list_are_checked() -> None:
    found = translate_to_duckdb(f"a IN ({', '.join(f'b{number}' for number in range(150))})", of_query=True)
    assert found.count("SPARK_COMPARABLE") == 100


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, min(a), max(b) FROM t WHERE a IN (1, 2) GROUP BY k ORDER BY k",
        "SELECT a, row_number() OVER (PARTITION BY k ORDER BY a) FROM t ORDER BY a LIMIT 5",
        "SELECT greatest(a, b), nullif(a, b), CASE a WHEN 1 THEN 2 END FROM t",
    ],
)
def test_keys_of_flat_tables_are_not_wrapped(query: str) -> None:
    assert "SPARK_PLAIN" not in translate_to_duckdb(query, of_query=True, has_nested=False)
    assert "SPARK_PLAIN" in translate_to_duckdb(query, of_query=True)
    made = query.replace("FROM t", "FROM (SELECT *, array(1) AS c FROM t)")
    assert "SPARK_PLAIN" in translate_to_duckdb(made, of_query=True, has_nested=False)

"""`tamis sql`: queries over tables that the command line names."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog

from builders.commands import run_on_terminal
from tamis.cli.application import program

COUNTS = "SELECT region, count(*) AS n, max(id) FROM orders WHERE id >= 150 GROUP BY region ORDER BY region"


def run(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(program, ["sql", *arguments])
    return found.exit_code, found.stdout, found.stderr


def test_a_table_has_the_name_of_its_folder(in_folder: Path) -> None:
    assert run(COUNTS, "orders") == (0, "region\tn\tmax(id)\nap\t150\t299\neu\t300\t599\nus\t300\t899\n", "")


def test_the_paths_of_tables_may_come_first(in_folder: Path) -> None:
    assert run("orders", COUNTS) == run(COUNTS, "./orders")


def test_tables_by_other_names_are_joined(in_folder: Path) -> None:
    query = "SELECT count(*) AS n FROM a JOIN b ON a.id = b.id + 1 WHERE a.region = 'eu'"
    assert run(query, "--table", "a=orders", "--table", "b=orders")[1] == "n\n300\n"


def test_a_path_in_the_query_is_a_table(in_folder: Path) -> None:
    assert run("SELECT count(*) AS n FROM parquet.`orders`")[1] == "n\n900\n"


def test_rows_as_json(in_folder: Path) -> None:
    _, shown, _ = run("SELECT id, day FROM orders WHERE id IN (5, 6) ORDER BY id", "orders", "--json")
    assert [json.loads(line) for line in shown.splitlines()] == [
        {"id": 5, "day": "2024-03-01"},
        {"id": 6, "day": "2024-03-01"},
    ]


def test_rows_into_a_file(in_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "found.parquet"
    code, shown, error = run("SELECT id FROM orders WHERE id < 3", "orders", "--output", str(path))
    assert (code, shown) == (0, "")
    assert error == f"3 rows written to {path} as parquet\n"
    assert sorted(pq.read_table(path)["id"].to_pylist()) == [0, 1, 2]


def test_explain_reads_nothing_and_shows_the_plan(in_folder: Path) -> None:
    code, shown, _ = run(COUNTS, "orders", "--explain")
    assert code == 0
    assert "push_filter_into_scan" in shown
    _, output, _ = run(COUNTS, "orders", "--explain", "--json")
    assert json.loads(output)["before"]["node"] == "Sort"


def test_explain_shows_the_names_of_the_query(in_folder: Path) -> None:
    query = "SELECT count(*) AS orders, max(id), region r FROM orders GROUP BY region"
    _, shown, _ = run(query, "orders", "--explain")
    assert "  returns count as orders, max as max(id), orders.region as r\n" in shown
    _, output, _ = run(query, "orders", "--explain", "--json")
    assert [each["name"] for each in json.loads(output)["returns"]] == ["orders", "max(id)", "r"]


def test_a_terminal_shows_some_rows_and_says_so(in_folder: Path) -> None:
    code, shown = run_on_terminal("sql", "SELECT id, region FROM orders ORDER BY id", "orders", folder=in_folder)
    assert code == 0
    assert "the first 20 rows" in shown
    code, shown = run_on_terminal("sql", "SELECT id FROM orders WHERE id < 2", "orders", folder=in_folder)
    assert (code, "2 rows" in shown) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("orders",), 2, "no query among 'orders'"),
        (("SELECT 1", "SELECT 2"), 2, "pass one query, not several: 'SELECT 1' and 'SELECT 2'"),
        (("SELECT * FROM nothing", "orders"), 1, "no table 'nothing' in this session. Tables: orders. Pass its URI"),
        (("SELECT * FROM orders",), 1, 'pass its URI after the query, as in tamis sql "SELECT * FROM orders" orders'),
        (("SELECT * FROM `./orders`",), 1, 'as in tamis sql "SELECT * FROM orders" ./orders'),
        (
            ("selct id FROM orders", "orders"),
            1,
            "a query cannot start with 'selct' (character 1). Did you mean SELECT?",
        ),
        (("SHOW TABLES", "orders"), 1, "SHOW is not a query. Only queries run here: SELECT, WITH, VALUES\n"),
        (("EXPLAIN SELECT 1",), 1, "--explain shows how a query runs"),
        (("SELECT idd FROM orders", "orders", "--explain"), 1, "Did you mean 'id'?"),
        (("SELECT * FROM orders VERSION AS OF 1", "orders"), 1, "a hive table has no versions"),
        (("SELECT 1 AS a, 2 AS a", "--json"), 1, "several columns are named 'a'"),
        (("SELECT * FROM orders", "elsewhere"), 1, "elsewhere"),
        (("SELECT ids FROM orders", "orders"), 1, "ids"),
        (("SELECT 1", "t=orders"), 1, "nothing at 't=orders': to name a table in the query, write --table t=orders\n"),
        (("SELECT 1", "t=nowhere"), 1, "t=nowhere': give the directory of a table"),
        (("SELECT 1", "--output-format", "csv"), 2, "--output-format requires --output"),
        (("SELECT 1", "--output", "x.csv", "--json"), 2, "exclude each other"),
        (("SELECT 1", "--table", "orders"), 2, "NAME=URI"),
    ],
)
def test_mistakes(in_folder: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    found, _, error = run(*arguments)
    assert found == code
    assert message in error
    assert "Traceback" not in error


def test_examples_of_the_help_can_be_pasted() -> None:
    shown = CliRunner().invoke(program, ["sql", "--help"]).stdout
    examples = [line.strip() for line in shown.splitlines() if line.strip().startswith("tamis sql")]
    assert len(examples) == 4
    # Inside of double quotes, a shell would run the text between backticks.
    assert not any("`" in part for line in examples for part in line.split('"')[1::2])


def test_a_principal_needs_policies(in_folder: Path) -> None:
    code, out, error = run(COUNTS, "orders", "--principal", "ana")
    assert (code, out) == (2, "")
    assert "--principal requires --policies" in error


def test_two_tables_of_one_name_need_explicit_names(in_folder: Path) -> None:
    (in_folder / "other").mkdir()
    pq.write_table(pq.read_table(next((in_folder / "orders").rglob("*.parquet"))), in_folder / "other" / "orders")
    code, out, error = run(COUNTS, "orders", "other/orders")
    assert (code, out) == (2, "")
    assert "orders and other/orders are both named 'orders': name one of them with --table NAME=URI" in error


# --- Files, limits and values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (("SELECT * FROM one", "one.parquet"), "one.parquet"),
        (("SELECT * FROM orders", "orders"), "orders/x.parquet"),
        (("SELECT * FROM parquet.`orders`",), "orders/region=eu/x.parquet"),
        (("SELECT 1", "orders"), "orders/x.parquet"),
        (("SELECT 1", "--table", "o=orders"), "orders/x.parquet"),
        (("SELECT 1", "--attach", "s=sqlite:///shop.db"), "shop.db"),
        (("SELECT 1", "--attach", "s=shop.db"), "shop.db"),
    ],
)
def test_what_is_read_is_not_overwritten(in_folder: Path, arguments: tuple[str, ...], output: str) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), "one.parquet")
    with contextlib.closing(sqlite3.connect("shop.db")) as shop:
        shop.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER)")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    code, _, error = run(*arguments, "--output", output, "--output-format", "parquet")
    assert code == 1
    assert "write " in error
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


def test_a_database_with_three_slashes_and_an_absolute_path_is_not_overwritten(in_folder: Path) -> None:
    database = in_folder.resolve() / "shop.db"
    with contextlib.closing(sqlite3.connect(database)) as shop:
        shop.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER)")
    before = database.read_bytes()
    code, _, error = run("SELECT 1", "--attach", f"s=sqlite://{database}", "--output", "shop.db")
    assert code == 1
    assert "write " in error
    assert database.read_bytes() == before


def test_a_single_file_is_known_with_and_without_its_ending(in_folder: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), "one.parquet")
    for name in ("one", "one.parquet", "`one.parquet`"):
        assert run(f"SELECT count(*) AS n FROM {name}", "one.parquet")[1] == "n\n2\n"


def test_a_query_from_a_file_or_from_stdin(in_folder: Path) -> None:
    Path("query.sql").write_text("-- how many\nSELECT count(*) AS n FROM orders")
    assert run("--file", "query.sql", "orders")[1] == "n\n900\n"
    found = CliRunner().invoke(program, ["sql", "orders", "--file", "-"], input="SELECT 1 AS n")
    assert found.stdout == "n\n1\n"
    assert "No such file" in run("--file", "nothing.sql", "orders")[2]
    assert run()[0] == 2


def test_limit(in_folder: Path) -> None:
    query = "SELECT id FROM orders ORDER BY id"
    assert run(query, "orders", "--limit", "2")[1] == "id\n0\n1\n"
    assert run(query, "orders", "--limit", "0")[1] == "id\n"
    assert len(run(query, "orders", "--limit", "all")[1].splitlines()) == 901
    _, shown = run_on_terminal("sql", f"{query} LIMIT 30", "orders", "--limit", "25", folder=in_folder)
    assert "25 rows" in shown
    _, shown = run_on_terminal("sql", f"{query} LIMIT 30", "orders", folder=in_folder)
    assert "the first 20 rows; --limit N shows more" in shown


def test_a_terminal_says_which_columns_do_not_fit(in_folder: Path) -> None:
    columns = ", ".join(f"id AS a_column_with_a_long_name_{number}" for number in range(9))
    _, shown = run_on_terminal("sql", f"SELECT {columns} FROM orders LIMIT 2", "orders", folder=in_folder)
    assert "of 9 columns fit; name others in the query" in shown


def test_tables_of_a_catalog(in_folder: Path) -> None:
    catalog = SqlCatalog("here", uri="sqlite:///catalog.db", warehouse=str(in_folder / "warehouse"))
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.visits", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2, 3]}))
    named = ("--catalog", "name=here", "--catalog", "type=sql", "--catalog", "uri=sqlite:///catalog.db")
    assert run("SELECT count(*) AS n FROM here.shop.visits", *named)[1] == "n\n3\n"
    assert run("SELECT count(*) AS n FROM visits", "shop.visits", *named)[1] == "n\n3\n"
    joined = "SELECT count(*) AS n FROM v JOIN orders o ON v.id = o.id"
    assert run(joined, "--table", "v=shop.visits", "orders", *named)[1] == "n\n3\n"
    assert "Did you mean 'shop.visits'" in run("SELECT 1", "shop.vists", *named)[2]


def test_intervals_are_texts(in_folder: Path) -> None:
    assert run("SELECT INTERVAL 3 DAYS AS i")[1] == "i\nP3D\n"

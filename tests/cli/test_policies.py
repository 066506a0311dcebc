"""Commands under policies show only what the principal may see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from builders.query.protected import POLICIES, write_orders
from tamis.cli.application import program


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_orders(tmp_path, "hive")
    (tmp_path / "policies.json").write_text(json.dumps(POLICIES))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, who: str = "ana") -> Result:
    given = [*arguments, "--policies", "policies.json", *(["--principal", who] if who else [])]
    return CliRunner().invoke(program, given, prog_name="tamis")


def test_scan_and_count_see_what_the_principal_sees() -> None:
    assert run("count", "orders").output == "6\n"
    assert run("count", "orders", "--where", "y >= 20").output == "0\n"
    assert run("count", "orders", who="admin").output == "12\n"
    rows = [json.loads(line) for line in run("scan", "orders", "--json", "--columns", "id,card").output.splitlines()]
    assert sorted(row["card"] for row in rows) == [f"****{number:04}" for number in range(0, 12, 2)]


def test_A5_plan_reveals_nothing_hidden() -> None:
    output = run("plan", "orders", "--where", "y >= 20").output
    assert output == "orders (hive) where y >= 20\n\nThe table is under a policy: what is read of it is not shown.\n"
    document = json.loads(run("plan", "orders", "--where", "y >= 20", "--json").output)
    assert (document["levels"], document["files"], document["bytes_read"]) == ([], [], None)


@pytest.mark.parametrize("who", ["", "zoe"])
def test_A6_a_principal_without_a_rule_is_denied(who: str) -> None:
    for command in ("count", "scan", "plan"):
        found = run(command, "orders", who=who)
        assert found.exit_code == 1
        assert found.output.startswith("tamis: no policy lets")


def test_sql_sees_what_the_principal_sees_by_the_name_that_the_query_uses() -> None:
    query = "SELECT count(*) AS n, max(y) AS y FROM orders"
    assert run("sql", query, "orders", "--json").output == '{"n": 6, "y": 15}\n'
    assert run("sql", query, "--table", "orders=orders", "--json").output == '{"n": 6, "y": 15}\n'
    found = run("sql", "SELECT * FROM other", "--table", "other=orders", "--json")
    # The policy belongs to its directory, regardless of its name in the query.
    assert found.exit_code == 0
    assert len(found.output.splitlines()) == 6
    assert "not shown" in run("sql", query, "orders", "--explain").output
    assert run("sql", query, "orders", who="zoe").exit_code == 1

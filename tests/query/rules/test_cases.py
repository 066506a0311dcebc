"""The case files of the rules: the plan before a rule and after it, and the plans that it leaves unchanged.

`TAMIS_UPDATE_CASES=1 python -m pytest tests/query/rules/test_cases.py` writes what the rules make of the plans today.
A case gives SQL or the plan before; `with` sets what the connector and the engine can do.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from builders.case_files import Case, Fields, check_case, parametrize_cases, read_cases
from builders.query.plan_text import parse_plan, plan_sql, print_plan
from builders.query.plans import FakeConnector
from tamis.query.plan.nodes import Node, get_outputs, transform_up
from tamis.query.plan.optimizer import Context, is_of_root, optimize
from tamis.query.rules import ALL

CASES = Path(__file__).parent / "cases"
RULES = {rule.name: rule for rule in ALL}
UNCHANGED = "unchanged"


def make_context(settings: str) -> Context:
    """Return what `with: guarantees=False, has_workers=True` describes."""
    given = dict(each.split("=") for each in settings.split(", ") if each)
    of_connector = {each.name for each in fields(FakeConnector)} & given.keys()
    connector = FakeConnector(**{name: given.pop(name) == "True" for name in of_connector})  # type: ignore[arg-type]
    context = Context({"fake": connector, "other": connector})
    return replace(context, **{name: value == "True" for name, value in given.items()})  # type: ignore[arg-type]


def apply_rule(name: str, given: Fields) -> Fields:
    rule, context = RULES[name], make_context(given.get("with", ""))
    before = plan_sql(given["sql"]) if "sql" in given else parse_plan(given["before"])

    def change(node: Node) -> Node:
        changed = rule.apply(node, context)
        assert changed != node, "a rule that does not apply returns None"
        return node if changed is None else changed

    after = change(before) if is_of_root(rule) else transform_up(before, change)
    assert [each.name for each in get_outputs(after)] == [each.name for each in get_outputs(before)]
    settled = optimize(after, [rule], context).plan
    assert optimize(settled, [rule], context).plan == settled
    inputs = {key: given[key] for key in ("why", "sql", "with") if key in given}
    return {**inputs, "before": print_plan(before), "after": UNCHANGED if after == before else print_plan(after)}


@parametrize_cases(CASES)
def test_what_a_rule_makes_of_a_plan(case: Case) -> None:
    check_case(case, lambda given: apply_rule(case.path.stem, given))


@pytest.mark.parametrize("name", RULES)
def test_every_rule_has_cases_in_which_it_fires_and_cases_in_which_it_does_not(name: str) -> None:
    _, cases = read_cases(CASES / f"{name}.txt")
    unchanged = [case for case in cases if case.fields["after"] == UNCHANGED]
    assert unchanged
    assert len(unchanged) < len(cases)


def test_every_case_file_belongs_to_a_rule() -> None:
    assert {path.stem for path in CASES.iterdir()} == set(RULES)

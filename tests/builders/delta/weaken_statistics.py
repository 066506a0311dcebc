"""Weaken the statistics of a Delta table: remove some from its log and move bounds outwards."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from builders.delta.tables import format_json_object
from builders.values.choices import Choices

_BOUNDS = {"minValues": -1, "maxValues": 1}


def weaken_statistics(table: Path, choices: Choices) -> None:
    """Rewrite all commits of a table with weaker statistics, and remove checkpoints and compactions."""
    log = table / "_delta_log"
    for path in [*log.rglob("*checkpoint*"), *log.rglob("*.compacted.json"), *log.glob("_sidecars/*")]:
        path.unlink(missing_ok=True)
    for path in sorted(log.glob("*.json")):
        lines = []
        for line in path.read_text().splitlines():
            action = json.loads(line)
            if isinstance(action.get("add"), dict) and action["add"].get("stats"):
                action["add"]["stats"] = _weaken_text(action["add"]["stats"], choices)
                line = json.dumps(action)
            lines.append(line)
        path.write_text("".join(f"{line}\n" for line in lines))


def _weaken_text(text: str, choices: Choices) -> str | None:
    try:
        # Decimals keep their digits.
        statistics = json.loads(text, parse_float=Decimal)
    except ValueError:
        return text
    if not isinstance(statistics, dict) or choices.flag(6):
        return None if choices.flag() else text
    found = {}
    for name, value in statistics.items():
        if choices.flag(6):
            continue
        found[name] = _drop_some(value, choices) if isinstance(value, dict) else value
    if choices.flag():
        return _format_value(found)
    # A bound that is no longer the value of some row is not tight.
    for name in found.keys() & _BOUNDS.keys():
        found[name] = _widen_bound(found[name], _BOUNDS[name], choices)
    return _format_value(found | {"tightBounds": False})


def _drop_some(values: dict[str, Any], choices: Choices) -> dict[str, Any]:
    return {
        name: _drop_some(value, choices) if isinstance(value, dict) else value
        for name, value in values.items()
        if not choices.flag(4)
    }


def _widen_bound(value: Any, side: int, choices: Choices) -> Any:
    if isinstance(value, dict):
        return {name: _widen_bound(each, side, choices) for name, each in value.items()}
    if not choices.flag():
        return value
    match value:
        case bool():
            return value
        case int() | Decimal():
            return value + side
        case str():
            # The text of a date or time becomes invalid, so that its bound is unknown. The end of a text may mark a
            # truncation, so the largest character goes before it.
            return "" if side < 0 else "\U0010ffff" + value
        case _:
            return value


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return format_json_object({name: _format_value(each) for name, each in value.items()})
    return str(value) if isinstance(value, Decimal) else json.dumps(value)

"""Merging of comparisons of one column with constants: tighter bounds, shorter lists, contradictions.

a > 3 AND a > 5            a > 5
a IN (1, 7, 9) AND a > 5   a IN (7, 9)
a > 5 AND a < 3            never TRUE
a = 1 OR a = 2             a IN (1, 2)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tamis.expr.nodes import FALSE, NULL, Call, Column, Expr, Literal, and_
from tamis.expr.ordering import is_less, sort_key


@dataclass(slots=True)
class _Constraints:
    """The constraints of a conjunction on one column."""

    column: Column
    lower: tuple[Literal, bool] | None = None
    """The largest lower bound, and whether it is exclusive."""
    upper: tuple[Literal, bool] | None = None
    allowed: list[Literal] | None = None
    excluded: dict[tuple[bool, object], Literal] = field(default_factory=dict)

    def add(self, function: str, items: tuple[Literal, ...]) -> None:
        match function:
            case "=" | "in":
                self._allow(items)
            case "<>":
                self.excluded[sort_key(items[0].value)] = items[0]
            case ">" | ">=":
                bound = (items[0], function == ">")
                if self.lower is None or _is_tighter(bound, self.lower, lower=True):
                    self.lower = bound
            case _:
                bound = (items[0], function == "<")
                if self.upper is None or _is_tighter(bound, self.upper, lower=False):
                    self.upper = bound

    def _allow(self, items: tuple[Literal, ...]) -> None:
        if self.allowed is None:
            self.allowed = list(items)
        else:
            keys = {sort_key(item.value) for item in items}
            self.allowed = [item for item in self.allowed if sort_key(item.value) in keys]

    def predicates(self) -> list[Expr] | None:
        """Return the shortest equivalent predicates; None if no value satisfies them."""
        if self.allowed is not None:
            values = [item for item in self.allowed if self._admits(item)]
            match values:
                case []:
                    return None
                case [only]:
                    return [Call("=", (self.column, only))]
                case _:
                    return [Call("in", (self.column, *sorted(values, key=lambda item: sort_key(item.value))))]
        if self.lower and self.upper and self._is_empty(self.lower, self.upper):
            return None
        found: list[Expr] = []
        if self.lower is not None:
            found.append(Call(">" if self.lower[1] else ">=", (self.column, self.lower[0])))
        if self.upper is not None:
            found.append(Call("<" if self.upper[1] else "<=", (self.column, self.upper[0])))
        found.extend(Call("<>", (self.column, item)) for item in self.excluded.values() if self._is_within(item))
        return found

    def _admits(self, item: Literal) -> bool:
        return sort_key(item.value) not in self.excluded and self._is_within(item)

    def _is_within(self, item: Literal) -> bool:
        if self.lower is not None:
            bound, strict = self.lower
            if is_less(item.value, bound.value) or (strict and not is_less(bound.value, item.value)):
                return False
        if self.upper is not None:
            bound, strict = self.upper
            if is_less(bound.value, item.value) or (strict and not is_less(item.value, bound.value)):
                return False
        return True

    @staticmethod
    def _is_empty(lower: tuple[Literal, bool], upper: tuple[Literal, bool]) -> bool:
        if is_less(upper[0].value, lower[0].value):
            return True
        return (lower[1] or upper[1]) and not is_less(lower[0].value, upper[0].value)


def _is_tighter(new: tuple[Literal, bool], old: tuple[Literal, bool], *, lower: bool) -> bool:
    inner, outer = (old[0].value, new[0].value) if lower else (new[0].value, old[0].value)
    return is_less(inner, outer) or (sort_key(inner) == sort_key(outer) and new[1] and not old[1])


def _parse_constraint(part: Expr) -> tuple[Column, str, tuple[Literal, ...]] | None:
    match part:
        case Call(("=" | "<>" | "<" | "<=" | ">" | ">=") as function, (Column() as column, Literal() as item)):
            return None if item.is_null else (column, function, (item,))
        case Call("in", (Column() as column, *items)):
            literals = tuple(item for item in items if isinstance(item, Literal) and not item.is_null)
            return (column, "in", literals) if len(literals) == len(items) else None
        case _:
            return None


def merge_conjunction(parts: list[Expr], *, where: bool) -> list[Expr]:
    """Return the conjuncts with all constraints on a column merged, at the position of the first one."""
    by_column: dict[Column, _Constraints] = {}
    merged: list[Expr | _Constraints] = []
    for part in parts:
        found = _parse_constraint(part)
        if found is None:
            merged.append(part)
            continue
        column, function, items = found
        if column not in by_column:
            merged.append(by_column.setdefault(column, _Constraints(column)))
        by_column[column].add(function, items)
    result: list[Expr] = []
    for entry in merged:
        if not isinstance(entry, _Constraints):
            result.append(entry)
            continue
        predicates = entry.predicates()
        if predicates is None:
            # Never TRUE; NULL where the column is NULL, unless only TRUE matters.
            predicates = [FALSE] if where else [and_(Call("is_null", (entry.column,)), NULL)]
        result.extend(predicates)
    return list(dict.fromkeys(result))


def merge_disjunction(parts: list[Expr]) -> list[Expr]:
    """Return the disjuncts with the equalities on a column merged into one IN list."""
    lists: dict[Column, list[Literal]] = {}
    merged: list[tuple[Expr, bool]] = []
    for part in parts:
        found = _parse_constraint(part)
        if found is None or found[1] not in ("=", "in"):
            merged.append((part, False))
            continue
        column, _, items = found
        if column not in lists:
            merged.append((column, True))
        lists.setdefault(column, []).extend(items)
    return [
        _build_membership(entry, lists[entry]) if is_list and isinstance(entry, Column) else entry
        for entry, is_list in merged
    ]


def _build_membership(column: Column, items: list[Literal]) -> Expr:
    distinct = {sort_key(item.value): item for item in items}
    values = [distinct[key] for key in sorted(distinct)]
    return Call("=", (column, values[0])) if len(values) == 1 else Call("in", (column, *values))

"""Lookup of a file's leaf columns by name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from tamis.errors import AmbiguousColumn, UnknownColumn
from tamis.expr.builder import split_name
from tamis.parquet.every_leaf import InspectedLeaf, format_path
from tamis.parquet.leaves import FieldPath

_SHOWN_COLUMNS = 12


def find_leaves(leaves: Sequence[InspectedLeaf], name: str, location: str) -> list[InspectedLeaf]:
    """Return the leaf of this name, or all leaves inside the struct, list or map of this name.

    Names match ignoring case, as in filters, unless that is ambiguous.
    """
    # A name with dots may also be the complete name of one column.
    for path in dict.fromkeys((split_name(name), (name,))):
        for fold in (False, True):
            found = [each for each in leaves if _starts_with(each.leaf.path, path, fold)]
            meant = list(dict.fromkeys(each.leaf.path[: len(path)] for each in found))
            if len(meant) > 1:
                spelled = ", ".join(repr(format_path(each)) for each in meant)
                raise AmbiguousColumn(f"the name {name!r} matches several columns of '{location}': {spelled}")
            if found:
                return found
    raise _unknown_column_error(leaves, name, location)


def _starts_with(path: FieldPath, wanted: FieldPath, fold: bool) -> bool:
    start = path[: len(wanted)]
    return tuple(map(str.casefold, start)) == tuple(map(str.casefold, wanted)) if fold else start == wanted


def _unknown_column_error(leaves: Sequence[InspectedLeaf], name: str, location: str) -> UnknownColumn:
    paths = [each.leaf.path[:depth] for each in leaves for depth in range(1, len(each.leaf.path) + 1)]
    names = {format_path(path).casefold(): format_path(path) for path in paths}
    near = difflib.get_close_matches(name.casefold(), names, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(repr(names[each]) for each in near)}?" if near else ""
    shown = [each.name for each in leaves[:_SHOWN_COLUMNS]]
    if len(leaves) > _SHOWN_COLUMNS:
        shown.append(f"… {len(leaves) - _SHOWN_COLUMNS} more")
    return UnknownColumn(f"no column {name!r} in '{location}'.{hint} Columns: {', '.join(shown) or 'none'}.")

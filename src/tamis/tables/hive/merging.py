"""One schema of many files: every column that some file has, in a type that holds the values of all.

Types are widened as Arrow's permissive promotion does: int to bigint, int to double, decimals to more digits. A column
that is a text in one file and a number in another has no common type, and is an error that names both files.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tamis.errors import UnsupportedFeature
from tamis.types import type_name, without_views


def merge_schemas(schemas: Iterable[tuple[pa.Schema, str]]) -> pa.Schema:
    """The columns of all schemas, those of the first ones first. Each comes with the place of a file that has it.

    Names are matched without regard to case; the first spelling stays.
    """
    fields: dict[str, pa.Field] = {}
    places: dict[str, str] = {}
    for schema, place in schemas:
        _check_distinct(schema, place)
        for found in schema:
            key = found.name.lower()
            # A file that lacks the column has NULL for it.
            plain = pa.field(found.name, without_views(found.type))
            if key not in fields:
                fields[key], places[key] = plain, place
            elif plain.type != fields[key].type:
                fields[key] = _common(fields[key], plain, places[key], place)
    return pa.schema(fields.values())


def _check_distinct(schema: pa.Schema, place: str) -> None:
    folded = [name.lower() for name in schema.names]
    repeated = [name for name, key in zip(schema.names, folded, strict=True) if folded.count(key) > 1]
    if repeated:
        raise UnsupportedFeature(
            f"'{place}' has columns {', '.join(map(repr, repeated))} that differ only by case, and names are matched "
            "without regard to it: open the table without merge_schema, or rename one"
        )


def _common(known: pa.Field, found: pa.Field, known_place: str, place: str) -> pa.Field:
    try:
        merged = pa.unify_schemas(
            [pa.schema([known]), pa.schema([found.with_name(known.name)])], promote_options="permissive"
        )
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise UnsupportedFeature(
            f"column {known.name!r} is {type_name(known.type)} in '{known_place}' and {type_name(found.type)} in "
            f"'{place}': no type holds both, so rewrite one of the files"
        ) from error
    return merged.field(0)

"""Schema merging: one schema with every column that some file has, in a type that holds the values of all files.

Types are widened as by Arrow's permissive promotion: int to bigint, int to double, decimals to more digits. A column
that is a string in one file and a number in another has no common type, and is an error that names both files.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tamis.errors import UnsupportedFeature
from tamis.types import replace_view_types, type_name


def merge_schemas(schemas: Iterable[tuple[pa.Schema, str]]) -> pa.Schema:
    """Return the columns of all schemas in order of appearance. Each schema comes with the location of a file.

    Names are matched without regard to case; the first spelling is used.
    """
    fields: dict[str, pa.Field] = {}
    locations: dict[str, str] = {}
    for schema, location in schemas:
        _check_distinct(schema, location)
        for found in schema:
            key = found.name.lower()
            # Nullable: the column is NULL for a file that lacks it.
            plain = pa.field(found.name, replace_view_types(found.type))
            if key not in fields:
                fields[key], locations[key] = plain, location
            elif plain.type != fields[key].type:
                fields[key] = _merge_fields(fields[key], plain, locations[key], location)
    return pa.schema(fields.values())


def _check_distinct(schema: pa.Schema, location: str) -> None:
    folded = [name.lower() for name in schema.names]
    repeated = [name for name, key in zip(schema.names, folded, strict=True) if folded.count(key) > 1]
    if repeated:
        raise UnsupportedFeature(
            f"'{location}' has columns {', '.join(map(repr, repeated))} that differ only by case, and names are "
            "matched without regard to it: open the table without merge_schema, or rename one"
        )


def _merge_fields(known: pa.Field, found: pa.Field, known_location: str, location: str) -> pa.Field:
    try:
        merged = pa.unify_schemas(
            [pa.schema([known]), pa.schema([found.with_name(known.name)])], promote_options="permissive"
        )
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise UnsupportedFeature(
            f"column {known.name!r} is {type_name(known.type)} in '{known_location}' and {type_name(found.type)} in "
            f"'{location}': no type holds both, so rewrite one of the files"
        ) from error
    return merged.field(0)

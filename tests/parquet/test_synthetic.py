"""Synthetic files of one column, and schemas of one leaf: every nesting that writers have used."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders.parquet.page_files import (
    FILE_PATH,
    OpenedFile,
    damage_bytes,
    has_same_values,
    parquet_bytes,
    replace_footer,
)
from tamis.errors import CorruptFile
from tamis.parquet.footer.chunks import FooterMap
from tamis.parquet.footer.leaves import count_leaves
from tamis.parquet.footer.schema_path import OPTIONAL, REPEATED, REQUIRED, narrow_field, read_leaf_schemas
from tamis.parquet.footer.thrift import (
    BINARY,
    BYTES,
    I32,
    INTEGER32,
    RAW_STRUCT,
    STRUCT,
    encode_list,
    encode_struct,
    read_list_header,
    read_struct,
)
from tamis.parquet.reading.decode import Pages, build_one_column_file

Element = dict[int, Any]
"""A schema element by field id: 1 type, 3 repetition, 4 name, 5 children, 6 converted, 10 logical type."""

NAME, REPETITION, CHILDREN, CONVERTED, LOGICAL = 4, 3, 5, 6, 10
MAP, MAP_KEY_VALUE, LIST = 1, 2, 3


def decode_elements(schema: bytes) -> list[Element]:
    _, size, position = read_list_header(schema, 0)
    kinds = dict.fromkeys((1, 2, 3, 5, 6, 7, 8), INTEGER32) | {NAME: BYTES, LOGICAL: RAW_STRUCT}
    found = []
    for _ in range(size):
        element, position = read_struct(schema, position, kinds)
        found.append(element)
    return found


def encode_elements(elements: list[Element]) -> bytes:
    types = {NAME: BINARY, LOGICAL: STRUCT}
    return encode_list(
        STRUCT,
        [encode_struct((key, types.get(key, I32), element[key]) for key in sorted(element)) for element in elements],
    )


def replace_schema(file: OpenedFile, change: Callable[[list[Element]], list[Element]]) -> OpenedFile:
    """Return a file of the same pages with another schema of the same levels."""
    footer, schema = file.footer.footer, file.footer.schema
    return OpenedFile(
        replace_footer(file.content, footer.replace(schema, encode_elements(change(decode_elements(schema)))))
    )


def find_element(elements: list[Element], name: str) -> Element:
    (found,) = [element for element in elements if element[NAME] == name.encode()]
    return found


PAIR = pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.string())])
ONE = pa.struct([pa.field("x", pa.int64())])


def make_structs(rows: int = 120) -> list[Any]:
    return [[{"x": row + at if at % 2 else None, "y": f"{row} {at}"} for at in range(row % 4)] for row in range(rows)]


def write_list_file(element: pa.DataType = PAIR, nullable: bool = True) -> OpenedFile:
    """Return a file with a list of structs that are never null, as old writers wrote them."""
    values: list[Any] = [None if row % 9 == 5 and nullable else value for row, value in enumerate(make_structs())]
    if element == ONE:
        values = [value and [{"x": item["x"]} for item in value] for value in values]
    data_type = pa.list_(pa.field("element", element, nullable=False))
    schema = pa.schema([pa.field("l", data_type, nullable), pa.field("other", pa.int64())])
    return OpenedFile(parquet_bytes(pa.table([values, range(120)], schema=schema)))


def drop_element_group(elements: list[Element]) -> list[Element]:
    children = find_element(elements, "element")[CHILDREN]
    find_element(elements, "list")[CHILDREN] = children
    return [element for element in elements if element[NAME] != b"element"]


def use_two_levels(elements: list[Element]) -> list[Element]:
    return drop_element_group(elements)


def use_two_levels_named_array(elements: list[Element]) -> list[Element]:
    elements = drop_element_group(elements)
    find_element(elements, "list")[NAME] = b"array"
    return elements


def use_two_levels_named_tuple(elements: list[Element]) -> list[Element]:
    elements = drop_element_group(elements)
    find_element(elements, "list")[NAME] = b"l_tuple"
    return elements


def keep_converted_type_only(elements: list[Element]) -> list[Element]:
    del find_element(elements, "l")[LOGICAL]
    return elements


def keep_logical_type_only(elements: list[Element]) -> list[Element]:
    del find_element(elements, "l")[CONVERTED]
    return elements


def use_repeated_group(elements: list[Element]) -> list[Element]:
    elements = drop_element_group(elements)
    find_element(elements, "list")[NAME] = b"l "
    elements = [element for element in elements if element[NAME] != b"l"]
    find_element(elements, "l ")[NAME] = b"l"
    return elements


def check(file: OpenedFile) -> None:
    for row_group, leaf in file.layouts:
        count = file.locations(row_group, leaf).num_pages
        assert count > 1
        for pages in ([0], [1, count - 1], list(range(count))):
            found, expected = file.decode(row_group, leaf, pages), file.expected_pages(row_group, leaf, pages)
            assert has_same_values(found, expected), (file.fields[leaf], found.type)


@pytest.mark.parametrize("element", [PAIR, ONE], ids=["several fields", "one field"])
@pytest.mark.parametrize(
    "change",
    [
        use_two_levels,
        use_two_levels_named_array,
        use_two_levels_named_tuple,
        keep_converted_type_only,
        keep_logical_type_only,
    ],
)
def test_lists_of_old_shapes(change: Callable[[list[Element]], list[Element]], element: pa.DataType) -> None:
    file = replace_schema(write_list_file(element), change)
    assert pa.types.is_list(file.pyarrow.schema_arrow.field("l").type)
    check(file)


@pytest.mark.parametrize("element", [PAIR, ONE], ids=["several fields", "one field"])
def test_repeated_groups_without_a_list_around_them(element: pa.DataType) -> None:
    check(replace_schema(write_list_file(element, nullable=False), use_repeated_group))


def test_repeated_leaves_without_a_list_around_them() -> None:
    data_type = pa.list_(pa.field("element", pa.int64(), nullable=False))
    schema = pa.schema([pa.field("l", data_type, nullable=False)])
    written = OpenedFile(parquet_bytes(pa.table([[[row] * (row % 3) for row in range(120)]], schema=schema)))

    def change(elements: list[Element]) -> list[Element]:
        leaf = find_element(elements, "element") | {NAME: b"l", REPETITION: REPEATED}
        return [elements[0], leaf]

    file = replace_schema(written, change)
    assert str(file.pyarrow.schema_arrow.field("l").type) == "list<l: int64 not null>"
    check(file)


def write_map_file() -> OpenedFile:
    entries = [
        None if row % 7 == 3 else [(f"k{at}", None if at else row) for at in range(row % 3)] for row in range(120)
    ]
    return OpenedFile(parquet_bytes(pa.table({"m": pa.array(entries, pa.map_(pa.string(), pa.int64()))})))


@pytest.mark.parametrize("converted", [MAP, MAP_KEY_VALUE])
@pytest.mark.parametrize("inner", [None, MAP_KEY_VALUE])
def test_maps_of_old_shapes(converted: int, inner: int | None) -> None:
    def change(elements: list[Element]) -> list[Element]:
        outer = find_element(elements, "m")
        del outer[LOGICAL]
        outer[CONVERTED] = converted
        if inner is not None:
            find_element(elements, "key_value")[CONVERTED] = inner
        find_element(elements, "key_value")[NAME] = b"map"
        return elements

    file = replace_schema(write_map_file(), change)
    assert pa.types.is_map(file.pyarrow.schema_arrow.field("m").type)
    check(file)


def test_levels_of_leaves() -> None:
    file = OpenedFile(parquet_bytes(pa.table({"a": [1], "s": [{"l": [[1]], "b": 2}]})))
    for leaf, schema in file.schemas.items():
        column = file.pyarrow.schema.column(leaf)
        assert schema.max_definition_level == column.max_definition_level
        assert schema.is_repeated == (column.max_repetition_level > 0)
        assert b".".join(element.name for element in schema.elements) == column.path.encode()


# --- Invalid schemas --------------------------------------------------------------------------------------------------


def make_footer(elements: list[Element]) -> FooterMap:
    file = OpenedFile(parquet_bytes(pa.table({"a": [1]})))
    return FooterMap(b"", encode_elements(elements), file.footer.rows, file.footer.chunks, None, None)


ROOT: Element = {NAME: b"root", CHILDREN: 1}
LEAF: Element = {1: 2, REPETITION: OPTIONAL, NAME: b"a"}


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        ([], "no root"),
        ([ROOT], "fewer elements"),
        ([ROOT | {CHILDREN: 2}, LEAF], "fewer elements"),
        ([ROOT, LEAF, LEAF], "outside its root"),
        ([ROOT | {CHILDREN: -1}, LEAF], "-1 children"),
        ([ROOT, {1: 2, REPETITION: REQUIRED}], "no name"),
        ([ROOT, LEAF], "no leaf 1"),
        (
            [ROOT, *({NAME: b"g", REPETITION: OPTIONAL, CHILDREN: 1} for _ in range(300)), LEAF],
            "nested deeper than 200 levels",
        ),
    ],
)
def test_X2_invalid_schemas_are_an_error(elements: list[Element], message: str) -> None:
    with pytest.raises(CorruptFile, match=message) as error:
        read_leaf_schemas(make_footer(elements), [1], FILE_PATH)
    assert "the schema of 'f.parquet' is damaged" in str(error.value)


def test_groups_without_children_are_not_leaves() -> None:
    schemas = read_leaf_schemas(
        make_footer([ROOT | {CHILDREN: 2}, {NAME: b"g", REPETITION: OPTIONAL}, LEAF]), [0], FILE_PATH
    )
    assert [element.name for element in schemas[0].elements] == [b"a"]


def test_damaged_schemas_are_schemas_or_CorruptFile() -> None:
    schema = write_list_file().footer.schema
    empty = make_footer([ROOT, LEAF])
    for changed in damage_bytes(schema, times=2000):
        with suppress(CorruptFile):
            found = read_leaf_schemas(FooterMap(b"", changed, empty.rows, empty.chunks, None, None), [0], FILE_PATH)
            assert found[0].elements


# --- Fields of one leaf -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data_type", "leaf", "expected"),
    [
        (pa.int64(), 0, pa.int64()),
        (pa.struct({"a": pa.int8(), "b": pa.string()}), 1, pa.struct({"b": pa.string()})),
        (pa.list_(PAIR), 0, pa.list_(ONE)),
        (pa.large_list(PAIR), 0, pa.large_list(ONE)),
        (pa.list_(PAIR, 3), 0, pa.list_(ONE, 3)),
        (pa.list_(pa.list_(PAIR)), 0, pa.list_(pa.list_(ONE))),
        (pa.dictionary(pa.int32(), pa.string()), 0, pa.dictionary(pa.int32(), pa.string())),
        (pa.uuid(), 0, pa.uuid()),
        (
            pa.struct({"a": pa.list_(pa.int8()), "m": pa.map_(pa.string(), PAIR)}),
            2,
            pa.struct({"m": pa.list_(pa.field("array", pa.struct({"value": ONE}), nullable=False))}),
        ),
    ],
)
def test_fields_narrowed_to_a_leaf(data_type: pa.DataType, leaf: int, expected: pa.DataType) -> None:
    field = pa.field("f", data_type, nullable=False)
    assert narrow_field(field, leaf) == pa.field("f", expected, nullable=False)
    for outside in (-1, count_leaves(data_type)):
        with pytest.raises(CorruptFile, match="has no leaf"):
            narrow_field(field, outside)


# --- The file itself --------------------------------------------------------------------------------------------------


def test_a_file_of_one_column_holds_only_what_it_needs() -> None:
    table = pa.table({"a": pa.array(range(100), pa.duration("ms")), "b": ["x"] * 100})
    file = OpenedFile(parquet_bytes(table))
    locations, layout = file.locations(0, 0), file.layouts[0, 0]
    page = file.buffer.slice(int(locations.offsets[2]), int(locations.lengths[2]))
    pages = Pages(layout.codec, layout.encodings, 17, 17, 1000)
    made = build_one_column_file(file.schemas[0], file.fields[0], file.dictionary(0, 0), [page], pages, b"someone")
    content = b"".join(made.buffers)
    assert len(content) == made.size
    with pq.ParquetFile(io.BytesIO(content)) as read:
        assert read.metadata.num_columns == read.metadata.num_row_groups == 1
        assert read.metadata.created_by == "someone"
        assert read.read().column("a").equals(table["a"].slice(34, 17))
    # Without Arrow's schema the type is Parquet's.
    made = build_one_column_file(file.schemas[0], None, file.dictionary(0, 0), [page], pages)
    with pq.ParquetFile(made.open()) as read:
        assert read.schema_arrow.field("a").type == pa.int64()


def test_a_large_file_of_one_buffer_is_served_without_a_copy() -> None:
    table = pa.table({"a": pa.array(range(300_000), pa.int64())})
    options = {"use_dictionary": False, "compression": "none", "data_page_size": 1 << 30}
    file = OpenedFile(parquet_bytes(table, row_group_size=300_000, max_rows_per_page=300_000, **options))
    layout = file.layouts[0, 0]
    pages = Pages(layout.codec, layout.encodings, 300_000, 300_000, layout.total_uncompressed_size)
    made = build_one_column_file(file.schemas[0], file.fields[0], None, [file.buffer.slice(*layout.byte_range)], pages)
    assert not isinstance(made.open(), pa.NativeFile)
    with pq.ParquetFile(made.open()) as read:
        assert read.read().column("a").equals(table["a"])

"""Options, diagnostics, answers per row group, and Bloom filter providers of `PruneRequest` and `Pruner`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders.parquet.bloom import read_filters, read_layouts
from builders.parquet.footers import CHUNK_VALUES, FILE_ROWS, GROUP_ROWS, add_to_numbers
from tamis import TamisError
from tamis.errors import CorruptFile, EngineError, InvalidArgument, MissingFile, UnknownArgument
from tamis.io.ranges import RangedFile
from tamis.parquet import (
    BloomFilter,
    PageIndexBytes,
    PruneOptions,
    Pruner,
    PruneRequest,
    PruneResult,
    RowSelection,
    TriState,
)
from tamis.parquet.pruner import open_file
from tamis.skipping.handler import ArrowExpressionHandler

ROWS = 4_000
ROWS_PER_GROUP = 1_000
TRUE, FALSE, UNKNOWN = TriState.TRUE, TriState.FALSE, TriState.UNKNOWN
Chunk = tuple[int, int]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return pa.table(
        {
            "id": range(ROWS),
            # Every row group has codes from the whole range, so that only Bloom filters and dictionaries exclude one.
            "code": [f"c{n % ROWS_PER_GROUP:04d}{n // ROWS_PER_GROUP}" for n in range(ROWS)],
            "kind": [f"k{n % 10}{n // ROWS_PER_GROUP}" for n in range(ROWS)],
            "maybe": pa.array([None if n < ROWS_PER_GROUP else n for n in range(ROWS)]),
        }
    )


@pytest.fixture(scope="module")
def file(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("requests") / "f.parquet"
    pq.write_table(
        rows,
        path,
        row_group_size=ROWS_PER_GROUP,
        max_rows_per_page=100,
        write_page_index=True,
        use_dictionary=["kind"],
        bloom_filter_options={"code": {"ndv": ROWS_PER_GROUP, "fpp": 0.0001}},
    )
    return path


def list_levels(result: PruneResult) -> list[str]:
    return [level.level for level in result.levels]


# --- Options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        (PruneOptions(), {"bloom", "pages", "dictionary"}),
        (PruneOptions(page_index=False), {"bloom", "dictionary"}),
        (PruneOptions(bloom_filter=False, dictionary=False), {"pages"}),
        (PruneOptions.from_levels(["bloom"]), {"bloom"}),
        (PruneOptions.from_levels([]), set()),
    ],
)
def test_requests_and_pruners_apply_the_levels_of_the_same_options(
    file: Path, rows: pa.Table, options: PruneOptions, levels: set[str]
) -> None:
    where = "id >= 10 AND code = 'c00421' AND kind = 'k21'"
    assert options.levels == levels
    requested = PruneRequest(file).with_predicate(where).with_options(options).prune()
    pruned = Pruner(rows.schema, where, options).prune(file)
    assert list_levels(requested) == list_levels(pruned)
    assert set(list_levels(pruned)) <= {"row_groups"} | levels
    assert PruneRequest(file, options=options).prune().row_groups == (0, 1, 2, 3)


def test_without_options_a_request_and_a_pruner_prune_alike(file: Path, rows: pa.Table) -> None:
    where = "code = 'c00421'"
    by_request, by_pruner = PruneRequest(file).with_predicate(where).prune(), Pruner(rows.schema, where).prune(file)
    assert by_request.row_selection == by_pruner.row_selection
    assert list_levels(by_request) == list_levels(by_pruner) == ["row_groups", "bloom", "pages", "dictionary"]


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: PruneOptions.from_levels(["page"]), r"no level 'page' .* mean 'pages'\? Levels: bloom, pages, dict"),
        (lambda: PruneOptions.from_levels(["page_index"]), "mean 'pages'"),
        (lambda: PruneOptions.from_levels(["files"]), "no level 'files' below row groups"),
        (lambda: PruneOptions.from_levels("pages"), "levels must be a list of bloom, pages, dictionary, found a str"),
        (lambda: PruneOptions(page_index="no"), "page_index must be True or False"),  # type: ignore[arg-type]
        (lambda: Pruner(pa.schema([]), options={"pages"}).prune("f"), "options must be a PruneOptions"),  # type: ignore[arg-type]
        (lambda: PruneRequest("f", options=None).emit_roaring(), "options must be a PruneOptions"),  # type: ignore[arg-type]
    ],
)
def test_wrong_options_are_errors(build: Any, text: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    (file.parent / "f").write_bytes(file.read_bytes())
    with pytest.raises(InvalidArgument, match=text):
        build()


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(UnknownArgument, match=r"no argument 'bloom_filters': did you mean bloom_filter=\?"):
        PruneOptions(bloom_filters=True)  # type: ignore[call-arg]


# --- Metadata alone ---------------------------------------------------------------------------------------------------


def test_metadata_alone_says_which_levels_it_lacks(file: Path) -> None:
    request = PruneRequest(pq.read_metadata(file)).with_predicate("code = 'c00421' AND kind = 'k21' AND id > 50")
    diagnostics = request.prune().compile_result.diagnostics
    assert [text.partition(":")[0] for text in diagnostics] == ["page index", "Bloom filters", "dictionaries"]
    assert all("with_file" in text for text in diagnostics)
    assert request.enable_page_index(False).prune().compile_result.diagnostics == diagnostics[1:]


@pytest.mark.parametrize("where", [None, "id < 0"])
def test_metadata_alone_says_nothing_about_levels_that_are_not_needed(file: Path, where: str | None) -> None:
    assert PruneRequest(pq.read_metadata(file)).with_predicate(where).prune().compile_result.diagnostics == ()


def test_metadata_of_a_file_without_indexes_lacks_nothing(tmp_path: Path, rows: pa.Table) -> None:
    path = tmp_path / "plain.parquet"
    pq.write_table(rows, path, use_dictionary=False)
    assert PruneRequest(pq.read_metadata(path)).with_predicate("id = 5").prune().compile_result.diagnostics == ()


@pytest.mark.parametrize("where", ["code = 'c00421'", "id BETWEEN 150 AND 160", "kind = 'k21'"])
def test_metadata_with_its_file_prunes_like_the_file(file: Path, rows: pa.Table, where: str) -> None:
    metadata = pq.read_metadata(file)
    beside = PruneRequest(metadata).with_file(file).with_predicate(where).prune()
    alone = PruneRequest(file).with_predicate(where).prune()
    assert beside.row_selection == alone.row_selection
    assert beside.row_groups == alone.row_groups
    assert beside.compile_result.diagnostics == ()
    assert Pruner(rows.schema, where).prune(metadata, data_file=file).row_selection == alone.row_selection


def read_index_bytes(file: Path) -> tuple[bytes, bytes]:
    """Return the column indexes and the offset indexes of a file as it stores them."""
    opened = open_file(file)
    metadata, content = opened.footer.metadata, file.read_bytes()
    chunks = [
        opened.chunk(group, leaf) for group in range(metadata.num_row_groups) for leaf in range(metadata.num_columns)
    ]

    def cut(ranges: list[Any]) -> bytes:
        return content[min(start for start, _ in ranges) : max(start + length for start, length in ranges)]

    return cut([each.column_index for each in chunks]), cut([each.offset_index for each in chunks])


@pytest.mark.parametrize("where", ["code = 'c00421'", "id BETWEEN 150 AND 160", "kind = 'k21'", "id < 0", None])
def test_metadata_with_the_bytes_of_page_indexes_prunes_pages_like_the_file(
    file: Path, rows: pa.Table, where: str | None
) -> None:
    metadata, indexes = pq.read_metadata(file), read_index_bytes(file)
    only_pages = PruneOptions.from_levels(["pages"])
    beside = PruneRequest(metadata, options=only_pages).with_page_indexes(*indexes).with_predicate(where).prune()
    alone = PruneRequest(file, options=only_pages).with_predicate(where).prune()
    assert (beside.row_groups, beside.row_selection) == (alone.row_groups, alone.row_selection)
    assert beside.compile_result.diagnostics == ()
    assert beside.levels == alone.levels
    again = Pruner(rows.schema, where, only_pages).prune(metadata, data_file=PageIndexBytes(*indexes))
    assert again.row_selection == alone.row_selection


def test_the_bytes_of_page_indexes_do_not_hold_other_levels(file: Path) -> None:
    request = PruneRequest(pq.read_metadata(file)).with_page_indexes(*read_index_bytes(file))
    found = request.with_predicate("code = 'c00421' AND kind = 'k21' AND id > 50").prune()
    assert [text.partition(":")[0] for text in found.compile_result.diagnostics] == ["Bloom filters", "dictionaries"]


def test_bytes_that_are_not_the_page_indexes_of_the_metadata_are_an_error(file: Path) -> None:
    columns, offsets = read_index_bytes(file)
    request = PruneRequest(pq.read_metadata(file)).with_predicate("id = 5")
    with pytest.raises(
        InvalidArgument, match="the column indexes do not belong to the metadata: found 0 bytes, expected"
    ):
        request.with_page_indexes(b"", offsets).prune()
    with pytest.raises(InvalidArgument, match="the offset indexes do not belong to the metadata"):
        request.with_page_indexes(columns, offsets + b" ").prune()
    with pytest.raises(InvalidArgument, match="offset_indexes must be bytes"):
        request.with_page_indexes(columns, "text").prune()  # type: ignore[arg-type]
    with pytest.raises(CorruptFile):
        request.with_page_indexes(columns, bytes(len(offsets))).prune()
    with pytest.raises(InvalidArgument, match="there is no metadata beside this file"):
        PruneRequest(file).with_page_indexes(columns, offsets).prune()


def test_a_file_of_other_metadata_is_an_error(file: Path, tmp_path: Path, rows: pa.Table) -> None:
    other = tmp_path / "other.parquet"
    pq.write_table(rows.slice(1), other)
    with pytest.raises(InvalidArgument, match=r"metadata does not belong to '.*other\.parquet'"):
        PruneRequest(pq.read_metadata(file)).with_file(other).with_predicate("id = 5").prune()
    with pytest.raises(InvalidArgument, match="there is no metadata beside this file"):
        PruneRequest(file).with_file(other).prune()


# --- More rows than a bitmap holds ------------------------------------------------------------------------------------


def write_huge_metadata(path: Path, extra: int) -> pq.FileMetaData:
    """Return the metadata of a file whose footer states `extra` more rows in each of its two row groups."""
    pq.write_table(pa.table({"id": range(20)}), path, row_group_size=10)
    for number in (GROUP_ROWS, CHUNK_VALUES):
        add_to_numbers(path, number, extra)
    add_to_numbers(path, FILE_ROWS, 2 * extra)
    return pq.read_metadata(path)


def test_above_two_to_the_32_rows_there_is_no_bitmap_but_a_diagnostic(tmp_path: Path) -> None:
    metadata = write_huge_metadata(tmp_path / "huge.parquet", 2**32)
    result = PruneRequest(metadata).with_predicate("id > 12").emit_roaring().enable_dictionary(False).prune()
    assert result.row_groups == (1,)
    assert result.row_selection == RowSelection.all(2**32 + 10)
    assert result.roaring_bitmap is None
    (diagnostic,) = result.compile_result.diagnostics
    assert diagnostic.startswith("Roaring bitmap: not built, because the file has 8,589,934,612 rows")
    assert result.row_selection.to_roaring64().max() == 2**32 + 9


def test_two_to_the_32_rows_still_have_a_bitmap(tmp_path: Path) -> None:
    metadata = write_huge_metadata(tmp_path / "large.parquet", 2**31 - 10)
    result = PruneRequest(metadata).with_predicate("id > 12").emit_roaring().enable_dictionary(False).prune()
    assert result.roaring_bitmap is not None
    assert (result.roaring_bitmap.min(), result.roaring_bitmap.max()) == (2**31, 2**32 - 1)
    assert result.compile_result.diagnostics == ()


# --- Answers per row group --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "answers"),
    [
        (None, (TRUE, TRUE, TRUE, TRUE)),
        ("FALSE", (FALSE, FALSE, FALSE, FALSE)),
        ("id >= 2000", (FALSE, FALSE, TRUE, TRUE)),
        ("id >= 2500", (FALSE, FALSE, UNKNOWN, TRUE)),
        ("maybe IS NULL", (TRUE, FALSE, FALSE, FALSE)),
        ("maybe > 2500", (FALSE, FALSE, UNKNOWN, TRUE)),
        ("code = 'c00421'", (FALSE, UNKNOWN, FALSE, FALSE)),
        ("kind IN ('k11', 'k12')", (FALSE, UNKNOWN, UNKNOWN, FALSE)),
        ("id < maybe + 1", (FALSE, UNKNOWN, UNKNOWN, UNKNOWN)),
        ("abs(id) >= 0", (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)),
    ],
)
def test_each_row_group_has_an_answer(file: Path, where: str | None, answers: tuple[TriState, ...]) -> None:
    assert PruneRequest(file).with_predicate(where).prune().row_group_answers == answers


def test_each_conjunct_has_its_own_answers(file: Path) -> None:
    result = PruneRequest(file).with_predicate("id >= 1000 AND code = 'c00421' AND NOT (id >= 3000)").prune()
    assert result.conjunct_answers == {
        "id >= 1000": (FALSE, TRUE, TRUE, TRUE),
        # Bloom filters were read only for the row groups that were left.
        "code = 'c00421'": (UNKNOWN, UNKNOWN, FALSE, UNKNOWN),
        "NOT (id >= 3000)": (TRUE, TRUE, TRUE, FALSE),
    }
    assert result.row_group_answers == (FALSE, UNKNOWN, FALSE, FALSE)


def test_pages_that_all_match_prove_the_row_group(tmp_path: Path) -> None:
    path = tmp_path / "two.parquet"
    # The bounds of the row group allow `a = b`, those of its two pages do not.
    pq.write_table(
        pa.table({"a": [1] * 100 + [5] * 100, "b": [5] * 100 + [1] * 100}),
        path,
        max_rows_per_page=100,
        write_page_index=True,
    )
    result = PruneRequest(path).with_predicate("a <> b").enable_dictionary(False).prune()
    assert result.row_group_answers == (TRUE,)
    opposite = PruneRequest(path).with_predicate("a = b").enable_dictionary(False).prune()
    assert opposite.row_group_answers == (FALSE,)


# --- The words of the user --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "conjuncts"),
    [
        ("NOT (id > 5)", ["NOT (id > 5)"]),
        ("5 < id", ["5 < id"]),
        ("id < 30.5", ["id < 30.5"]),
        ("id = 1 OR id = 2", ["id = 1 OR id = 2"]),
        ("NOT (id > 5 OR maybe IS NULL)", ["NOT (id > 5 OR maybe IS NULL)"]),
        ("maybe < 9 AND id IN (1, 2) AND id <> 2", ["maybe < 9", "id IN (1, 2) AND id <> 2"]),
        ("id = maybe + 0.5 AND id > 3", ["id = maybe + 0.5", "id > 3"]),
    ],
)
def test_results_name_conjuncts_as_they_were_written(file: Path, where: str, conjuncts: list[str]) -> None:
    result = PruneRequest(file).with_predicate(where).prune()
    assert list(result.compile_result.conjuncts) == conjuncts
    assert list(result.conjunct_answers) == conjuncts
    for level in result.levels:
        assert [each.predicate for each in level.by_predicate] == conjuncts
        assert sum(each.skipped for each in level.by_predicate) == level.total - level.kept


@pytest.mark.parametrize(
    ("where", "reasons"),
    [
        ("id + 9223372036854775800 > 5", {"not computable from bounds: overflow"}),
        ("NOT (abs(id) = 5 OR length(code) = 3)", {"function on column: abs(id)", "function on column: length(code)"}),
        ("NOT (abs(id) = 5 OR abs(id) = 6)", {"function on column: abs(id)"}),
        ("code RLIKE 'c1'", {"unsupported syntax: (code RLIKE 'c1')"}),
    ],
)
def test_reasons_do_not_show_internal_expressions(file: Path, where: str, reasons: set[str]) -> None:
    result = PruneRequest(file).with_predicate(where).enable_dictionary(False).enable_bloom_filter(False).prune()
    assert {each.reason for each in result.compile_result.errors} <= reasons
    for level in result.levels:
        # A condition of several conjuncts has the reasons of all of them.
        (outcome,) = level.by_predicate
        assert outcome.unused_because is not None
        assert sorted(outcome.unused_because.split("; ")) == sorted(reasons)


# --- Bloom filter providers -------------------------------------------------------------------------------------------


class MemoryProvider:
    """Serves filters from memory, and records its calls."""

    def __init__(self, filters: Mapping[Chunk, Any]) -> None:
        self.filters = filters
        self.calls: list[list[Chunk]] = []

    def bloom_filters(self, chunks: Sequence[Chunk]) -> Mapping[Chunk, Any]:
        self.calls.append(list(chunks))
        return self.filters


class AsyncMemoryProvider:
    """Serves filters on the event loop, after other tasks had a turn."""

    def __init__(self, filters: Mapping[Chunk, Any]) -> None:
        self.filters = filters
        self.threads: list[threading.Thread] = []

    async def bloom_filters(self, chunks: Sequence[Chunk]) -> Mapping[Chunk, Any]:
        await asyncio.sleep(0)
        self.threads.append(threading.current_thread())
        return {chunk: self.filters.get(chunk) for chunk in chunks}


@pytest.fixture(scope="module")
def stored(file: Path) -> dict[Chunk, bytes]:
    """The bytes of all Bloom filters of the file: header and bitset."""
    data = file.read_bytes()
    found = {}
    for chunk, layout in read_layouts(file, "code").items():
        assert layout.bloom_filter is not None
        offset, length = layout.bloom_filter
        assert length is not None
        found[chunk] = data[offset : offset + length]
    return found


def test_a_provider_replaces_the_filters_of_a_file_and_is_called_once(file: Path, stored: dict[Chunk, bytes]) -> None:
    provider = MemoryProvider(stored)
    request = PruneRequest(pq.read_metadata(file)).with_predicate("code IN ('c00421', 'c00433')")
    result = request.with_bloom_filters(provider).enable_page_index(False).enable_dictionary(False).prune()
    assert result.row_groups == (1, 3)
    assert provider.calls == [[(0, 1), (1, 1), (2, 1), (3, 1)]]
    assert result.compile_result.diagnostics == ()
    assert result.row_group_answers == (FALSE, UNKNOWN, FALSE, UNKNOWN)


def test_a_provider_is_asked_only_for_row_groups_that_are_left(file: Path, stored: dict[Chunk, bytes]) -> None:
    provider = MemoryProvider(stored)
    request = PruneRequest(file).with_bloom_filters(provider)
    assert request.with_predicate("id >= 2000 AND code = 'c00422'").prune().row_groups == (2,)
    assert provider.calls == [[(2, 1), (3, 1)]]
    request.with_predicate("id > 5").prune()
    request.with_predicate("code = 'c00421'").enable_bloom_filter(False).prune()
    assert len(provider.calls) == 1


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, pa.py_buffer, "filter", None])
def test_filters_may_have_any_form_or_be_missing(file: Path, stored: dict[Chunk, bytes], kind: Any) -> None:
    if kind == "filter":
        filters: Mapping[Chunk, Any] = {chunk: each for chunk, each in read_filters(file).items() if chunk[1] == 1}
        assert all(isinstance(each, BloomFilter) for each in filters.values())
    else:
        filters = {chunk: kind(content) for chunk, content in stored.items()} if kind else {(0, 1): None}
    request = PruneRequest(file).with_predicate("code = 'c00421'").enable_dictionary(False).enable_page_index(False)
    result = request.with_bloom_filters(MemoryProvider(filters)).prune()
    assert result.row_groups == ((1,) if kind else (0, 1, 2, 3))


def test_a_damaged_filter_of_a_provider_excludes_nothing(file: Path, stored: dict[Chunk, bytes]) -> None:
    filters = {chunk: content[:-32] if chunk[0] == 0 else content for chunk, content in stored.items()}
    request = PruneRequest(file).with_predicate("code = 'c00421'").enable_page_index(False).enable_dictionary(False)
    assert request.with_bloom_filters(MemoryProvider(filters)).prune().row_groups == (0, 1)


@pytest.mark.parametrize(
    ("provider", "text"),
    [
        (object(), r"bloom_filters must be a provider with a method bloom_filters\(chunks\), found an object"),
        (MemoryProvider([]), "must return a mapping .* found a list"),  # type: ignore[arg-type]
        (MemoryProvider({(0, 1): "text"}), "column 1 by MemoryProvider must be a BloomFilter or bytes, found a str"),
        (AsyncMemoryProvider({}), r"AsyncMemoryProvider is asynchronous: await prune_async\(\)"),
    ],
)
def test_a_wrong_provider_is_an_error(file: Path, provider: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        PruneRequest(file).with_predicate("code = 'c00421'").with_bloom_filters(provider).prune()


def test_a_wrong_bitset_is_an_error() -> None:
    with pytest.raises(InvalidArgument, match="has 5 bytes, expected a multiple of 32"):
        BloomFilter.from_bytes(b"12345")


def test_prune_async_awaits_an_asynchronous_provider_on_its_loop(file: Path, stored: dict[Chunk, bytes]) -> None:
    provider = AsyncMemoryProvider(stored)
    request = PruneRequest(pq.read_metadata(file)).with_predicate("code = 'c00421'").with_bloom_filters(provider)
    result = asyncio.run(request.prune_async())
    assert result.row_groups == (1,)
    assert provider.threads == [threading.current_thread()]


def test_prune_async_prunes_like_prune(file: Path, rows: pa.Table, stored: dict[Chunk, bytes]) -> None:
    async def prune_many() -> list[PruneResult]:
        pruner = Pruner(rows.schema, "code = 'c00421'")
        return await asyncio.gather(
            pruner.prune_async(file),
            pruner.prune_async(file, bloom_filters=MemoryProvider(stored)),
            pruner.prune_async(file, bloom_filters=AsyncMemoryProvider(stored)),
            pruner.prune_async(pq.read_metadata(file), data_file=file),
        )

    expected = PruneRequest(file).with_predicate("code = 'c00421'").prune().row_selection
    assert [result.row_selection for result in asyncio.run(prune_many())] == [expected] * 4


class WaitingProvider:
    """Blocks its thread until the event loop has made progress."""

    def __init__(self) -> None:
        self.has_started, self.may_go_on = threading.Event(), threading.Event()

    def bloom_filters(self, chunks: Sequence[Chunk]) -> Mapping[Chunk, Any]:
        self.has_started.set()
        assert self.may_go_on.wait(60), "the event loop was blocked"
        return {}


def test_prune_async_does_not_block_the_event_loop(file: Path) -> None:
    provider = WaitingProvider()

    async def prune_while_working() -> PruneResult:
        pruning = asyncio.create_task(
            PruneRequest(file).with_predicate("code = 'c00421'").with_bloom_filters(provider).prune_async()
        )
        await asyncio.to_thread(provider.has_started.wait, 60)
        provider.may_go_on.set()
        return await pruning

    assert asyncio.run(prune_while_working()).row_groups


class FailingProvider:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def bloom_filters(self, chunks: Sequence[Chunk]) -> Mapping[Chunk, Any]:
        raise self.error


class AsyncFailingProvider(FailingProvider):
    async def bloom_filters(self, chunks: Sequence[Chunk]) -> Mapping[Chunk, Any]:  # type: ignore[override]
        raise self.error


class FailingMapping(dict[Chunk, Any]):
    def get(self, key: Any, default: Any = None) -> Any:
        raise LookupError("no filters today")


def prune_with(file: Path, provider: Any, *, is_async: bool = False) -> PruneResult:
    request = PruneRequest(file).with_predicate("code = 'c00421'").with_bloom_filters(provider)
    return asyncio.run(request.prune_async()) if is_async else request.prune()


@pytest.mark.parametrize(
    ("make", "is_async"), [(FailingProvider, False), (FailingProvider, True), (AsyncFailingProvider, True)]
)
@pytest.mark.parametrize("error", [LookupError("no filters today"), pa.ArrowInvalid("no"), ZeroDivisionError()])
def test_an_error_of_a_provider_names_the_provider(
    file: Path, make: type[FailingProvider], is_async: bool, error: Exception
) -> None:
    text = rf"^{make.__name__} could not return the Bloom filters of .* \(0, 1\), .*: {type(error).__name__}"
    with pytest.raises(EngineError, match=text) as caught:
        prune_with(file, make(error), is_async=is_async)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("make", "is_async"), [(FailingProvider, False), (FailingProvider, True), (AsyncFailingProvider, True)]
)
def test_errors_of_tamis_pass_through_a_provider(file: Path, make: type[FailingProvider], is_async: bool) -> None:
    error = MissingFile("the sidecar file is gone")
    with pytest.raises(MissingFile) as caught:
        prune_with(file, make(error), is_async=is_async)
    assert caught.value is error


def test_an_interrupt_passes_through_a_provider(file: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        prune_with(file, FailingProvider(KeyboardInterrupt()))


@pytest.mark.parametrize("make", [MemoryProvider, AsyncMemoryProvider])
def test_a_mapping_of_a_provider_that_fails_names_the_provider(file: Path, make: Any) -> None:
    with pytest.raises(EngineError, match=rf"^{make.__name__} could not return the Bloom filters") as caught:
        prune_with(file, make(FailingMapping()), is_async=make is AsyncMemoryProvider)
    assert isinstance(caught.value.__cause__, LookupError)


def test_a_wrong_filter_of_an_asynchronous_provider_names_the_provider(file: Path) -> None:
    with pytest.raises(InvalidArgument, match="column 1 by AsyncMemoryProvider must be a BloomFilter or bytes"):
        prune_with(file, AsyncMemoryProvider({(0, 1): "text"}), is_async=True)


def test_bytes_with_gaps_of_a_provider_are_an_error(file: Path) -> None:
    filters = {(0, 1): memoryview(bytes(64))[::2]}
    with pytest.raises(EngineError, match=r"^MemoryProvider could not return the Bloom filters"):
        prune_with(file, MemoryProvider(filters))


class EndlessProvider:
    def __init__(self) -> None:
        self.has_started, self.was_cancelled = asyncio.Event(), False

    async def bloom_filters(self, chunks: Sequence[Chunk]) -> Mapping[Chunk, Any]:
        self.has_started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return {}


def test_a_cancelled_prune_cancels_its_provider(file: Path) -> None:
    async def cancel() -> bool:
        provider = EndlessProvider()
        request = PruneRequest(file).with_predicate("code = 'c00421'").with_bloom_filters(provider)
        pruning = asyncio.create_task(request.prune_async())
        await provider.has_started.wait()
        pruning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pruning
        await asyncio.sleep(0)
        return provider.was_cancelled

    assert asyncio.run(cancel())


def test_filters_in_the_file_are_read_in_one_round_for_all_row_groups(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[int] = []
    plainly = RangedFile.read

    def read(self: RangedFile, ranges: Any, **options: Any) -> list[pa.Buffer]:
        rounds.append(len(ranges))
        return plainly(self, ranges, **options)

    monkeypatch.setattr(RangedFile, "read", read)
    request = PruneRequest(file).with_predicate("code = 'c00421'").enable_page_index(False).enable_dictionary(False)
    assert request.prune().row_groups == (1,)
    with_filters = [ranges for ranges in rounds if ranges]
    assert len(with_filters) <= 1 + 1, "the footer, and one round for the filters of all row groups"
    assert max(with_filters) >= 4


def test_errors_are_tamis_errors(file: Path) -> None:
    with pytest.raises(TamisError):
        asyncio.run(PruneRequest(file).with_predicate("nope = 1").prune_async())


class CountingHandler(ArrowExpressionHandler):
    """Arrow's handler, which counts what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def predicate_evaluator(self, schema: pa.Schema, predicate: Any) -> Any:
        self.asked.append(predicate)
        return super().predicate_evaluator(schema, predicate)


def test_a_handler_evaluates_every_level_and_answer(file: Path) -> None:
    handler, expected = CountingHandler(), PruneRequest(file, predicate="id < 1500 AND kind = 'k10'").prune()
    for result in (
        PruneRequest(file, predicate="id < 1500 AND kind = 'k10'", handler=handler).prune(),
        Pruner(pq.read_schema(file), "id < 1500 AND kind = 'k10'", handler=handler).prune(file),
    ):
        assert result.row_selection == expected.row_selection
        asked = len(handler.asked)
        assert asked > 0
        assert result.conjunct_answers == expected.conjunct_answers
        assert len(handler.asked) > asked
    with pytest.raises(InvalidArgument, match="handler must be an ExpressionHandler"):
        PruneRequest(file, predicate="id < 5", handler=5).prune()  # type: ignore[arg-type]

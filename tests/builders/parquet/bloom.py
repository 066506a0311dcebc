"""Bloom filters of real files, and the row groups that they keep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tamis.io.storage import Storage, open_storage
from tamis.parquet.footer.chunks import ChunkLayout, read_chunk_layouts
from tamis.parquet.footer.leaves import Leaf, get_file_schema
from tamis.parquet.indexes.bloom_pruning import BloomQuestions, Chunk, Found, read_bloom_filters
from tamis.skipping.membership import collect_questions
from tamis.skipping.predicate import make_predicate
from tamis.skipping.prune import prune


def read_leaves(path: Path) -> dict[str, Leaf]:
    """Return the leaves of a file by their dotted names."""
    return {".".join(name): leaf for name, leaf in get_file_schema(pq.read_metadata(path)).leaves.items()}


def read_layouts(path: Path, *columns: str) -> dict[Chunk, ChunkLayout]:
    """Return the layouts of the column chunks of some columns, or of all."""
    data = path.read_bytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    leaves = [leaf.index for name, leaf in read_leaves(path).items() if not columns or name in columns]
    return read_chunk_layouts(footer, leaves, None, len(data), str(path))


def read_filters(
    path: Path,
    layouts: Mapping[Chunk, ChunkLayout] | None = None,
    hashes: Mapping[int, Any] | None = None,
    storage: Storage | None = None,
) -> dict[Chunk, Found]:
    found: dict[Chunk, Found] = {}
    wanted = read_layouts(path) if layouts is None else layouts
    for batch in read_bloom_filters(storage or open_storage(path.parent), str(path), wanted, hashes):
        found |= batch
    return found


def list_kept_row_groups(path: Path, where: str, schema: pa.Schema | None = None) -> list[int]:
    """Return the row groups that Bloom filters alone keep. `schema` is that of the table."""
    metadata = pq.read_metadata(path)
    row_groups = range(metadata.num_row_groups)
    questioned = collect_questions(make_predicate(where, schema or pq.read_schema(path), "t").expr)
    questions = BloomQuestions.of(questioned.questions).for_file(get_file_schema(metadata).leaves)
    layouts = {chunk: each for chunk, each in read_layouts(path).items() if chunk[1] in questions.leaves}
    filters = read_filters(path, layouts, questions.hashes)
    rows = pa.array([metadata.row_group(group).num_rows for group in row_groups], pa.int64())
    batch = pa.record_batch({"row_count": rows} | questions.find_answers(filters, row_groups))
    selected = prune(batch, questioned.conjuncts).selection.to_pylist()
    return [group for group, keeps in zip(row_groups, selected, strict=True) if keeps]

"""Manifests read and pruned in an engine's executors: the function that runs there, and what it sends back.

What an executor needs travels as data: schema and specs of the table, the filter, and where the manifests are.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple

import pyarrow as pa

from tamis import types
from tamis.errors import counted
from tamis.io.storage import Storage
from tamis.tables.iceberg.account import Account
from tamis.tables.iceberg.file_request import Request
from tamis.tables.iceberg.files import FilePruner, Manifest
from tamis.tables.jobs import Arguments, Engine, Item, Job, storage_arguments

FUNCTION = "tamis.tables.iceberg.manifest_job:prune_piece"


def prune_in(
    engine: Engine,
    storage: Storage,
    request: Request,
    compared: Collection[int],
    pieces: Sequence[Sequence[Manifest]],
    name: str,
) -> list[tuple[pa.Table, Account]]:
    """What `FilePruner.prune` finds in each piece."""
    arguments = {**storage_arguments(storage), "request": request.to_json(), "compared": list(compared)}
    what = f"read {counted(sum(map(len, pieces)), 'manifest')} of {name}"
    schema = _schema(FilePruner(request, compared))
    job = Job(FUNCTION, arguments, schema, what, storage.counters)
    sizes = [sum(max(each.length, 0) for each in piece) for piece in pieces]
    items = [Item.of_json([astuple(each) for each in piece], size) for piece, size in zip(pieces, sizes, strict=True)]
    batches: list[list[pa.RecordBatch]] = [[] for _ in pieces]
    for number, batch in engine.run(job, items):
        batches[number].append(batch)
    return [_found(own, schema) for own in batches]


def prune_piece(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """The files of some manifests of one spec that may hold a matching row."""
    pruner = arguments.once(_pruner)
    table, account = pruner.prune(arguments.storage, [Manifest(*each) for each in json.loads(item)])
    schema = _schema(pruner)
    told = pa.array([json.dumps(account.to_json())], types.STRING)
    yield pa.record_batch([told, pa.nulls(1, schema.field("files").type)], schema=schema)
    for batch in table.to_batches():
        files = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        yield pa.record_batch([pa.nulls(batch.num_rows, types.STRING), files], schema=schema)


def _pruner(arguments: Arguments) -> FilePruner:
    return FilePruner(Request.from_json(arguments["request"]), arguments["compared"])


def _schema(pruner: FilePruner) -> pa.Schema:
    return pa.schema([("account", types.STRING), ("files", pa.struct(list(pruner.schema)))])


def _found(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> tuple[pa.Table, Account]:
    """What came back of a piece: its first batch is the account."""
    account = Account.from_json(json.loads(batches[0].column("account")[0].as_py()))
    own = pa.schema(list(schema.field("files").type))
    files = [pa.record_batch(batch.column("files").flatten(), schema=own) for batch in batches[1:]]
    return pa.Table.from_batches(files, own), account

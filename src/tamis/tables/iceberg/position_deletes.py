"""Files of position deletes: rows of a path and a position, for any number of data files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile
from tamis.parquet.field_names import FieldName, FieldNames
from tamis.tables.iceberg.data_files import DataFile

PATH_ID, POSITION_ID = 2147483546, 2147483545
"""The ids that Iceberg reserves for the two columns."""

_SCHEMA = pa.schema([("file_path", types.STRING), ("pos", types.LONG)])
_BY_NAME = FieldNames({name: FieldName(name) for name in _SCHEMA.names}, by_id=False)
_NAMES = FieldNames({PATH_ID: FieldName("file_path"), POSITION_ID: FieldName("pos")}, by_id=True, without_ids=_BY_NAME)


@dataclass(frozen=True, eq=False)
class PositionDeletes:
    """The positions that a file deletes, those of one data file one after the other."""

    paths: pa.Array
    """As the table's manifests write them: each once."""
    starts: npt.NDArray[np.int64]
    """Where the positions of each path begin, and the end of all."""
    positions: npt.NDArray[np.int64]

    @staticmethod
    def read(file: DataFile) -> PositionDeletes:
        """All of a file of deletes, in whatever format."""
        batches = list(file.read(_SCHEMA, _NAMES, must_have_all=True))
        table = pa.Table.from_batches(batches, _SCHEMA)
        if table["pos"].null_count or table["file_path"].null_count:
            raise CorruptFile(f"'{file.place}' deletes rows without saying which: it is damaged")
        positions = np.asarray(table["pos"].combine_chunks())
        if len(positions) and positions.min() < 0:
            raise CorruptFile(f"'{file.place}' deletes row {positions.min()}: it is damaged")
        encoded = table["file_path"].combine_chunks().dictionary_encode()
        codes = np.asarray(encoded.indices)
        counts = np.bincount(codes, minlength=len(encoded.dictionary))
        return PositionDeletes(
            encoded.dictionary,
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            positions[np.argsort(codes, kind="stable")],
        )

    @property
    def nbytes(self) -> int:
        return int(self.paths.nbytes + self.starts.nbytes + self.positions.nbytes)

    def of_paths(self, paths: pa.Array) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Which of some data files have deleted rows, by their indices, and the positions of those."""
        found = pc.index_in(paths, value_set=self.paths)
        places = np.flatnonzero(np.asarray(found.is_valid()))
        numbers = found.drop_null().to_numpy()
        for place, start, end in zip(
            places.tolist(), self.starts[numbers].tolist(), self.starts[numbers + 1].tolist(), strict=True
        ):
            yield place, self.positions[start:end]

"""Position delete files: rows of a file path and a row position, for any number of data files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile
from tamis.parquet.field_names import ColumnMapping, MappedField
from tamis.tables.iceberg.data_files import DataFile

PATH_ID, POSITION_ID = 2147483546, 2147483545
"""The reserved field ids of the two columns."""

_SCHEMA = pa.schema([("file_path", types.STRING), ("pos", types.LONG)])
_BY_NAME = ColumnMapping({name: MappedField(name) for name in _SCHEMA.names}, by_id=False)
_NAMES = ColumnMapping(
    {PATH_ID: MappedField("file_path"), POSITION_ID: MappedField("pos")}, by_id=True, without_ids=_BY_NAME
)


@dataclass(frozen=True, eq=False)
class PositionDeletes:
    """The deleted positions of a position delete file, grouped by data file."""

    paths: pa.Array
    """The distinct data file paths, as in the manifests."""
    starts: npt.NDArray[np.int64]
    """The offset of each path's first position, and the end of the last."""
    positions: npt.NDArray[np.int64]

    @staticmethod
    def read(file: DataFile) -> PositionDeletes:
        """Read a position delete file of any format."""
        batches = list(file.read(_SCHEMA, _NAMES, must_have_all=True))
        table = pa.Table.from_batches(batches, _SCHEMA)
        if table["pos"].null_count or table["file_path"].null_count:
            raise CorruptFile(
                f"'{file.location}' has position deletes without a path or a position: the file is damaged"
            )
        positions = np.asarray(table["pos"].combine_chunks())
        if len(positions) and positions.min() < 0:
            raise CorruptFile(f"'{file.location}' deletes row {positions.min()}: the file is damaged")
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

    def find_positions(self, paths: pa.Array) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Yield the index of each data file that has deleted rows, and their positions."""
        found = pc.index_in(paths, value_set=self.paths)
        indices = np.flatnonzero(np.asarray(found.is_valid()))
        numbers = found.drop_null().to_numpy()
        for index, start, end in zip(
            indices.tolist(), self.starts[numbers].tolist(), self.starts[numbers + 1].tolist(), strict=True
        ):
            yield index, self.positions[start:end]

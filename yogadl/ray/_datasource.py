"""Data sets of yogadl, read as data sets of Ray Data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from yogadl.chunk_sizes import ChunkSize
from yogadl.dataref import IndexedDataRef
from yogadl.errors import InvalidArgumentError
from yogadl.extras import require
from yogadl.ray._tables import check_columns, table_of

ray: Any = require("ray", "ray")
data: Any = require("ray.data", "ray")
BlockMetadata: Any = require("ray.data.block", "ray").BlockMetadata

_ROWS = ChunkSize(16 << 20, 65536)
"""Read at once; Ray joins small blocks."""


class DataRefDatasource(data.Datasource):  # type: ignore[misc] # Ray has types of its own
    """The records of a DataRef, for ``ray.data.read_datasource``; see :func:`read`.

    Args:
        dataref: of any kind that can be pickled; what it refers to has to be there on every node.
        shuffle_seed: see :func:`read`.

    Raises:
        InvalidArgumentError: it is no DataRef whose records can be read by position, or the seed is
            out of range.
        UnsupportedTypeError: a component of the records has no type in Arrow.
    """

    def __init__(self, dataref: IndexedDataRef, *, shuffle_seed: int | None = None) -> None:
        super().__init__()
        if not isinstance(dataref, IndexedDataRef):
            raise InvalidArgumentError(
                f"read takes a DataRef whose records can be read by position, as fetch returns, "
                f"not a {type(dataref).__name__}"
            )
        check_columns(dataref.spec)
        if shuffle_seed is not None:
            stream = dataref.stream(shuffle=True, shuffle_seed=shuffle_seed)
            dataref = dataref.select(stream.epochs.positions(0, 0, len(dataref)))
        self._dataref = dataref

    def get_name(self) -> str:
        """What Ray calls its tasks."""
        return "Yogadl"

    def estimate_inmemory_data_size(self) -> int:
        """Bytes of all records."""
        return len(self._dataref) * self._dataref.reader.record_bytes

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: Any = None,
    ) -> list[Any]:
        """Tasks that each read a range of positions, in order."""
        del data_context
        count = len(self._dataref)
        bounds = np.linspace(0, count, max(1, min(parallelism, count)) + 1).astype(int).tolist()
        schema = table_of(self._dataref.spec, self._dataref.read([])).schema
        record_bytes = self._dataref.reader.record_bytes
        # Once for all tasks, since it may have a long list of positions.
        ref = ray.put(self._dataref)
        tasks = []
        for start, stop in itertools.pairwise(bounds):
            rows = stop - start
            metadata = BlockMetadata(
                num_rows=rows,
                size_bytes=rows * record_bytes,
                input_files=None,
                exec_stats=None,
            )
            tasks.append(
                data.ReadTask(
                    partial(_read, ref, start, stop), metadata, schema, per_task_row_limit
                )
            )
        return tasks


def _read(ref: Any, start: int, stop: int) -> Iterator[Any]:
    """The tables of some records, in a task of Ray."""
    with ray.get(ref) as dataref:
        rows = _ROWS.of(max(1, dataref.reader.record_bytes))
        for at in range(start, max(stop, start + 1), rows):
            yield table_of(dataref.spec, dataref.read(np.arange(at, min(at + rows, stop))))


def read(
    dataref: IndexedDataRef,
    *,
    shuffle_seed: int | None = None,
    override_num_blocks: int | None = None,
    **options: Any,
) -> Any:
    """A ``ray.data.Dataset`` of the records of a DataRef, in its order.

    Each read task reads a range of positions, on whatever node; there, the DataRef is opened anew,
    as when it is pickled. Records that are dicts have their keys as columns. Those that are
    tuples have ``"0"``, ``"1"`` and so on, any others the one column ``"item"``.

    Args:
        dataref: what ``fetch`` or ``cacheable`` returns, or a slice, a selection, a concatenation
            of such.
        shuffle_seed: read in the order of the first epoch of
            ``dataref.stream(shuffle=True, shuffle_seed=…)`` instead, a shuffle of all records. Give
            another seed for another epoch.
        override_num_blocks: how many read tasks there are; Ray decides without.
        options: any others of ``ray.data.read_datasource``, such as ``num_cpus``.

    Returns:
        A data set that Ray reads when it is used. It keeps its order:
        ``dataset.context.execution_options.preserve_order`` is set, for it and what is made of it.

    Raises:
        InvalidArgumentError: it is no DataRef whose records can be read by position, or the seed is
            out of range.
        UnsupportedTypeError: a component of the records has no type in Arrow.
    """
    source = DataRefDatasource(dataref, shuffle_seed=shuffle_seed)
    dataset = data.read_datasource(source, override_num_blocks=override_num_blocks, **options)
    dataset.context.execution_options.preserve_order = True
    return dataset

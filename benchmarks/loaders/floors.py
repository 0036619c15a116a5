"""What a loader can be at best: bare copies, TensorFlow by itself, the disk by itself.

Every function takes a workload, an empty directory and the seconds it may take.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Iterable
from typing import Any

import disk
import numpy as np
import tensorflow as tf
import workloads
from workloads import Workload

from loaders import BATCH, Unsupported

Result = dict[str, Any]
_REPEATS = 3
_READY_BYTES = 64 << 20


def copyto(workload: Workload, directory: pathlib.Path, seconds: float) -> Result:
    """Batches copied in shuffled order from plain mapped files, one file per field.

    Arrays are copied record by record with ``np.copyto``; a batch of scalars is one ``take``.
    """
    if not workload.is_static:
        raise Unsupported("records differ in size")
    arrays = _mapped_fields(workload, directory)
    batch = {
        name: np.empty((BATCH, *array.shape[1:]), array.dtype) for name, array in arrays.items()
    }
    order = np.random.default_rng(0).permutation(workload.count)
    chunks = [order[at : at + BATCH] for at in range(0, len(order), BATCH)]

    def epoch() -> Iterable[None]:
        for chunk in chunks:
            for name, array in arrays.items():
                if array.ndim == 1:
                    np.take(array, chunk, out=batch[name][: len(chunk)])
                    continue
                for place, number in zip(batch[name], chunk.tolist(), strict=False):
                    np.copyto(place, array[number])
            yield

    rates = [_rate(epoch(), seconds / _REPEATS) for _ in range(_REPEATS + 1)]
    return {"records_per_second": max(rates[1:])}


def _mapped_fields(workload: Workload, directory: pathlib.Path) -> dict[str, Any]:
    """The workload's fields in files, mapped."""
    written: dict[str, Any] = {}
    for name, field in workload.fields.items():
        path = directory / f"{name.replace('/', '.')}.npy"
        written[name] = np.lib.format.open_memmap(
            path, "w+", np.dtype(field.dtype), (workload.count, *field.shape)
        )
    for number, record in enumerate(workload.records()):
        for name, value in record.items():
            written[name][number] = value
    disk.sync(directory)
    disk.fill_cache(directory)
    return {name: np.load(array.filename, mmap_mode="r") for name, array in written.items()}


def tf_ready(workload: Workload, directory: pathlib.Path, seconds: float) -> Result:
    """How fast ``tf.data`` hands out batches that are ready, the same one or different ones.

    Of records that differ in size, padded and ragged ones.
    """
    del directory
    if not any(None in field.shape for field in workload.fields.values()):
        found = {"batches": _ready_rate(workload, seconds, "batches")}
    else:
        found = {way: _ready_rate(workload, seconds, way) for way in ("padded", "ragged")}
    return {"records_per_second": max(found.values()), "ways": found}


def _ready_rate(workload: Workload, seconds: float, way: str) -> float:
    size = workload.record_bytes(workload.record(0))
    count = max(min(_READY_BYTES // (size * BATCH), 64), 1)
    ready = [_tensors(workload, range(at * BATCH, (at + 1) * BATCH), way) for at in range(count)]
    rates = [_best_rate(tf.data.Dataset.from_tensors(ready[0]).repeat(), seconds)]
    if workload.is_static:
        stacked = tf.nest.map_structure(lambda *values: tf.stack(values), *ready)
        slices = tf.data.Dataset.from_tensor_slices(stacked).repeat()
        rates.append(_best_rate(slices, seconds))
    return max(rates)


def _tensors(workload: Workload, numbers: Iterable[int], way: str) -> Any:
    """A batch of records as tensors; padded or ragged where they differ in size."""
    records = [workload.record(number) for number in numbers]
    columns = {}
    for name, field in workload.fields.items():
        values = [record[name] for record in records]
        if None in field.shape:
            lengths = [len(value) for value in values]
            ragged = tf.RaggedTensor.from_row_lengths(np.concatenate(values), lengths)
            columns[name] = ragged.to_tensor() if way == "padded" else ragged
        else:
            columns[name] = tf.constant(values if field.dtype == "bytes" else np.stack(values))
    return workloads.nest(columns)


def write_fsync(workload: Workload, directory: pathlib.Path, seconds: float) -> Result:
    """As many bytes as the workload has, from memory, in large writes, and an fsync."""
    del seconds
    path = directory / "written"
    elapsed = disk.sequential_write(path, workload.total_bytes())
    path.unlink()
    return {
        "records_per_second": workload.count / elapsed,
        "bytes_per_second": workload.total_bytes() / elapsed,
    }


def random_reads(workload: Workload, directory: pathlib.Path, seconds: float) -> Result:
    """Direct random reads of blocks that a record fits in, from a file as large as the workload."""
    path = directory / "blocks"
    size = workload.total_bytes()
    block = -(-size // workload.count // disk.PAGE) * disk.PAGE
    disk.sequential_write(path, size)
    try:
        return disk.random_reads(path, block, seconds)
    except OSError as error:
        raise Unsupported(f"no direct reads here: {error}") from error
    finally:
        path.unlink()


def _best_rate(batches: Iterable[Any], seconds: float) -> float:
    return max(_rate(batches, seconds / _REPEATS) for _ in range(_REPEATS))


def _rate(batches: Iterable[Any], seconds: float) -> float:
    """Records per second of reading batches, for so many seconds at most."""
    started = time.perf_counter()
    deadline = started + seconds
    count = 0
    for count, _batch in enumerate(batches, 1):  # noqa: B007
        if time.perf_counter() > deadline:
            break
    return count * BATCH / (time.perf_counter() - started)


FLOORS: dict[str, Callable[[Workload, pathlib.Path, float], Result]] = {
    "copyto": copyto,
    "tf_ready": tf_ready,
    "write_fsync": write_fsync,
    "random_reads": random_reads,
}

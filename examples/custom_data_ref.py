"""A DataRef of one's own: records that are files of their own, read when they are needed.

Usage: python examples/custom_data_ref.py
"""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

import yogadl
import yogadl.tensorflow


# INCLUDE-START dataref
class ArrayFilesDataRef(yogadl.DataRef):
    """The arrays of a folder's ``.npy`` files, all of one dtype and shape."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._paths = sorted(folder.glob("*.npy"))
        example = np.load(self._paths[0])
        self._type, self._shape = tf.as_dtype(example.dtype), tf.TensorShape(example.shape)

    def __len__(self) -> int:
        return len(self._paths)

    def stream(
        self,
        start_offset: int = 0,
        shuffle: bool = False,
        skip_shuffle_at_epoch_end: bool = False,
        shuffle_seed: int | None = None,
        shard_rank: int = 0,
        num_shards: int = 1,
        drop_shard_remainder: bool = False,
    ) -> yogadl.Stream:
        keys = yogadl.shard_keys(
            self._paths, shard_rank, num_shards, drop_shard_remainder=drop_shard_remainder
        )
        generator = yogadl.GeneratorFromKeys(
            keys=keys,
            initial_offset=start_offset,
            read_val_from_key_fn=np.load,
            shuffle_at_start=shuffle,
            shuffle_after_epoch=shuffle and not skip_shuffle_at_epoch_end,
            shuffle_seed=shuffle_seed,
        )
        return yogadl.Stream(
            iterator_fn=generator.instantiate_generator,
            length=len(keys),
            output_types=self._type,
            output_shapes=self._shape,
        )


# INCLUDE-END dataref


def write_files(folder: pathlib.Path, count: int) -> None:
    for number in range(count):
        np.save(folder / f"{number:04}.npy", np.array([number, number**2], "int64"))


def show(name: str, dataset: Any) -> None:
    for epoch in range(2):
        rows = [batch.numpy().tolist() for batch in dataset]
        print(f"{name}, epoch {epoch}: {rows}")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        write_files(pathlib.Path(directory), 7)
        # INCLUDE-START use
        dataref = ArrayFilesDataRef(pathlib.Path(directory))
        for rank in range(2):
            stream = dataref.stream(
                start_offset=1, shuffle=True, shuffle_seed=5, shard_rank=rank, num_shards=2
            )
            dataset = yogadl.tensorflow.make_tf_dataset(stream, batch_size=2)
            show(f"Shard {rank}", dataset)
        # INCLUDE-END use


if __name__ == "__main__":
    main()

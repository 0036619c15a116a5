"""The data of the examples of PyTorch, Keras, JAX and distributed training: digits, in a cache."""

from __future__ import annotations

from typing import Any

import sklearn.datasets

import yogadl
import yogadl.storage


def digits(storage_dir: str) -> Any:
    """scikit-learn's 1,797 digits: image float32 [64] in 0 … 1, label and number int64.

    Whichever process comes first builds the cache; the others wait and read it.
    """
    storage = yogadl.storage.LFSStorage(storage_dir)

    @storage.cacheable("digits", "1.0")
    def make_records() -> Any:
        found = sklearn.datasets.load_digits()
        images = (found.data / 16).astype("float32")
        for number, (image, label) in enumerate(zip(images, found.target, strict=True)):
            yield {"image": image, "label": label, "number": number}

    return make_records()

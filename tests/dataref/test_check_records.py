"""``check_records=True``: a damaged record is an error, whichever way it is read."""

from __future__ import annotations

import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import yogadl.storage
from yogadl.dataref import LMDBDataRef
from yogadl.errors import ChecksumError

RECORDS = {
    "inside leaves": [np.full(4, number) for number in range(50)],
    "on pages of their own": [np.full(1000, number) for number in range(50)],
    "of varying size": [{"text": f"record {number}"} for number in range(50)],
}
DAMAGED = 33

READERS: dict[str, Callable[[LMDBDataRef], Any]] = {
    "one": lambda ref: ref[DAMAGED],
    "many": lambda ref: ref.read([1, DAMAGED]),
    "stream": lambda ref: list(ref.stream(shuffle=True, shuffle_seed=1)),
    "pickled": lambda ref: pickle.loads(pickle.dumps(ref))[DAMAGED],
}


def damaged(kind: str, storage_dir: pathlib.Path) -> yogadl.storage.LFSStorage:
    storage = yogadl.storage.LFSStorage(yogadl.storage.LFSConfigurations(storage_dir))
    storage.submit(RECORDS[kind], "a", "1")
    path = storage_dir / "a/1/cache.mdb"
    with storage.fetch("a", "1") as ref:
        value = bytes(ref.reader.read_value(DAMAGED))  # type: ignore[attr-defined]
    content = bytearray(path.read_bytes())
    content[content.index(value) + len(value) - 9] ^= 4
    path.write_bytes(content)
    return storage


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize("way", READERS)
def test_damage_is_an_error_when_asked_for(way: str, kind: str, storage_dir: pathlib.Path) -> None:
    storage = damaged(kind, storage_dir)
    with storage.fetch("a", "1", check_records=True) as ref:
        with pytest.raises(ChecksumError, match=f"record {DAMAGED} is not what was written"):
            READERS[way](ref)
        assert len(ref.read([0, 1, 2])) >= 1
    with storage.fetch("a", "1") as ref:
        READERS[way](ref)


def test_damage_stops_a_tf_dataset(storage_dir: pathlib.Path) -> None:
    tf = pytest.importorskip("tensorflow")
    ref = damaged("on pages of their own", storage_dir).fetch("a", "1", check_records=True)
    dataset = yogadl.tensorflow.make_tf_dataset(ref.stream(), batch_size=10)
    with pytest.raises(tf.errors.OpError, match=f"record {DAMAGED} is not what was written"):
        list(dataset)

"""Versions of runs and of column groups in TensorFlow: the same batches as of one file."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from strategies import same
from versioned import chosen, write_groups, write_parts, write_plain, write_runs

from yogadl.dataref import LMDBDataRef
from yogadl.spec import TensorSpec
from yogadl.tensorflow import make_tf_dataset

FIXED = {"image": TensorSpec("float32", (5, 7)), "label": TensorSpec("int32")}
VARYING = {"image": TensorSpec("float32", (None, 7)), "label": TensorSpec("int32")}
RUNS = [(1, 3, 40), (0, 0, 2), (2, 5, 1), (1, 0, 10), (2, 4, 3), (0, 30, 19)]


def rows(spec: Any, count: int = 150) -> list[Any]:
    fixed = spec["image"].shape[0]
    return [{"image": np.full((fixed or n % 4, 7), n, "f4"), "label": n} for n in range(count)]


def batches(ref: LMDBDataRef, **order: Any) -> list[Any]:
    dataset = make_tf_dataset(ref.stream(**order), batch_size=8, pad=0)
    return list(dataset.as_numpy_iterator())


@pytest.mark.parametrize("spec", [FIXED, VARYING], ids=["fixed", "varying"])
def test_runs(tmp_path: pathlib.Path, spec: Any) -> None:
    path, records = tmp_path / "a" / "runs" / "cache.mdb", rows(spec)
    parts = [records[:50], records[50:100], records[100:]]
    one = write_plain(tmp_path / "a" / "one" / "cache.mdb", spec, chosen(parts, RUNS))
    many = write_runs(path, spec, write_parts(path, spec, parts), RUNS)
    for order in ({}, {"shuffle": True, "shuffle_seed": 2, "start_offset": 5}):
        assert same(batches(many, **order), batches(one, **order))


@pytest.mark.parametrize("spec", [FIXED, VARYING], ids=["fixed", "varying"])
def test_groups(tmp_path: pathlib.Path, spec: Any) -> None:
    path, records = tmp_path / "a" / "groups" / "cache.mdb", rows(spec)
    one = write_plain(tmp_path / "a" / "one" / "cache.mdb", spec, records)
    image, label = ({name: spec[name]} for name in ("image", "label"))
    images = [{"image": record["image"]} for record in records]
    labels = [{"label": record["label"]} for record in reversed(records)]
    groups = [
        (image, write_parts(path, image, [images[:50], images[50:]]), [(0, 0, 50), (1, 0, 100)]),
        (label, write_parts(path, label, [labels]), [(0, 149 - n, 1) for n in range(150)]),
    ]
    many = write_groups(path, spec, groups, [(0, 0), (1, 0)])
    for order in ({}, {"shuffle": True, "shuffle_seed": 2, "start_offset": 5}):
        assert same(batches(many, **order), batches(one, **order))

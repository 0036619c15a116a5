"""Which tensors arrays become."""

from __future__ import annotations

import pathlib
import pickle
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("torch.utils.data", reason="needs PyTorch")

from torch.utils.data import default_collate  # noqa: E402
from torch_helpers import write  # noqa: E402

from yogadl import dtypes  # noqa: E402
from yogadl import spec as specs  # noqa: E402
from yogadl.errors import MissingExtraError, UnsupportedTypeError  # noqa: E402
from yogadl.spec import (  # noqa: E402
    NoneSpec,
    OptionalSpec,
    Ragged,
    RaggedSpec,
    Sparse,
    SparseSpec,
    TensorSpec,
)
from yogadl.torch import IterableDataset, MapDataset, collate  # noqa: E402
from yogadl.torch._tensors import as_tensor  # noqa: E402

PLAIN = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
PLAIN += ["float16", "float32", "float64", "complex64", "complex128"]
MINIFLOATS = ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
MINIFLOATS += ["float8_e8m0fnu"]
LACKING = sorted(dtypes.NAMES - {*PLAIN, *MINIFLOATS, "string"})
LACKING = [name for name in LACKING if not name.startswith(("qint", "quint"))]


def known(name: str) -> np.dtype[Any]:
    try:
        return dtypes.to_numpy(name)
    except (MissingExtraError, UnsupportedTypeError) as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", PLAIN + MINIFLOATS)
def test_every_dtype_in_records_and_batches(name: str, tmp_path: pathlib.Path) -> None:
    dtype = known(name)
    if not hasattr(torch, name):
        pytest.skip(f"torch {torch.__version__} has no {name}")
    array = np.array([[1, 4], [2, 4], [8, 1]]).astype(dtype)
    spec = {"row": TensorSpec(name, (2,)), "scalar": TensorSpec(name)}
    records = [{"row": row, "scalar": row[1]} for row in array]
    dataref = write(tmp_path / "cache.mdb", records, spec)
    dataset = MapDataset(dataref)
    expected = torch.tensor([[1, 4], [2, 4], [8, 1]], dtype=torch.float64)
    expected = expected.to(getattr(torch, name))

    def same(one: Any, two: Any) -> bool:
        return one.dtype == two.dtype and one.shape == two.shape and one.tolist() == two.tolist()

    for number in range(3):
        assert same(dataset[number]["row"], expected[number])
        assert same(dataset[number]["scalar"], expected[number, 1])
    whole = dataset[[0, 1, 2]]
    assert same(whole["row"], expected)
    assert same(whole["scalar"], expected[:, 1])
    for batch in (collate(dataset.__getitems__([0, 1, 2])), default_collate([*dataset])):
        assert same(batch["row"], expected)
        assert same(batch["scalar"], expected[:, 1])
    (streamed,) = IterableDataset(dataref.stream(), batch_size=3)
    assert same(streamed["row"], expected)


@pytest.mark.parametrize("name", LACKING)
def test_what_torch_lacks_is_refused_by_name(name: str, tmp_path: pathlib.Path) -> None:
    record = {"a": np.zeros(2, "f4"), "b": np.ones(2).astype(known(name))}
    dataref = write(tmp_path / "cache.mdb", [record])
    for make in (MapDataset, lambda ref: IterableDataset(ref.stream())):
        with pytest.raises(UnsupportedTypeError, match=f"no dtype for {name}"):
            make(dataref)
    with pytest.raises(UnsupportedTypeError, match=f"no dtype for {name}"):
        as_tensor(record["b"])


def test_quantized_integers_are_plain_ones(tmp_path: pathlib.Path) -> None:
    dataref = write(tmp_path / "cache.mdb", [np.int8(3)], TensorSpec("qint8"))
    assert MapDataset(dataref)[0].dtype == torch.int8


@pytest.mark.parametrize("name", ["int64", "float32", "bool"])
def test_memory_is_shared_and_writable(name: str) -> None:
    array = np.zeros((2, 3), name)
    tensor = as_tensor(array)
    tensor[1, 2] = 1
    assert array[1, 2] == 1


def test_bfloat16_shares_memory() -> None:
    array = np.zeros(3, known("bfloat16"))
    as_tensor(array)[1] = 2.5
    assert array.tolist() == [0, 2.5, 0]


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), ()])
def test_empty_arrays_and_scalars(shape: tuple[int, ...]) -> None:
    assert as_tensor(np.ones(shape, "f4")).shape == shape
    assert as_tensor(np.float64(2.5)).item() == 2.5


def test_strings_varying_and_unusual_leaves(tmp_path: pathlib.Path) -> None:
    spec = {
        "name": TensorSpec("string"),
        "words": TensorSpec("string", (2,)),
        "tags": TensorSpec("string", (None,)),
        "tokens": TensorSpec("int64", (None,)),
        "none": NoneSpec(),
        "maybe": OptionalSpec(TensorSpec("int32", (2,))),
        "ragged": RaggedSpec("int64", (None, None), 1),
        "sparse": SparseSpec("float32", (4,)),
    }
    records = [
        {
            "name": b"%d" % n,
            "words": np.array([b"a", b"%d" % n], object),
            "tags": np.array([b"t"] * n, object),
            "tokens": np.arange(n),
            "none": None,
            "maybe": np.array([n, n], "i4") if n % 2 else None,
            "ragged": Ragged(np.arange(n), (np.array([0, n]),)),
            "sparse": Sparse(np.array([[n]]), np.ones(1, "f4"), np.array([4])),
        }
        for n in range(3)
    ]
    dataref = write(tmp_path / "cache.mdb", records, spec)
    dataset = MapDataset(dataref)

    record = dataset[1]
    assert (record["name"], record["words"], record["tags"]) == (b"1", [b"a", b"1"], [b"t"])
    assert torch.equal(record["tokens"], torch.arange(1))
    assert record["none"] is None
    assert torch.equal(record["maybe"], torch.tensor([1, 1], dtype=torch.int32))
    assert isinstance(record["ragged"], Ragged)
    assert isinstance(record["sparse"], Sparse)

    for batch in (
        dataset[[0, 1, 2]],
        collate(dataset.__getitems__([0, 1, 2])),
        next(iter(IterableDataset(dataref.stream(), batch_size=3))),
    ):
        assert batch["name"] == [b"0", b"1", b"2"]
        assert batch["words"] == [[b"a", b"0"], [b"a", b"1"], [b"a", b"2"]]
        assert batch["tags"] == [[], [b"t"], [b"t", b"t"]]
        assert [tokens.tolist() for tokens in batch["tokens"]] == [[], [0], [0, 1]]
        assert batch["none"] == [None] * 3
        assert [None if v is None else v.tolist() for v in batch["maybe"]] == [None, [1, 1], None]
        assert [len(value.flat_values) for value in batch["ragged"]] == [0, 1, 2]
        assert [value.indices.tolist() for value in batch["sparse"]] == [[[0]], [[1]], [[2]]]
    assert repr(dataset.__getitems__([1])[0]) == repr(record)
    assert repr(list(IterableDataset(dataref.stream()))[1]) == repr(record)


def test_padding(tmp_path: pathlib.Path) -> None:
    spec = TensorSpec("bfloat16", (None,))
    known("bfloat16")
    arrays = [np.arange(n).astype(dtypes.to_numpy("bfloat16")) for n in (1, 3)]
    dataref = write(tmp_path / "cache.mdb", arrays, spec)
    (batch,) = IterableDataset(dataref.stream(), batch_size=2, pad=-1)
    assert batch.dtype == torch.bfloat16
    assert batch.tolist() == [[0, -1, -1], [0, 1, 2]]


def test_nests_keep_their_types(tmp_path: pathlib.Path) -> None:
    pair = specs.namedtuple_class("Pair", ("left", "right"))
    records = [(pair(np.int64(n), np.ones(2, "f4")), {"b": np.int8(n)}) for n in range(3)]
    dataset = MapDataset(write(tmp_path / "cache.mdb", records))
    for nest in (dataset[1], dataset[[0, 1]], collate(dataset.__getitems__([0, 1]))):
        assert type(nest) is tuple
        assert type(nest[0]) is pair
    batch = dataset.__getitems__([2, 0])
    again = pickle.loads(pickle.dumps(batch))
    assert again[0][0].left.item() == 2
    assert again.whole[1]["b"].tolist() == [2, 0]

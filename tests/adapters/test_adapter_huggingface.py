"""Hugging Face data sets."""

from __future__ import annotations

import datetime
import os
import pathlib
from typing import Any

import numpy as np
import pytest
from adapter_rig import assert_same, check, stored

from yogadl.adapters import open_source
from yogadl.dataref._sources import from_huggingface, from_source
from yogadl.errors import SpecMismatchError, UnsupportedTypeError
from yogadl.spec import OptionalSpec, Ragged, RaggedSpec, TensorSpec
from yogadl.storage import LFSStorage

os.environ.setdefault("HF_HUB_OFFLINE", "1")
hf = pytest.importorskip("datasets")


def features() -> Any:
    return hf.Features(
        {
            "z": hf.Value("int32"),
            "text": hf.Value("string"),
            "label": hf.ClassLabel(names=["cat", "dog"]),
            "double": hf.Value("float64"),
            "tokens": hf.List(hf.Value("int64")),
            "box": hf.List(hf.Value("float32"), length=2),
            "words": hf.List(hf.List(hf.Value("string"))),
            "matrix": hf.Array2D((2, 2), "uint8"),
            "inner": {"flag": hf.Value("bool")},
        }
    )


def row(i: int) -> Any:
    return {
        "z": i,
        "text": f"t{i}",
        "label": i % 2,
        "double": i + 1e-12,
        "tokens": list(range(i)),
        "box": [i, i + 0.5],
        "words": [["a"] * i, ["b"]],
        "matrix": [[i, 1], [2, 3]],
        "inner": {"flag": i == 1},
    }


def read(i: int) -> Any:
    return {
        "z": np.int32(i),
        "text": f"t{i}".encode(),
        "label": np.int64(i % 2),
        "double": np.float64(i + 1e-12),
        "tokens": np.arange(i),
        "box": np.array([i, i + 0.5], "f4"),
        "words": Ragged(np.array([b"a"] * i + [b"b"], object), (np.array([0, i, i + 1]),)),
        "matrix": np.array([[i, 1], [2, 3]], "u1"),
        "inner": {"flag": np.bool_(i == 1)},
    }


SPEC = {
    "z": TensorSpec("int32"),
    "text": TensorSpec("string"),
    "label": TensorSpec("int64"),
    "double": TensorSpec("float64"),
    "tokens": TensorSpec("int64", (None,)),
    "box": TensorSpec("float32", (2,)),
    "words": RaggedSpec("string", (None, None), 1),
    "matrix": TensorSpec("uint8", (2, 2)),
    "inner": {"flag": TensorSpec("bool")},
}


def made(count: int = 6) -> Any:
    return hf.Dataset.from_list([row(i) for i in range(count)], features=features())


def test_features(tmp_path: pathlib.Path) -> None:
    expected = [read(i) for i in range(6)]
    dataref = stored(tmp_path, made())
    assert dataref.spec == SPEC
    assert list(dataref.spec) == list(SPEC)
    assert_same(dataref.stream(), expected)
    check(from_huggingface(made()), expected)
    check(from_source(made()), expected)


@pytest.mark.parametrize("kind", ["numpy", "arrow", "pandas", None])
def test_formats_do_not_matter_but_columns_do(kind: Any, tmp_path: pathlib.Path) -> None:
    data = made().with_format(kind, columns=["text", "z"])
    expected = [{"text": f"t{i}".encode(), "z": np.int32(i)} for i in range(6)]
    assert_same(stored(tmp_path, data).stream(), expected)


def test_views_and_transforms(tmp_path: pathlib.Path) -> None:
    shuffled = made().shuffle(seed=1).select(range(4))
    expected = [read(int(i)) for i in shuffled["z"]]
    assert_same(stored(tmp_path, shuffled).stream(), expected)
    check(from_huggingface(shuffled), expected)
    transformed = made().with_transform(lambda rows: {"n": [z * 2 for z in rows["z"]]})
    check(from_huggingface(transformed), [{"n": np.int64(2 * i)} for i in range(6)], pickles=False)
    joined = hf.concatenate_datasets([made(2), made(3)])
    check(from_huggingface(joined), [read(i) for i in (0, 1, 0, 1, 2)])


def test_streams(tmp_path: pathlib.Path) -> None:
    expected = [read(i) for i in range(6)]
    data = made().to_iterable_dataset(num_shards=2)
    dataref = stored(tmp_path, data)
    assert dataref.spec == SPEC
    assert_same(dataref.stream(), expected)
    unknown = hf.IterableDataset.from_generator(lambda: iter([{"a": 1, "s": "x"}] * 2))
    assert_same(stored(tmp_path, unknown).stream(), [{"a": np.int64(1), "s": b"x"}] * 2)
    with pytest.raises(UnsupportedTypeError, match="one after the other"):
        from_source(data)


def test_images(tmp_path: pathlib.Path) -> None:
    images = pytest.importorskip("PIL.Image")
    pixels = [np.full((2 + i, 3, 3), i, "u1") for i in range(3)]
    rows = [{"n": i, "image": images.fromarray(value)} for i, value in enumerate(pixels)]
    data = hf.Dataset.from_list(
        rows, features=hf.Features({"n": hf.Value("int64"), "image": hf.Image()})
    )
    expected = [{"n": np.int64(i), "image": value} for i, value in enumerate(pixels)]
    for source in (data, data.to_iterable_dataset()):
        dataref = stored(tmp_path, source)
        assert dataref.spec["image"] == TensorSpec("uint8", (None, None, 3))
        assert_same(dataref.stream(), expected)
    check(from_huggingface(data), expected)
    raw = data.cast_column("image", hf.Image(decode=False)).with_format(columns=["image"])
    spec = {"image": {"bytes": TensorSpec("string"), "path": OptionalSpec(TensorSpec("string"))}}
    (first, *_) = stored(tmp_path, raw, spec).stream()
    assert first["image"]["bytes"].startswith(b"\x89PNG")
    gray = data.map(lambda r: {"image": r["image"].convert("L")} if r["n"] == 2 else {})
    with pytest.raises(SpecMismatchError, match=r"record 2.* inferred from the first"):
        stored(tmp_path, gray)


def test_missing_values(tmp_path: pathlib.Path) -> None:
    data = hf.Dataset.from_dict({"good": [1, 2], "bad": ["x", None]})
    for source in (data, data.to_iterable_dataset()):
        with pytest.raises(UnsupportedTypeError, match=r"bad.*is None.*OptionalSpec"):
            stored(tmp_path, source)
    spec = {"good": TensorSpec("int64"), "bad": OptionalSpec(TensorSpec("string"))}
    expected = [{"good": np.int64(1), "bad": b"x"}, {"good": np.int64(2), "bad": None}]
    for source in (data, data.to_iterable_dataset()):
        assert_same(stored(tmp_path, source, spec).stream(), expected)
    lists = hf.Dataset.from_dict({"bad": [[1, 2], [3, None]]})
    for source in (lists, lists.to_iterable_dataset()):
        with pytest.raises(UnsupportedTypeError, match=r"bad.*None"):
            stored(tmp_path, source)


def test_what_cannot_be_stored() -> None:
    when = hf.Dataset.from_dict(
        {"when": [datetime.date(2020, 1, 1)]}, features=hf.Features({"when": hf.Value("date32")})
    )
    with pytest.raises(UnsupportedTypeError, match=r"column 'when'.*date32"):
        open_source(when)
    objects = hf.Dataset.from_dict({"v": [[{"a": 1}]]})
    with pytest.raises(UnsupportedTypeError, match=r"column 'v'.*lists of"):
        open_source(objects)
    with pytest.raises(UnsupportedTypeError, match=r"several data sets.*'train'"):
        open_source(hf.DatasetDict({"train": made()}))
    with pytest.raises(UnsupportedTypeError, match=r"a datasets.Dataset, not a builtins.list"):
        from_huggingface([1])
    audio = made().add_column("sound", [{"bytes": b"", "path": None}] * 6)
    audio = audio.cast_column("sound", hf.Audio())
    with pytest.raises(UnsupportedTypeError, match="column 'sound' is of Audio"):
        open_source(audio)


FILES = {"image": hf.Image(), "label": hf.ClassLabel(names=["cat", "dog"])}


def of_images(pixels: list[Any]) -> Any:
    images = pytest.importorskip("PIL.Image")
    made = {"image": [images.fromarray(value) for value in pixels], "label": [1] * len(pixels)}
    return hf.Dataset.from_dict(made, features=hf.Features(FILES))


def pixels_of(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(1)
    return [rng.integers(0, 256, shape).astype("u1") for shape in shapes]


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([(8, 9, 3)] * 3, (8, 9, 3)),
        ([(8, 9)] * 3, (8, 9)),
        ([(8, 9, 3), (8, 9, 3), (9, 8, 3)], (None, None, 3)),
    ],
)
def test_images_of_one_size_have_a_static_shape(
    shapes: list[Any], expected: Any, tmp_path: pathlib.Path
) -> None:
    pixels = pixels_of(*shapes)
    dataref = stored(tmp_path, of_images(pixels))
    assert dataref.spec["image"] == TensorSpec("uint8", expected)
    assert_same(dataref.stream(), [{"image": p, "label": np.int64(1)} for p in pixels])


def test_images_in_files(tmp_path: pathlib.Path) -> None:
    """One of them is to be turned by who shows it, and so has another shape when it is decoded."""
    images = pytest.importorskip("PIL.Image")
    upright, turned = pixels_of((8, 9, 3), (8, 9, 3))
    turn = images.Exif()
    turn[0x0112] = 6
    images.fromarray(upright).save(tmp_path / "0.png")
    images.fromarray(turned).save(tmp_path / "1.png", exif=turn)
    paths = [str(tmp_path / f"{n}.png") for n in range(2)]
    data = hf.Dataset.from_dict({"image": paths}, features=hf.Features({"image": hf.Image()}))
    dataref = stored(tmp_path / "store", data)
    assert dataref.spec["image"] == TensorSpec("uint8", (None, None, 3))
    assert [record["image"].shape for record in dataref.stream()] == [(8, 9, 3), (9, 8, 3)]


def test_grey_among_coloured_images(tmp_path: pathlib.Path) -> None:
    data = of_images(pixels_of((8, 9, 3), (8, 9)))
    with pytest.raises(SpecMismatchError, match=r"record 1.*\['L', 'RGB'\].*Image\(mode='RGB'\)"):
        stored(tmp_path, data)
    coloured = stored(tmp_path, data.cast_column("image", hf.Image(mode="RGB")))
    assert coloured.spec["image"] == TensorSpec("uint8", (8, 9, 3))


def test_files_as_they_are(tmp_path: pathlib.Path) -> None:
    """Those that the data set holds, and those that it names."""
    inside = of_images(pixels_of((8, 9, 3), (9, 9, 3))).cast_column("image", hf.Image(decode=False))
    expected = [row["image"]["bytes"] for row in inside]
    for number, content in enumerate(expected):
        (tmp_path / f"{number}.png").write_bytes(content)
    paths = [str(tmp_path / f"{number}.png") for number in range(2)]
    named = hf.Dataset.from_dict({"image": paths, "label": [1, 1]}, features=hf.Features(FILES))
    named = named.cast_column("image", hf.Image(decode=False))
    for source in (inside, named, inside.to_iterable_dataset(), named.to_iterable_dataset()):
        dataref = stored(tmp_path / "store", source)
        assert dataref.spec["image"] == TensorSpec("string")
        assert [record["image"] for record in dataref.stream()] == expected
    (tmp_path / "1.png").unlink()
    with pytest.raises(UnsupportedTypeError, match=r"column 'image'.*1\.png"):
        stored(tmp_path / "store", named)


def test_names_of_classes_are_kept(tmp_path: pathlib.Path) -> None:
    data = of_images(pixels_of((8, 9, 3)))
    for source in (data, data.to_iterable_dataset()):
        assert stored(tmp_path, source).metadata == {"class_names": {"label": ["cat", "dog"]}}
    storage = LFSStorage(tmp_path)
    storage.submit(data, "a", "1", metadata={"class_names": "mine", "by": "me"})
    assert storage.fetch("a", "1").metadata == {"class_names": "mine", "by": "me"}
    storage.cacheable("b", "1")(lambda: data)()
    assert storage.fetch("b", "1").metadata["class_names"] == {"label": ["cat", "dog"]}

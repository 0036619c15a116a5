"""Hugging Face data sets. Values come from Arrow; only images are decoded by ``datasets``."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.adapters._arrow_columns import arrow_columns, nested
from yogadl.adapters._arrow_rows import one_array
from yogadl.adapters._arrow_types import check_names, type_spec
from yogadl.adapters._base import Array, MapSource
from yogadl.adapters._convert import to_record, type_name
from yogadl.adapters._items import ItemsSource
from yogadl.adapters._iterable import IterableSource, as_spec
from yogadl.adapters._rows import NamingRecord, RowStacker, explaining, leaf_column, put
from yogadl.cache.columns import Column
from yogadl.errors import InvalidArgumentError, SpecMismatchError, UnsupportedTypeError
from yogadl.extras import require

hf = require("datasets", "huggingface")

_MEDIA = ("Audio", "Video", "Pdf", "Nifti")
# Files at a time whose headers are read.
_HEADERS = 1000


def open_dataset(data: Any, spec: Any) -> MapSource:
    """A ``datasets.Dataset`` as a source of dicts."""
    if data.format["type"] == "custom":
        # Its transform makes the records, and only it knows of what.
        return ItemsSource(data, spec)
    return HuggingFaceSource(data, spec)


class HuggingFaceSource(MapSource):
    """The rows of a ``datasets.Dataset``, as dicts of its columns in their order.

    A ``ClassLabel`` is an int64, whose names are in the metadata, ``class_names``; an ``Image`` is
    an array, or with ``decode=False`` the bytes of the file, as are other media; lists are arrays
    of varying length, lists of lists ragged. The format that was set (NumPy, torch) does not
    matter, but a choice of columns and a transform do. The spec comes from the features; of images,
    the rank, the channels and the dtype from the first, and the size if all have the same.

    Raises:
        UnsupportedTypeError: a column that cannot be stored, by its name; or, when it is read,
            ``None`` where the spec has no ``OptionalSpec``.
        InvalidArgumentError: images in an empty data set, and no spec.
    """

    def __init__(self, data: Any, spec: Any = None) -> None:
        self._names = list(data.format["columns"])
        self._arrow = data.with_format("arrow", columns=self._names)
        features = {name: data.features[name] for name in self._names}
        self._decoded = [name for name in self._names if _has_image(features[name])]
        plain = data.with_format(None).select_columns(self._decoded) if self._decoded else None
        self._images = plain
        self.count = len(data)
        self._name = type_name(data)
        self._inferred = spec is None
        if spec is None:
            first = self._first_images()
            self.spec = {
                name: feature_spec(feature, f"column {name!r}", first.get(name))
                for name, feature in features.items()
            }
            for name, feature in features.items():
                if isinstance(feature, hf.Image) and self._are_alike(data, name):
                    image = first[name]
                    self.spec[name] = specs.TensorSpec(str(image.dtype), image.shape)
        else:
            self.spec = as_spec(spec)
        check_names(self.spec, self._names)
        self._stackers = {
            name: RowStacker(self.spec[name], f"column {name!r}") for name in self._decoded
        }
        self._files = [
            name
            for name, feature in features.items()
            if _is_file(feature) and not isinstance(self.spec[name], dict)
        ]
        self.metadata = class_names(features)

    def _are_alike(self, data: Any, name: str) -> bool:
        """Whether all images of a column are of one size, by what their files say at the front."""
        if name not in self._decoded:
            return False
        from yogadl.adapters._image_files import have_one_size

        files = data.cast_column(name, hf.Image(decode=False)).with_format("arrow", columns=[name])
        headers = (
            file
            for start in range(0, self.count, _HEADERS)
            for file in files[start : start + _HEADERS].column(name)
        )
        # With a mode given, all have it once they are decoded.
        return have_one_size(headers, of_one_mode=data.features[name].mode is None)

    def _first_images(self) -> dict[str, Any]:
        if self._images is None:
            return {}
        if not self.count:
            raise InvalidArgumentError(
                f"columns {self._decoded} have images, whose shape an empty data set does not "
                "tell; give spec="
            )
        return dict(to_record(self._images[0]))

    def columns(self, positions: Array, out: Sequence[Array] | None = None) -> list[Column]:
        return put(self._columns(positions, to_write=False), out)

    def rows(self, start: int, stop: int) -> list[Any]:
        return self._columns(np.arange(start, stop), to_write=True)

    def _columns(self, positions: Array, to_write: bool) -> list[Any]:
        table = self._arrow[positions.tolist()]
        images = {} if self._images is None else self._images[positions.tolist()]
        columns: list[Column] = []
        with explaining(self._inferred):
            for name in specs.sorted_keys(self.spec):
                where = f"column {name!r}"
                if name in images:
                    columns.extend(self._decoded_columns(name, images[name], positions))
                    continue
                array = one_array(table.column(name))
                if name in self._files:
                    found = [file_bytes(value, where) for value in array.to_pylist()]
                    columns.append(leaf_column(self.spec[name], found, positions, where))
                    continue
                columns.extend(arrow_columns(self.spec[name], array, positions, where, to_write))
        return columns

    def _decoded_columns(self, name: str, values: list[Any], positions: Array) -> list[Column]:
        records = []
        for position, value in zip(positions.tolist(), values, strict=True):
            with NamingRecord(position):
                records.append(python_record(self.spec[name], value, f"column {name!r}"))
        try:
            return self._stackers[name].columns(records, positions)
        except SpecMismatchError as error:
            raise SpecMismatchError(f"{error}{_advice(values)}") from error

    @property
    def fingerprint(self) -> str:
        """The name of the type: the records are not looked at."""
        return self._name


class StreamedSource(IterableSource):
    """The rows of a ``datasets.IterableDataset``, as dicts; once.

    The spec comes from the features where it knows them, else from the first record.
    """

    def __init__(self, data: Any, spec: Any = None) -> None:
        data = data.with_format(None)
        features = data.features
        has_images = features is not None and any(map(_has_image, features.values()))
        if spec is None and features is not None and not has_images:
            spec = {name: feature_spec(part, f"column {name!r}") for name, part in features.items()}
        rows: Iterator[Any] = iter(data)
        first = next(rows, None) if spec is None else None
        if first is not None and features is not None:
            known = to_record(first)
            spec = {
                name: feature_spec(part, f"column {name!r}", known[name])
                for name, part in features.items()
            }
        self._given = None if spec is None else as_spec(spec)
        self._files = [
            name
            for name, feature in (features or {}).items()
            if _is_file(feature) and not _is_dict_of(self._given, name)
        ]
        self.metadata = class_names(features or {})
        super().__init__(_chain(first, rows), spec, convert=self._row)

    def _row(self, item: Any) -> Any:
        read = {name: file_bytes(item[name], f"column {name!r}") for name in self._files}
        item = {**item, **read}
        if self._given is None:
            return to_record(item)
        return python_record(self._given, item, "record")


def _is_dict_of(spec: Any, name: str) -> bool:
    return isinstance(spec, dict) and isinstance(spec.get(name), dict)


def _chain(first: Any, rows: Iterator[Any]) -> Iterator[Any]:
    if first is not None:
        yield first
    yield from rows


def python_record(spec: Any, value: Any, where: str) -> Any:
    """A record as ``datasets`` gives it in Python, as one of a spec.

    Raises:
        UnsupportedTypeError: ``None`` where the spec has no ``OptionalSpec``.
    """
    _refuse_missing(spec, value, where)
    return nested(spec, to_record(value, where=where))


def _refuse_missing(spec: Any, value: Any, where: str) -> None:
    if isinstance(spec, specs.OptionalSpec | specs.NoneSpec):
        return
    if value is None:
        raise UnsupportedTypeError(
            f"{where} is None; fill what is missing by map, drop it by filter, or give spec= with "
            "OptionalSpec for it"
        )
    if isinstance(value, dict):
        for key, child in value.items():
            inner = spec.get(key) if isinstance(spec, dict) else spec
            _refuse_missing(inner, child, f"{where}[{key!r}]")
    elif isinstance(value, list):
        for child in value:
            _refuse_missing(spec, child, f"an item of {where}")


def _has_image(feature: Any) -> bool:
    if isinstance(feature, hf.Image):
        return bool(feature.decode)
    if isinstance(feature, dict):
        return any(map(_has_image, feature.values()))
    return hasattr(feature, "feature") and _has_image(feature.feature)


def feature_spec(feature: Any, where: str, first: Any = None) -> Any:
    """The spec of a feature.

    Args:
        feature: of ``datasets``.
        where: what to call it in errors.
        first: the value in the first record, converted, for features that do not tell all.

    Raises:
        UnsupportedTypeError: it cannot be stored.
    """
    if isinstance(feature, dict):
        known = first if isinstance(first, dict) else {}
        return {
            name: feature_spec(part, f"{where}[{name!r}]", known.get(name))
            for name, part in feature.items()
        }
    name = type(feature).__name__
    if isinstance(feature, hf.Image) and feature.decode:
        return _image_spec(first, where)
    if _is_file(feature):
        return specs.TensorSpec("string")
    if _has_image(feature):
        raise UnsupportedTypeError(f"{where} has lists of images; give one column to each image")
    if name in _MEDIA and getattr(feature, "decode", True):
        raise UnsupportedTypeError(
            f"{where} is of {name}, which cannot be made an array; decode it by map, or keep the "
            f"file's bytes with cast_column(…, {name}(decode=False))"
        )
    if name.startswith("Array"):
        return specs.TensorSpec(feature.dtype, tuple(feature.shape))
    return type_spec(_arrow_type(feature), where)


def _is_file(feature: Any) -> bool:
    """Whether values are files of some medium that are not to be decoded."""
    is_medium = type(feature).__name__ in ("Image", *_MEDIA)
    return is_medium and not getattr(feature, "decode", True)


def file_bytes(value: Any, where: str) -> bytes | None:
    """The contents of a file as ``datasets`` has it: its bytes, or the path on this machine.

    Raises:
        UnsupportedTypeError: it has neither, or the path cannot be read.
    """
    if value is None or isinstance(value, bytes):
        return value
    if value["bytes"] is not None:
        found: bytes = value["bytes"]
        return found
    try:
        return pathlib.Path(value["path"]).read_bytes()
    except (OSError, TypeError) as error:
        raise UnsupportedTypeError(
            f"{where} has a file without its bytes, which cannot be read: {error}"
        ) from error


def class_names(features: Any) -> dict[str, Any]:
    """The names of the classes of all columns that have some, for the metadata."""
    names = {
        name: feature.names
        for name, feature in features.items()
        if isinstance(feature, hf.ClassLabel) and feature.names
    }
    return {"class_names": names} if names else {}


def _arrow_type(feature: Any) -> Any:
    return hf.Features({"value": feature}).arrow_schema.field("value").type


def _image_spec(first: Any, where: str) -> specs.TensorSpec:
    if not isinstance(first, np.ndarray):
        raise UnsupportedTypeError(
            f"{where} is None in the first record; give spec= with OptionalSpec, or drop such "
            "records by filter"
        )
    return specs.TensorSpec(str(first.dtype), (None, None, *first.shape[2:]))


def _advice(images: list[Any]) -> str:
    """What to do about images of which some are grey, say, and others coloured."""
    modes = sorted({image.mode for image in images if hasattr(image, "mode")})
    if len(modes) < 2:
        return ""
    return (
        f". The images have the modes {modes}; make them one: "
        "dataset.cast_column(name, datasets.Image(mode='RGB'))"
    )

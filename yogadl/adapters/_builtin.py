"""What yogadl itself can turn into records. What needs a framework is imported when used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yogadl.adapters import _grain, _keras, _pandas, _tensorpack, _torch
from yogadl.adapters._base import Source
from yogadl.adapters._columns import ColumnsSource
from yogadl.adapters._convert import type_name
from yogadl.adapters._dataref import DataRefSource
from yogadl.adapters._iterable import IterableSource, as_spec
from yogadl.adapters._nests import are_columns, open_nest
from yogadl.adapters._registry import BUILT_IN, Opener
from yogadl.errors import InvalidArgumentError, UnsupportedTypeError
from yogadl.format import spec_json
from yogadl.format.spec_text import spec_text


def _built_in(*targets: str | type) -> Callable[[Opener], Opener]:
    def decorate(opener: Opener) -> Opener:
        for target in targets:
            BUILT_IN.register(target, opener)
        return opener

    return decorate


_built_in("torch.utils.data.Dataset")(_torch.open_dataset)
_built_in("torch.utils.data.TensorDataset")(_torch.open_tensor_dataset)
_built_in("torch.utils.data.IterableDataset")(_torch.open_iterable)
_built_in("torch.utils.data.DataLoader")(_torch.open_loader)
_built_in("keras.utils.PyDataset", "keras.utils.Sequence")(_keras.open_sequence)
_built_in("tensorpack.dataflow.DataFlow")(_tensorpack.open_dataflow)
_built_in("grain.MapDataset", "grain.python.MapDataset")(_grain.open_map_dataset)
_built_in("grain.IterDataset", "grain.python.IterDataset")(_grain.open_iter_dataset)
_built_in("pandas.DataFrame")(_pandas.open_frame)
_built_in("pandas.Series")(_pandas.open_series)
_built_in("numpy.ndarray", "torch.Tensor")(ColumnsSource)


@_built_in("tensorflow.data.Dataset")
def _open_tf_dataset(data: Any, spec: Any) -> Source:
    from yogadl.adapters._tf_data import TfDatasetSource

    source = TfDatasetSource(data)
    if spec is not None and as_spec(spec) != source.spec:
        raise InvalidArgumentError(
            f"a tf.data.Dataset has its own spec, {spec_text(source.spec)}; leave out spec="
        )
    return source


@_built_in("datasets.Dataset")
def _open_huggingface(data: Any, spec: Any) -> Source:
    from yogadl.adapters._huggingface import open_dataset

    return open_dataset(data, spec)


@_built_in("datasets.IterableDataset")
def _open_huggingface_stream(data: Any, spec: Any) -> Source:
    from yogadl.adapters._huggingface import StreamedSource

    return StreamedSource(data, spec)


@_built_in("datasets.DatasetDict", "datasets.IterableDatasetDict")
def _refuse_splits(data: Any, _spec: Any) -> Source:
    raise UnsupportedTypeError(
        f"a {type_name(data)} is several data sets; submit each of {sorted(data)} by itself"
    )


@_built_in("ray.data.Dataset")
def _refuse_ray(data: Any, _spec: Any) -> Source:
    raise UnsupportedTypeError(
        f"a {type_name(data)} is written by tasks of Ray: yogadl.ray.write(dataset, storage, …)"
    )


@_built_in("pandas.api.typing.DataFrameGroupBy", "pandas.api.typing.SeriesGroupBy")
def _refuse_groups(data: Any, _spec: Any) -> Source:
    raise UnsupportedTypeError(
        f"a {type_name(data)} is several tables; submit what its agg() or the like returns, or "
        "each table by itself"
    )


@_built_in("pyarrow.Table", "pyarrow.RecordBatch")
def _open_arrow(data: Any, spec: Any) -> Source:
    from yogadl.adapters._arrow import ArrowSource

    return ArrowSource(data, spec)


@_built_in("pyarrow.Array", "pyarrow.ChunkedArray")
def _open_arrow_array(data: Any, spec: Any) -> Source:
    from yogadl.adapters._arrow import open_array

    return open_array(data, spec)


@_built_in("yogadl.dataref.IndexedDataRef")
def _open_dataref(data: Any, spec: Any) -> Source:
    wanted = data.spec if spec is None else as_spec(spec)
    # Equality takes no notice of the names of a tuple.
    if spec_json.canonical(wanted) == spec_json.canonical(data.spec):
        return DataRefSource(data, wanted)
    return IterableSource(data.stream(), wanted)


@_built_in("yogadl.dataref.IndexedStream")
def _open_stream(data: Any, spec: Any) -> Source:
    return IterableSource(data, data.spec if spec is None else spec)


@_built_in(dict)
def _open_dict(data: Any, spec: Any) -> Source:
    if are_columns(data):
        return open_nest(data, spec)
    raise UnsupportedTypeError(
        "a builtins.dict can be stored if all its values are arrays, whose rows are records; make "
        "arrays of lists by np.asarray, or submit an iterable of dicts"
    )


@_built_in(tuple)
def _open_tuple(data: Any, spec: Any) -> Source:
    if are_columns(data):
        return open_nest(data, spec)
    if any(map(are_columns, data)) and any(isinstance(part, list) for part in data):
        raise UnsupportedTypeError(
            "a tuple of arrays and lists may be columns or records: if row i of each makes record "
            "i, make arrays of the lists by np.asarray; otherwise submit a list of the records"
        )
    return IterableSource(data, spec)

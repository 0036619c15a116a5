"""What values of other libraries are. None is imported for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from yogadl.dataref import IndexedDataRef
from yogadl.recipes._arrays import content_of, dtype_text
from yogadl.recipes._numpy import numpy_rule
from yogadl.recipes._objects import attributes_of, kept
from yogadl.recipes._owners import is_library
from yogadl.recipes._pillow import of_pillow
from yogadl.recipes._protocol import Rule, Walk, digest, each, pairs, text


def rule_of(value: Any) -> Rule | None:
    """The rule of a value of a library that is known here."""
    found = numpy_rule(value)
    if found is not None:
        return found
    if any(one is IndexedDataRef for one in type(value).__mro__):
        return _dataref
    for kind in type(value).__mro__:
        top = str(kind.__module__).partition(".")[0]
        of_library = _BY_LIBRARY.get(top)
        if of_library is not None and top in sys.modules:
            known = of_library(value, sys.modules[top])
            if known is not None:
                return known
    return None


def _dataref(_walk: Walk, value: Any) -> str:
    """By what its records are, however they are stored."""
    return f"dataref({value.reader.content_id})"


def _of_torch(value: Any, torch: Any) -> Rule | None:
    if isinstance(value, torch.Tensor):
        return _tensor
    if isinstance(value, torch.Generator):
        return lambda walk, it: walk.again(it) or f"generator({walk.token(it.get_state())})"
    if isinstance(value, torch.dtype | torch.device | torch.Size | torch.layout):
        return lambda _walk, it: f"torch({text(repr(it))})"
    return None


def _tensor(walk: Walk, value: Any) -> str:
    if again := walk.again(value):
        return again
    torch = sys.modules["torch"]
    if value.layout is not torch.strided or value.is_quantized or value.device.type == "meta":
        walk.refuse("a tensor that is sparse, quantized or without content")
    if value.grad_fn is not None:
        walk.refuse(
            "a tensor with a gradient that goes back to others, of which it cannot be told how; "
            "detach() it"
        )
    bare = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    shape, kind = tuple(bare.shape), walk.token(type(value))
    data = bare.reshape(-1).view(torch.uint8).numpy() if bare.numel() else b""
    more = pairs(walk, attributes_of(value).items()) + _gradient(walk, value)
    shared = ""
    if value.numel():
        storage, size = value.untyped_storage(), value.element_size()
        layout = str(tuple(it * size for it in value.stride()))
        shared = walk.memory(storage, storage.data_ptr(), value.data_ptr(), layout)
    content = f"{value.dtype},{shape},{digest(data)}"
    return f"tensor({content},{kind},{value.requires_grad},{more},{shared})"


def _gradient(walk: Walk, value: Any) -> str:
    """What a tensor has of its gradient, and what is called with that."""
    found = "" if value.grad is None else f"grad={walk.inside('.grad', value.grad)}"
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        hooks = getattr(value, name, None)
        if hooks:
            # Their keys depend on how many there were in the process.
            found += f"{name}={each(walk, hooks.values())}"
    return found


def hooks_in_order(value: Any) -> dict[str, Any]:
    """The hooks of a module of torch, by the names of the attributes, and there by the order in
    which they were registered: it knows them by how many there were in the process before."""
    torch = sys.modules.get("torch")
    module = getattr(getattr(torch, "nn", None), "Module", ())
    if not issubclass(type(value), module):
        return {}
    hooks = {
        name: it
        for name, it in kept(value)
        if "_hooks" in name and isinstance(it, dict) and all(type(key) is int for key in it)
    }
    numbers = sorted({number for it in hooks.values() for number in it})
    return {
        name: {numbers.index(number): hook for number, hook in it.items()}
        for name, it in hooks.items()
    }


def _of_tensorflow(value: Any, tensorflow: Any) -> Rule | None:
    space = vars(tensorflow)
    if isinstance(value, space["Variable"]):
        return _tf_variable
    if isinstance(value, space["Tensor"]):
        return _tf_tensor
    if isinstance(value, space["DType"] | space["TensorShape"]):
        return lambda _walk, it: f"tensorflow({text(repr(it))})"
    if isinstance(value, space["RaggedTensor"] | space["SparseTensor"]):
        return _tf_composite
    if isinstance(value, space["TypeSpec"]):
        return lambda walk, it: f"spec({walk.token(type(it))},{text(repr(it))})"
    if isinstance(value, space["data"].Dataset):
        return lambda walk, _it: walk.refuse("a tf.data.Dataset, whose pipeline cannot be seen")
    return None


def _tf_tensor(walk: Walk, value: Any) -> str:
    if not hasattr(value, "numpy"):
        walk.refuse("a tensor of a graph, which has no value yet")
    tensorflow = sys.modules["tensorflow"]
    if value.dtype in (tensorflow.resource, tensorflow.variant):
        walk.refuse("a tensor of TensorFlow's that stands for something that cannot be seen")
    return f"tensor({content_of(walk, np.asarray(value.numpy()))})"


def _tf_variable(walk: Walk, value: Any) -> str:
    if again := walk.again(value):
        return again
    return f"variable({_tf_tensor(walk, value)},{text(str(value.name))},{value.trainable})"


def _tf_composite(walk: Walk, value: Any) -> str:
    tensorflow = sys.modules["tensorflow"]
    parts = tensorflow.nest.flatten(value, expand_composites=True)
    return f"composite({type(value).__name__},{each(walk, parts)})"


def _of_keras(value: Any, keras: Any) -> Rule | None:
    """What a layer has tracked: it also knows that by where it lies in memory."""
    kind = type(value)
    if kind.__name__ != "Tracker" or not kind.__module__.startswith(f"{keras.__name__}."):
        return None
    return lambda walk, it: (
        walk.again(it)
        or f"tracker({pairs(walk, (one for one in kept(it) if one[0] != 'stored_ids'))})"
    )


def _of_jax(value: Any, jax: Any) -> Rule | None:
    return _jax_array if isinstance(value, vars(jax)["Array"]) else None


def _jax_array(walk: Walk, value: Any) -> str:
    jax = sys.modules["jax"]
    kind = ""
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        kind, value = str(value.dtype), jax.random.key_data(value)
    elif getattr(value, "weak_type", False):
        # Its type gives way to that of what it is computed with.
        kind = "weak "
    return f"jax({kind}{content_of(walk, np.asarray(value))})"


def _of_pandas(value: Any, pandas: Any) -> Rule | None:
    if isinstance(value, pandas.DataFrame):
        return _frame
    if isinstance(value, pandas.Series):
        return _series
    if isinstance(value, pandas.MultiIndex):
        return _multi_index
    if isinstance(value, pandas.Index):
        return lambda walk, it: (
            f"index({_pandas_values(walk, it)},{walk.token(it.name)},"
            f"{getattr(it, 'freqstr', None)})"
        )
    if value is pandas.NaT or value is pandas.NA:
        return lambda _walk, it: f"pandas({it})"
    if isinstance(value, pandas.Timestamp | pandas.Timedelta):
        return lambda _walk, it: (
            f"{type(it).__name__}({text(repr(it))},{it.value},{getattr(it, 'unit', '')})"
        )
    if isinstance(value, pandas.Interval):
        return lambda walk, it: (
            f"interval({walk.token(it.left)},{walk.token(it.right)},{it.closed})"
        )
    if isinstance(value, pandas.Period):
        return lambda _walk, it: f"period({it.ordinal},{it.freqstr})"
    if isinstance(value, pandas.api.extensions.ExtensionDtype):
        return lambda walk, it: f"dtype({_pandas_dtype(walk, it)})"
    if isinstance(value, pandas.api.extensions.ExtensionArray):
        return lambda walk, it: f"pandas({_pandas_values(walk, it)})"
    return None


def _multi_index(walk: Walk, value: Any) -> str:
    # What is in none of its rows says how these are sorted and grouped.
    codes = ",".join(content_of(walk, np.asarray(it)) for it in value.codes)
    return f"index({each(walk, value.levels)};{codes};{each(walk, value.names)})"


def _frame(walk: Walk, value: Any) -> str:
    if again := walk.again(value):
        return again
    columns = [
        walk.inside(f".iloc[:, {number}]", value.iloc[:, number])
        for number in range(value.shape[1])
    ]
    heads = f"{walk.token(value.columns)},{walk.token(value.index)},{walk.token(value.attrs)}"
    return f"frame({heads},{','.join(columns)}){_flags(value)}"


def _flags(value: Any) -> str:
    """Whether labels may be there twice, if they may not."""
    return "" if value.flags.allows_duplicate_labels else " without duplicate labels"


def _series(walk: Walk, value: Any) -> str:
    if again := walk.again(value):
        return again
    heads = each(walk, (value.name, value.index, value.attrs))
    return f"series({_pandas_values(walk, value)},{heads}){_flags(value)}"


def _pandas_dtype(walk: Walk, dtype: Any) -> str:
    if isinstance(dtype, np.dtype):
        return dtype_text(dtype)
    categories = getattr(dtype, "categories", None)
    shown = f"{dtype} {type(dtype).__name__} {getattr(dtype, 'ordered', '')}"
    return f"{text(shown)},{walk.token(categories)}"


def _pandas_values(walk: Walk, value: Any) -> str:
    dtype = value.dtype
    if isinstance(dtype, np.dtype) and not dtype.hasobject:
        return content_of(walk, np.asarray(value))
    return f"{_pandas_dtype(walk, dtype)},{each(walk, list(value))}"


def _of_arrow(value: Any, pyarrow: Any) -> Rule | None:
    if isinstance(value, pyarrow.Table | pyarrow.RecordBatch):
        return _table
    if isinstance(value, pyarrow.Array | pyarrow.ChunkedArray):
        return lambda walk, it: _table(walk, pyarrow.table({"": it}))
    if isinstance(value, pyarrow.Schema | pyarrow.DataType | pyarrow.Field):
        return _schema
    if isinstance(value, pyarrow.Scalar):
        return lambda walk, it: _table(walk, pyarrow.table({"": pyarrow.array([it], it.type)}))
    return None


def _schema(_walk: Walk, value: Any) -> str:
    """A schema, a field or a type, with all metadata, which its text does not have."""
    import pyarrow

    whole = value
    if not isinstance(value, pyarrow.Schema):
        field = value if isinstance(value, pyarrow.Field) else pyarrow.field("", value)
        whole = pyarrow.schema([field])
    return f"arrow({type(value).__name__},{text(str(value))},{digest(whole.serialize())})"


def _table(walk: Walk, value: Any) -> str:
    import pyarrow

    if again := walk.again(value):
        return again
    table = pyarrow.Table.from_batches([value]) if not hasattr(value, "columns") else value
    if isinstance(value, pyarrow.RecordBatch):
        table = pyarrow.Table.from_batches([value])
    sink = pyarrow.BufferOutputStream()
    # However it is cut into chunks, and whatever lies around slices.
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.take(pyarrow.array(range(len(table)), "int64")).combine_chunks())
    return f"table({digest(sink.getvalue())})"


def _of_polars(value: Any, polars: Any) -> Rule | None:
    if isinstance(value, polars.DataFrame):
        return lambda walk, it: walk.again(it) or f"polars({_columns(walk, it.get_columns())})"
    if isinstance(value, polars.Series):
        return lambda walk, it: walk.again(it) or f"polars({_columns(walk, [it])})"
    if isinstance(value, polars.DataType):
        return lambda _walk, it: f"polars({text(repr(it))})"
    return None


def _columns(walk: Walk, columns: Any) -> str:
    return ";".join(
        f"{text(it.name)},{text(repr(it.dtype))},{walk.token(it.to_list())}" for it in columns
    )


def _of_joblib(value: Any, joblib: Any) -> Rule | None:
    """A function whose results joblib keeps: it knows when it was made, too."""
    memory = sys.modules.get(f"{joblib.__name__}.memory", joblib)
    if not isinstance(value, getattr(memory, "MemorizedFunc", ())):
        return None
    parts = ("func", "ignore", "cache_validation_callback")
    return lambda walk, it: f"joblib({each(walk, [getattr(it, name, None) for name in parts])})"


def _of_sympy(value: Any, sympy: Any) -> Rule | None:
    return _expression if isinstance(value, sympy.Basic) else None


def _expression(walk: Walk, value: Any) -> str:
    sympy = sys.modules["sympy"]
    kinds = {type(it) for it in sympy.preorder_traversal(value)}
    own = sorted(kind.__qualname__ for kind in kinds if not is_library(kind.__module__))
    if own:
        walk.refuse(f"an expression of SymPy with classes of one's own: {', '.join(own)}")
    return f"sympy({text(sympy.srepr(value))})"


_BY_LIBRARY: dict[str, Callable[[Any, Any], Rule | None]] = {
    "PIL": of_pillow,
    "jax": _of_jax,
    "jaxlib": lambda value, _jaxlib: _of_jax(value, sys.modules["jax"]),
    "joblib": _of_joblib,
    "keras": _of_keras,
    "pandas": _of_pandas,
    "polars": _of_polars,
    "pyarrow": _of_arrow,
    "sympy": _of_sympy,
    "tensorflow": _of_tensorflow,
    "torch": _of_torch,
}

"""Hypothesis strategies: element specs, and records that fit a spec. Also how records compare."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.errors import MissingExtraError, UnsupportedTypeError

Array = np.ndarray[Any, Any]

# Of fewer than eight bits, one value to a byte.
_SUB_BYTE_INTS = {"int2": (-2, 1), "int4": (-8, 7), "uint2": (0, 3), "uint4": (0, 15)}
_SUB_BYTE_FLOATS = {"float6_e2m3fn": 0x3F, "float6_e3m2fn": 0x3F, "float4_e2m1fn": 0x0F}


def _known(name: str) -> bool:
    """Whether this dtype is NumPy's own, or one of the ml_dtypes that is installed, if it is."""
    try:
        return dtypes.to_numpy(name) is not None
    except (MissingExtraError, UnsupportedTypeError):
        return False


NUMBERS = [name for name in sorted(dtypes.NAMES - {dtypes.STRING}) if _known(name)]
IDENTIFIERS = st.sampled_from(["Pair", "Features", "x", "label", "Größe"])

number_dtypes = st.sampled_from(NUMBERS)
all_dtypes = st.sampled_from(NUMBERS) | st.just(dtypes.STRING)


def dims(unknown: bool) -> st.SearchStrategy[int | None]:
    known = st.integers(0, 4)
    return known | st.none() if unknown else known


def shapes(unknown: bool = True, min_rank: int = 0) -> st.SearchStrategy[specs.Shape]:
    """Shapes of few values; where ``unknown``, also of unknown dimensions and unknown rank."""
    known = st.lists(dims(unknown), min_size=min_rank, max_size=max(3, min_rank)).map(tuple)
    return known | st.none() if unknown else known


def tensor_specs(
    dtype: st.SearchStrategy[str] = all_dtypes, unknown: bool = True
) -> st.SearchStrategy[specs.TensorSpec]:
    return st.builds(specs.TensorSpec, dtype, shapes(unknown))


@st.composite
def ragged_specs(draw: st.DrawFn) -> specs.RaggedSpec:
    rank = draw(st.integers(1, 3))
    shape = draw(shapes(min_rank=rank + 1))
    if shape is not None:
        # Rows of a known number of rows each are not ragged; all that is fixed is their number.
        shape = (shape[0], *[None] * rank, *shape[rank + 1 :])
    return specs.RaggedSpec(
        draw(all_dtypes), shape, rank, draw(st.sampled_from(["int32", "int64"]))
    )


sparse_specs = st.builds(specs.SparseSpec, all_dtypes, shapes())

leaf_specs = st.deferred(
    lambda: (
        tensor_specs()
        | ragged_specs()
        | sparse_specs
        | st.builds(specs.NoneSpec)
        | st.builds(specs.OptionalSpec, structures(leaf_specs))
    )
)
static_leaves = tensor_specs(number_dtypes, unknown=False)
"""Leaves of a fixed number of bytes."""


def _namedtuples(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(IDENTIFIERS, min_size=1, max_size=3, unique=True).map(tuple)

    def build(name: str, names: tuple[str, ...]) -> st.SearchStrategy[Any]:
        made = specs.namedtuple_class(name, names)
        return st.tuples(*[children for _ in names]).map(lambda values: made(*values))

    return st.tuples(IDENTIFIERS, fields).flatmap(lambda pair: build(*pair))


def structures(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Specs: leaves, alone or in a nest of containers, some of which may be empty."""
    nests = st.recursive(
        leaf,
        lambda children: (
            st.lists(children, max_size=3).map(tuple)
            | st.dictionaries(st.text(max_size=4) | st.integers(-3, 3), children, max_size=3)
            | _namedtuples(children)
        ),
        max_leaves=5,
    )
    return nests.filter(lambda spec: any(True for _ in specs.leaves(spec)))


element_specs = structures(leaf_specs)
static_specs = structures(static_leaves)
"""Specs of records of a fixed number of bytes."""


@st.composite
def _filled(draw: st.DrawFn, dtype: str, shape: tuple[int, ...]) -> Array:
    """An array of any values of a dtype; NaNs of every kind among them."""
    count = int(np.prod(shape, dtype=int))
    if dtype == dtypes.STRING:
        strings = np.empty(count, dtype=object)
        strings[:] = draw(st.lists(st.binary(max_size=9), min_size=count, max_size=count))
        return strings.reshape(shape)
    numpy = dtypes.to_numpy(dtype)
    if dtype in _SUB_BYTE_INTS:
        values = draw(st.lists(st.integers(*_SUB_BYTE_INTS[dtype]), min_size=count, max_size=count))
        return np.array(values, "i1").astype(numpy).reshape(shape)
    size = count * numpy.itemsize
    raw = np.frombuffer(draw(st.binary(min_size=size, max_size=size)) or b"", "u1").copy()
    if dtype == "bool":
        raw &= 1
    raw &= _SUB_BYTE_FLOATS.get(dtype, 0xFF)
    return raw.view(numpy).reshape(shape)


@st.composite
def tensors(draw: st.DrawFn, spec: specs.TensorSpec) -> Any:
    """A value of a dense leaf, as it is read back: a scalar where the rank is 0."""
    shape = spec.shape if spec.shape is not None else draw(shapes(unknown=False))
    assert shape is not None
    known = tuple(draw(st.integers(0, 3)) if dim is None else dim for dim in shape)
    array = draw(_filled(spec.dtype, known))
    return array[()] if known == () else array


@st.composite
def _raggeds(draw: st.DrawFn, spec: specs.RaggedSpec) -> specs.Ragged:
    first = spec.shape[0] if spec.shape is not None else None
    rows = draw(st.integers(0, 3)) if first is None else first
    splits = []
    for _ in range(spec.ragged_rank):
        lengths = draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))
        splits.append(np.cumsum([0, *lengths]).astype(spec.row_splits_dtype))
        rows = int(splits[-1][-1])
    inner = spec.components[0].shape
    if inner is None:
        inner = (rows, *(draw(shapes(unknown=False)) or ()))
    return specs.Ragged(
        draw(tensors(specs.TensorSpec(spec.dtype, (rows, *inner[1:])))), tuple(splits)
    )


@st.composite
def _sparses(draw: st.DrawFn, spec: specs.SparseSpec) -> specs.Sparse:
    shape = spec.shape if spec.shape is not None else draw(shapes(unknown=False))
    assert shape is not None
    dense = [draw(st.integers(0, 4)) if dim is None else dim for dim in shape]
    most = 0 if 0 in dense else 3
    cells = draw(
        st.lists(st.tuples(*[st.integers(0, max(n - 1, 0)) for n in dense]), max_size=most)
    )
    indices = np.array(cells, "i8").reshape(len(cells), len(dense))
    values = draw(tensors(specs.TensorSpec(spec.dtype, (len(cells),))))
    return specs.Sparse(indices, values, np.array(dense, "i8"))


def records(spec: Any) -> st.SearchStrategy[Any]:
    """Records of a spec, each as it is read back."""
    if isinstance(spec, specs.TensorSpec):
        return tensors(spec)
    if isinstance(spec, specs.RaggedSpec):
        return _raggeds(spec)
    if isinstance(spec, specs.SparseSpec):
        return _sparses(spec)
    if isinstance(spec, specs.NoneSpec):
        return st.none()
    if isinstance(spec, specs.OptionalSpec):
        return st.none() | records(spec.value)
    if isinstance(spec, dict):
        return st.fixed_dictionaries({key: records(child) for key, child in spec.items()})
    children = st.tuples(*[records(child) for child in spec])
    return children.map(lambda values: type(spec)(*values)) if is_named(spec) else children


def data_sets(
    spec: st.SearchStrategy[Any] = element_specs, max_size: int = 6
) -> st.SearchStrategy[tuple[Any, list[Any]]]:
    """A spec and some records of it."""
    return spec.flatmap(
        lambda made: st.tuples(st.just(made), st.lists(records(made), max_size=max_size))
    )


def is_named(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def same(one: Any, two: Any) -> bool:
    """Whether two records or specs are equal to the bit, in their classes too."""
    if is_named(one):
        return (
            is_named(two)
            and (type(one).__name__, one._fields) == (type(two).__name__, two._fields)
            and same(tuple(one), tuple(two))
        )
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, specs.OptionalSpec):
        return same(one.value, two.value)
    if isinstance(one, np.ndarray | np.generic):
        if one.dtype != two.dtype or one.shape != two.shape:
            return False
        if one.dtype == object:
            return same(one.reshape(-1).tolist(), two.reshape(-1).tolist())
        return one.tobytes() == two.tobytes()
    return bool(one == two)


def alike(one: Any, two: Any) -> bool:
    """Whether two values of components are the same: as numbers where they are of two dtypes, and
    otherwise to the bit."""
    if is_named(one) or is_named(two):
        return (
            is_named(one)
            and is_named(two)
            and (type(one).__name__, one._fields) == (type(two).__name__, two._fields)
            and alike(tuple(one), tuple(two))
        )
    if isinstance(one, dict) or isinstance(two, dict):
        both = isinstance(one, dict) and isinstance(two, dict)
        return both and one.keys() == two.keys() and all(alike(one[key], two[key]) for key in one)
    if isinstance(one, tuple) or isinstance(two, tuple):
        both = isinstance(one, tuple) and isinstance(two, tuple)
        return both and len(one) == len(two) and all(map(alike, one, two))
    if one is None or two is None:
        return one is two
    if isinstance(one, bytes) or isinstance(two, bytes):
        return type(one) is type(two) and bool(one == two)
    first, second = np.asarray(one), np.asarray(two)
    if first.shape != second.shape or first.dtype == second.dtype:
        return same(first, second)
    if object in (first.dtype, second.dtype):
        return False
    return all(map(_are_one_number, first.ravel(), second.ravel()))


def _are_one_number(one: Any, two: Any) -> bool:
    are_signed = _has_negative_zero(one.dtype) and _has_negative_zero(two.dtype)
    are_complex = one.dtype.kind == two.dtype.kind == "c"
    (real, imaginary), (other_real, other_imaginary) = _parts(one), _parts(two)
    return _is_equal(real, other_real, are_signed) and _is_equal(
        imaginary, other_imaginary, are_complex
    )


def _is_equal(one: float, two: float, are_signed: bool) -> bool:
    # Python compares integers and floats exactly.
    is_one = one == two or (one != one and two != two)
    is_zero = are_signed and one == two == 0
    return is_one and (not is_zero or np.signbit(one) == np.signbit(two))


def _parts(number: Any) -> tuple[float, float]:
    if number.dtype.kind == "c":
        return float(number.real), float(number.imag)
    return (int(number) if number.dtype.kind in "iub" else float(number)), 0.0


def _has_negative_zero(dtype: np.dtype[Any]) -> bool:
    return "int" not in dtype.name and dtype.name != "bool" and "fnu" not in dtype.name

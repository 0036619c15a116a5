"""What arrays and scalars of NumPy are: by dtype, shape and those bytes that mean something."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

import numpy as np

from yogadl.recipes._objects import kept
from yogadl.recipes._protocol import Walk, digest, each, pairs, text
from yogadl.recipes._special import meant_by

Array = np.ndarray[Any, Any]

# Of a long double of Intel's, which is kept in 12 or 16.
_BYTES_OF_LONG = 10
_IS_PADDED = np.finfo(np.longdouble).nmant == 63
_OF_MASKED = frozenset(
    (
        "_basedict",
        "_baseclass",
        "_fill_value",
        "_hardmask",
        "_isfield",
        "_mask",
        "_optinfo",
        "_sharedmask",
    )
)


def dtype_text(dtype: np.dtype[Any]) -> str:
    """A dtype of NumPy's or of a package that adds to them."""
    if dtype.names is not None or dtype.subdtype is not None:
        try:
            described: Any = np.lib.format.dtype_to_descr(dtype)
        except ValueError:
            # Fields that overlap, or are in another order than in memory.
            described = dtype
        return text(f"{described!r} {dtype.isalignedstruct}")
    return text(f"{dtype.str} {dtype.name}")


def dtype_of(walk: Walk, dtype: np.dtype[Any]) -> str:
    """The same with its metadata."""
    return f"{dtype_text(dtype)}{pairs(walk, dtype.metadata.items()) if dtype.metadata else ''}"


def array_rule(walk: Walk, value: Any) -> str:
    """An array."""
    if again := walk.again(value):
        return again
    # To ask NumPy for it would load it, which takes longer than all else here.
    masked = sys.modules.get("numpy.ma")
    if masked is not None and value is masked.masked:
        return walk.library("numpy", "ma.masked")
    kind, bare = type(value), np.asarray(value)
    shared = shared_by(walk, value)
    if masked is not None and isinstance(value, masked.MaskedArray):
        bare = np.asarray(value.data)
        more = _masked(walk, value)
    else:
        more = "" if kind in (np.ndarray, np.memmap) else pairs(walk, kept(value))
    name = "" if kind in (np.ndarray, np.memmap) else walk.token(kind)
    return f"array({content_of(walk, bare)}{name}{more}{shared})"


def _masked(walk: Walk, value: Any) -> str:
    more = f"{walk.token(np.ma.getmaskarray(value))},{walk.token(value.fill_value)}"
    if np.ma.getmask(value) is np.ma.nomask:
        more += ",without mask"
    if value.hardmask:
        more += ",hard"
    if value._baseclass not in (np.ndarray, np.memmap):
        more += f",of {walk.token(value._baseclass)}"
    added = {name: it for name, it in kept(value) if name not in _OF_MASKED}
    if value._optinfo:
        added["_optinfo"] = value._optinfo
    return more + (pairs(walk, added.items()) if added else "")


def shared_by(walk: Walk, value: Any) -> str:
    """Of which other value, and how, an array or memoryview is a view: who changes one changes the
    other."""
    owner = value
    while (base := _base(owner)) is not None:
        owner = base
    if type(owner) is bytes:
        # What cannot be changed need not be the same for equal values.
        return ""
    if not value.nbytes:
        return ""
    seen = np.asarray(value)
    return walk.memory(owner, _address(owner), address_of(seen), str(seen.strides))


def address_of(value: Any) -> int:
    """Where in memory something begins that NumPy can read."""
    return int(np.asarray(value).__array_interface__["data"][0])


def _address(owner: Any) -> int:
    """The same of what memory belongs to, which others may have without saying so."""
    if hasattr(type(owner), "untyped_storage"):
        return int(owner.untyped_storage().data_ptr())
    try:
        return address_of(owner if isinstance(owner, np.ndarray | np.void) else memoryview(owner))
    except (TypeError, ValueError, BufferError):
        return id(owner)


def _base(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.void):
        return value.base
    return value.obj if isinstance(value, memoryview) else None


def content_of(walk: Walk, value: Array) -> str:
    """What an array holds."""
    head = f"{dtype_of(walk, value.dtype)},{value.shape}"
    if value.dtype.hasobject or isinstance(value.dtype, getattr(np.dtypes, "StringDType", ())):
        if value.dtype.names is not None:
            return f"{head},{_fields(walk, value)}"
        return f"{head},{each(walk, value.ravel().tolist())}"
    if value.dtype.kind == "U":
        meet_texts(walk, value.ravel().tolist())
    if value.dtype.names is not None and _has_gaps(value.dtype):
        return f"{head},{_fields(walk, value)}"
    return f"{head},{digest(meaning_of(value))}"


def _fields(walk: Walk, value: Array) -> str:
    return ",".join(content_of(walk, value[name]) for name in value.dtype.names or ())


def meaning_of(value: Array) -> Any:
    """The bytes of an array, in the order of its indices, without those that mean nothing."""
    if not value.size:
        return b""
    size = value.dtype.itemsize
    if _IS_PADDED and value.dtype.char in "gG":
        value = np.ascontiguousarray(value, value.dtype.newbyteorder("="))
        size = np.dtype(np.longdouble).itemsize
        data = value.reshape(-1).view(np.uint8).reshape(-1, size)
        return np.ascontiguousarray(data[:, :_BYTES_OF_LONG])
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def _has_gaps(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype of fields has bytes that mean nothing."""
    fields = [found[0] for found in (dtype.fields or {}).values()]
    if sum(field.itemsize for field in fields) != dtype.itemsize:
        return True
    bases = [field.base for field in fields]
    return any(it.char in "gG" or (it.names is not None and _has_gaps(it)) for it in bases)


def meet_texts(walk: Walk, texts: Collection[str]) -> None:
    """Takes note of strings in which libraries may look for names, or that code may ask for."""
    walk.texts.update(texts)
    for it in texts:
        if found := meant_by(it):
            walk.mention(found)


def scalar_rule(walk: Walk, value: np.generic) -> str:
    """A scalar; those of fields are changed with the array that they are of."""
    dtype = value.dtype
    if dtype.names is not None:
        if again := walk.again(value):
            return again
        shared = shared_by(walk, value) if isinstance(value, np.void) else ""
        return f"scalar({content_of(walk, np.asarray(value))}{shared})"
    if isinstance(value, str):
        meet_texts(walk, [str(value)])
    data = meaning_of(np.asarray(value)) if dtype.char in "gG" else value
    return f"scalar({dtype_text(dtype)},{data.tobytes().hex()})"

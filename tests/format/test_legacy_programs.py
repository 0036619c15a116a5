"""Pickles made instruction by instruction: of shapes and dtypes, and such as nobody should load.

TensorFlow is not needed to make either.
"""

from __future__ import annotations

import collections
import itertools
import os
import pickle
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yogadl.errors import ChecksumError, UnsafePickleError, YogadlError
from yogadl.legacy import unpickling as legacy
from yogadl.legacy.values import LegacyShape, LegacyType
from yogadl.spec import NoneSpec, TensorSpec

pytestmark = pytest.mark.once


def check_message(error: YogadlError) -> None:
    assert len(str(error)) > 10


def named(module: str, name: str, *arguments: Any) -> bytes:
    """The instructions of a call by name."""
    parts = [b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name)]
    return b"".join(parts) + b"\x93(" + b"".join(map(code, arguments)) + b"tR"


def code(value: Any) -> bytes:
    """The instructions of a value, or instructions as they are."""
    return value if isinstance(value, bytes) else pickle.dumps(value, 2)[2:-1]


def program(body: bytes) -> bytes:
    return b"\x80\x04" + body + b"."


FRAMEWORK = "tensorflow.python.framework"


def shape(*dims: bytes | int | None) -> bytes:
    return named(
        f"{FRAMEWORK}.tensor_shape", "TensorShape", b"(" + b"".join(map(code, dims)) + b"t"
    )


def dimension(value: Any) -> bytes:
    return named(f"{FRAMEWORK}.tensor_shape", "Dimension", value)


def dtype(name: str) -> bytes:
    return named(f"{FRAMEWORK}.dtypes", "as_dtype", name)


def test_shapes_and_dtypes() -> None:
    assert legacy.load(program(shape(dimension(None), dimension(3)))) == LegacyShape((None, 3))
    assert legacy.load(program(shape(None, 3))) == LegacyShape((None, 3))
    unknown = named(f"{FRAMEWORK}.tensor_shape", "TensorShape", None)
    assert legacy.load(program(unknown)) == LegacyShape(None)
    assert legacy.load(program(dtype("bfloat16"))) == LegacyType("bfloat16")


@pytest.mark.parametrize("dim", [-1, 2**70, "3", 1.5, True, [1]])
def test_hostile_shapes(dim: Any) -> None:
    for hostile in (shape(code(dim)), shape(dimension(dim))):
        with pytest.raises(ChecksumError):
            legacy.load(program(hostile))


def test_specs() -> None:
    load = legacy.load_spec
    number, text = LegacyType("int64"), LegacyType("string")
    assert load(LegacyShape((None, 2)), number) == TensorSpec("int64", (None, 2))
    assert load(LegacyShape(None), text) == TensorSpec("string", None)
    nest = load(
        {"b": LegacyShape(()), "a": [LegacyShape((1,)), NoneSpec()]},
        collections.OrderedDict(b=text, a=(number, NoneSpec())),
    )
    assert nest == {"b": TensorSpec("string", ()), "a": (TensorSpec("int64", (1,)), NoneSpec())}
    assert list(nest) == ["b", "a"]


@pytest.mark.parametrize(
    ("shapes", "types", "error"),
    [
        (LegacyShape(()), LegacyType("resource"), ChecksumError),
        (LegacyShape(()), LegacyType("x" * 1000), ChecksumError),
        (LegacyShape((2**40, 2**40)), LegacyType("int8"), ChecksumError),
        (LegacyShape((2**61,) * 100_000), LegacyType("int8"), ChecksumError),
        ((LegacyShape(()),), LegacyType("int8"), ChecksumError),
        ((LegacyShape(()),), (LegacyType("int8"),) * 2, ChecksumError),
        ({"a": LegacyShape(())}, {"b": LegacyType("int8")}, ChecksumError),
        (LegacyShape(()), "int8", ChecksumError),
        (None, None, ChecksumError),
    ],
)
def test_hostile_specs(shapes: Any, types: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        legacy.load_spec(shapes, types)


# Hostile pickles


class Call:
    """Pickles as a call."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (Call(os.system, ("exit 1",)), "system"),
        (Call(eval, ("1",)), "eval"),
        (Call(getattr, (1, "real")), "getattr"),
        (Call(__import__, ("os",)), "__import__"),
        (Call(np.frombuffer, (b"", "O")), "numpy"),
        (Call(np.load, ("file",)), "numpy"),
        (Call(itertools.repeat, (1,)), "itertools"),
        ([Call(os.system, ("exit 1",))], "system"),
    ],
)
def test_calls(call: Any, name: str, protocol: int) -> None:
    with pytest.raises(UnsafePickleError, match=name):
        legacy.load(pickle.dumps(call, protocol))


@pytest.mark.parametrize("text", [b"cos\nsystem\n(Vexit 1\ntR.", b"(Vexit 1\nios\nsystem\n."])
def test_calls_of_protocol_0(text: bytes) -> None:
    with pytest.raises(UnsafePickleError):
        legacy.load(text)


NUMPY = "numpy._core.multiarray"
OBJECT = named("numpy", "dtype", "O8", False, True) + code((3, "|", None, None, None, -1, -1, 63))
OBJECT += b"b"
INT64 = named("numpy", "dtype", "i8", False, True) + code((3, "<", None, None, None, -1, -1, 0))
INT64 += b"b"
STRUCT = named("numpy", "dtype", "V8", False, True)
NDARRAY = b"\x8c\x05numpy\x8c\x07ndarray\x93"
EMPTY = named(NUMPY, "_reconstruct", NDARRAY, (0,), b"C\x01b")


def array(*state: Any) -> bytes:
    return EMPTY + b"(" + b"".join(map(code, state)) + b"tb"


@pytest.mark.parametrize(
    "body",
    [
        named(NUMPY, "scalar", OBJECT, 5),
        named(NUMPY, "scalar", OBJECT, b"C\x08" + bytes(8)),
        named(NUMPY, "scalar", OBJECT),
        array(1, (1,), OBJECT, False, [5]),
        array(1, (1,), OBJECT, False, [[b"a"]]),
        named(NUMPY, "_reconstruct", b"\x8c\x05numpy\x8c\x05dtype\x93", (0,), b"C\x01b"),
        STRUCT + code((3, "|", None, ("a",), {"a": 1}, 8, 1, 16)) + b"b",
        STRUCT + code((3, "|", ("i8", (2,)), None, None, 8, 1, 16)) + b"b",
        named("numpy", "dtype", "M8", False, True),
        named("numpy", "dtype", "O8,O8", False, True),
        named("numpy", "dtype", [("a", "O")], False, True),
        named("os.path", "os.system", "true"),
        named("builtins", "bytearray", 2**40),
        named("_codecs", "encode", "a", "hex"),
        named("numpy", "dtype.__class__", 1),
        named("collections.OrderedDict", "fromkeys", (1,)),
        NDARRAY + b")R",
        NDARRAY,
        INT64,
        NDARRAY + b"}b",
        NDARRAY + b"N}\x8c\x04callK\x01s\x86b",
        b"]}b",
        b"}K\x01K\x02\x86K\x03s",
        b"}G" + bytes(8) + b"K\x03s",
        b"\x82\x01",
        b"\x83\x01\x01",
        b"\x84\x01\x01\x01\x01",
        b"Pid\n",
        b"K\x01Q",
        b"(ios\nsystem\n",
        b"(cos\nsystem\no",
        NDARRAY + b")\x81",
        b"\x8f",
        b"\x97",
    ],
    ids=repr,
)
def test_unsafe(body: bytes) -> None:
    with pytest.raises(UnsafePickleError):
        legacy.load(program(body))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"0",
        b"h\x01",
        b"j\xff\xff\xff\xff",
        b"\x8e" + b"\xff" * 8,
        b"\x96" + (2**40).to_bytes(8, "little"),
        b"B\xff\xff\xff\xff",
        b"X\x01\0\0\0\xff",
        b"\x95" + b"\xff" * 8,
        b"e",
        b"K\x01e",
        b"(K\x01t]a",
        b"K\x01\x87",
        b"}(K\x01u",
        b"]" * 5000 + b"a" * 4999,
        b"K\x01" + b"\x85" * 50_000,
        b"]\x94h\0a",
        b"]" + b"\x94(h\0h\0e" * 2,
        b"]\x94" + b"".join(b"](%s%se\x94" % (b"h%c" % n, b"h%c" % n) for n in range(200)),
        EMPTY,
        named(NUMPY, "scalar", INT64, b"C\x07" + bytes(7)),
        named(NUMPY, "scalar", INT64, 5),
        named("numpy", "dtype", "i8") + code((3, "#", None, None, None, -1, -1, 0)) + b"b",
        named("numpy", "dtype", "i8") + code((3,)) + b"b",
        named(NUMPY, "scalar", named("numpy", "dtype", "i8"), b"C\x08" + bytes(8)),
        array(1, (2**40,), INT64, False, b"C\x08" + bytes(8)),
        array(1, (-1,), INT64, False, b"C\x08" + bytes(8)),
        array(1, (True,), INT64, False, b"C\x08" + bytes(8)),
        array(1, (1,) * 100, INT64, False, b"C\x08" + bytes(8)),
        array(1, (0, 2**61, 2**61), INT64, False, b"C\0"),
        array(1, (2,), OBJECT, False, [b""]),
        array(1, (2**60, 2**60), OBJECT, False, []),
        array(1, 5, INT64, False, b"C\0"),
        array(),
        named("collections", "OrderedDict", [(1, 2)]),
    ],
    ids=lambda body: repr(body)[:60],
)
def test_damaged(body: bytes) -> None:
    with pytest.raises((ChecksumError, UnsafePickleError)):
        legacy.load(program(body))


def test_huge_memo_index() -> None:
    """For which Python's unpickler fills 64 GiB."""
    assert legacy.load(program(b"K\x01r\xff\xff\xff\x7f")) == 1


def test_keys_that_hash_slowly() -> None:
    """A tuple of the same tuple twice, 60 levels: hashing it takes 2**60 steps."""
    body = b")\x94" + b"".join(b"h%ch%c\x86\x94" % (n, n) for n in range(60))
    with pytest.raises((ChecksumError, UnsafePickleError)):
        legacy.load(program(b"}" + body + b"K\x01s"))


@pytest.mark.parametrize(
    "call",
    [
        b"\x8c\x08builtins\x8c\x09bytearray\x93j\xe8\x03\0\0\x85R",
        named("numpy._core.numeric", "_frombuffer", b"j\xe8\x03\0\0", INT64, (100_000,), "C"),
        named("tensorflow.python.framework.tensor_shape", "TensorShape", b"j\xe9\x03\0\0"),
    ],
    ids=["bytearray", "array", "shape"],
)
def test_many_copies(call: bytes) -> None:
    """A short program that would make terabytes of one literal."""
    literals = b"B" + struct.pack("<I", 800_000) + bytes(800_000) + b"r\xe8\x03\0\0]r\xe9\x03\0\0("
    literals += b"K\x01" * 100_000 + b"e"
    with pytest.raises(ChecksumError, match="far more"):
        legacy.load(program(b"(" + literals + call * 20_000 + b"t"))


@pytest.mark.parametrize(
    "call",
    [
        named("numpy._core.numeric", "_frombuffer", b"C\0", INT64, b"j\xe8\x03\0\0", "C"),
        INT64 + b"j\xe8\x03\0\0b" * 1000,
        b"}X\x40\x9c\0\0" + b"k" * 40_000 + b"K\x01s",
    ],
    ids=["rank", "dtype", "key"],
)
def test_long_arguments(call: bytes) -> None:
    literal = b"(" + code(2**61) * 200_000 + b"tr\xe8\x03\0\0"
    with pytest.raises((ChecksumError, UnsafePickleError)):
        legacy.load(program(b"(" + literal + call + b"t"))


def test_trailing_bytes() -> None:
    with pytest.raises(ChecksumError):
        legacy.load(pickle.dumps(1, 4) + b"\0")


def test_errors_can_be_pickled() -> None:
    with pytest.raises(UnsafePickleError) as caught:
        legacy.load(pickle.dumps(Call(os.system, ("",))))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


BASES = [
    pickle.dumps(value, 5)
    for value in (
        (np.arange(6, dtype=np.float32).reshape(2, 3), np.int64(3)),
        {"a": np.array([b"x", b"y"], object), "b": [ml_dtypes.bfloat16(2), None, "text"]},
        (np.ones(3, ml_dtypes.bfloat16), np.zeros((), [("qint8", "i1")])[()], 2.5),
    )
]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(BASES), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255))))
def test_flipped_bytes(base: bytes, flips: list[tuple[int, int]]) -> None:
    data = bytearray(base)
    for at, byte in flips:
        data[at % len(data)] = byte
    try:
        legacy.load(bytes(data))
    except YogadlError as error:
        check_message(error)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_random_bytes(body: bytes) -> None:
    try:
        legacy.load(program(body))
    except YogadlError as error:
        check_message(error)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from([bytes([op]) for op in legacy._OPERATIONS if op not in b"\x80\x95c"]),
            st.sampled_from([EMPTY, INT64, OBJECT, NDARRAY, code((1, (2,), "a")), code([b"a"])]),
            st.integers(0, 255).map(lambda n: b"K" + struct.pack("B", n)),
        ),
        max_size=40,
    )
)
def test_random_programs(instructions: list[bytes]) -> None:
    try:
        legacy.load(program(b"".join(instructions)))
    except YogadlError as error:
        check_message(error)

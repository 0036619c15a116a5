"""Reading the pickles of yogadl 0.1.4 without unpickling them.

0.1.4 stored ``pickle.dumps(x, protocol=-1)`` of every record and of the nests of TensorFlow shapes
and dtypes. A pickle is a program, and these come from files that nobody vouches for, so the few
instructions that plain data needs are interpreted here. Python's unpickler is not used even with
``find_class`` overridden: its C code fills as much memory as a memo index asks for, hashes keys
that take exponential time, and lets ``BUILD`` set attributes of whatever ``find_class`` returned.
Of a name in a pickle nothing is imported; a handful are known here and become constructors of
our own, all others are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from yogadl.errors import (
    ChecksumError,
    UnsafePickleError,
    YogadlError,
)
from yogadl.legacy.values import (
    MAX_DIMENSION,
    ArrayStub,
    DTypeStub,
    Global,
    LegacyShape,
    find_global,
    load_spec,
    make_array,
    make_scalar,
)

Array = np.ndarray[Any, Any]

__all__ = ["load", "load_spec", "trace"]

_MAX_DEPTH = 200
_MAX_KEY = 4096
_MAX_PROTOCOL = 5
_SLACK, _GROWTH = 1000, 16


class _Machine:
    """Runs one pickle. Its memory is bounded by a multiple of the pickle's length."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        # What is made may be a copy of what is already there, and many times over; in a pickle
        # of plain data it is not, but for the pointers of object arrays.
        self._room = _SLACK + _GROWTH * len(data)

    def run(self) -> Any:
        data, operations = self._data, _OPERATIONS
        while True:
            code = data[self._at]
            self._at += 1
            if code == 0x2E:  # STOP
                break
            operation = operations.get(code)
            if operation is None:
                raise UnsafePickleError(f"a pickle has instruction {bytes([code])!r}")
            operation(self)
        if self._at != len(data) or len(self._stack) != 1:
            raise ValueError("it goes on after its end")
        return self._stack[0]

    def _take(self, size: int) -> bytes | memoryview:
        end = self._at + size
        if end > len(self._data):
            raise ValueError("it ends too early")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _line(self) -> str:
        line = bytearray()
        while (byte := self._number(1)) != 0x0A:
            line.append(byte)
        return line.decode()

    def _items(self) -> list[Any]:
        """What was pushed since the last mark, and is now removed."""
        mark = self._marks.pop()
        items = self._stack[mark:]
        del self._stack[mark:]
        return items

    def proto(self) -> None:
        if self._number(1) > _MAX_PROTOCOL:
            raise ValueError("an unknown pickle protocol")

    def frame(self) -> None:
        if self._number(8) > len(self._data) - self._at:
            raise ValueError("it ends too early")

    def push_counted(self, size: int, make: Callable[[Any], Any]) -> None:
        self._stack.append(make(self._take(self._number(size))))

    def push_number(self, size: int, signed: bool) -> None:
        self._stack.append(int.from_bytes(self._take(size), "little", signed=signed))

    def push_float(self) -> None:
        self._stack.append(struct.unpack(">d", self._take(8))[0])

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def push_tuple(self, count: int) -> None:
        items = self._stack[-count:]
        if len(items) != count:
            raise ValueError("it takes more than there is")
        self._stack[-count:] = [tuple(items)]

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def marked_tuple(self) -> None:
        self._stack.append(tuple(self._items()))

    def append(self) -> None:
        self._extend([self._stack.pop()])

    def appends(self) -> None:
        self._extend(self._items())

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise ValueError(f"it appends to a {type(target).__name__}")
        target.extend(items)

    def set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._update([key, value])

    def set_items(self) -> None:
        self._update(self._items())

    def _update(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict):
            raise ValueError(f"it sets an item of a {type(target).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Others could take forever to hash or to compare, or all have one hash.
            if not (type(key) is str and len(key) <= _MAX_KEY) and not (
                type(key) is int and abs(key) < MAX_DIMENSION
            ):
                raise UnsafePickleError(f"a pickle has a dict with a {type(key).__name__} for key")
            target[key] = value

    def memoize(self) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def put(self, size: int) -> None:
        self._memo[self._number(size)] = self._stack[-1]

    def get(self, size: int) -> None:
        self._stack.append(self._memo[self._number(size)])

    def find(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._stack.append(find_global(module, name))

    def find_line(self) -> None:
        module = self._line()
        self._stack.append(find_global(module, self._line()))

    def call(self) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if type(function) is not Global or function.call is None or type(arguments) is not tuple:
            raise UnsafePickleError("a pickle calls something that is no known constructor")
        self._stack.append(function.call(*arguments))
        self._charge(self._stack[-1])

    def build(self) -> None:
        state, target = self._stack.pop(), self._stack[-1]
        if not isinstance(target, DTypeStub | ArrayStub):
            raise UnsafePickleError(f"a pickle sets the attributes of a {type(target).__name__}")
        target.build(state)
        if isinstance(target, ArrayStub):
            self._charge(target.value)

    def _charge(self, made: Any) -> None:
        if isinstance(made, np.ndarray | np.generic):
            self._room -= made.nbytes
        elif isinstance(made, bytes | bytearray):
            self._room -= len(made)
        elif isinstance(made, LegacyShape):
            self._room -= 8 * len(made.shape or ())
        if self._room < 0:
            raise ValueError("it makes far more than it holds")


def _text(data: bytes | memoryview) -> str:
    return str(data, "utf-8", "surrogatepass")


def _long(data: bytes | memoryview) -> int:
    return int.from_bytes(data, "little", signed=True)


_OPERATIONS: dict[int, Callable[[_Machine], None]] = {
    ord(code): operation
    for code, operation in {
        "\x80": _Machine.proto,
        "\x95": _Machine.frame,
        "N": lambda machine: machine.push(None),
        "\x88": lambda machine: machine.push(True),
        "\x89": lambda machine: machine.push(False),
        "K": lambda machine: machine.push_number(1, False),
        "M": lambda machine: machine.push_number(2, False),
        "J": lambda machine: machine.push_number(4, True),
        "\x8a": lambda machine: machine.push_counted(1, _long),
        "\x8b": lambda machine: machine.push_counted(4, _long),
        "G": _Machine.push_float,
        "C": lambda machine: machine.push_counted(1, bytes),
        "B": lambda machine: machine.push_counted(4, bytes),
        "\x8e": lambda machine: machine.push_counted(8, bytes),
        "\x8c": lambda machine: machine.push_counted(1, _text),
        "X": lambda machine: machine.push_counted(4, _text),
        "\x8d": lambda machine: machine.push_counted(8, _text),
        "\x96": lambda machine: machine.push_counted(8, bytearray),
        "(": _Machine.mark,
        ")": lambda machine: machine.push(()),
        "\x85": lambda machine: machine.push_tuple(1),
        "\x86": lambda machine: machine.push_tuple(2),
        "\x87": lambda machine: machine.push_tuple(3),
        "t": _Machine.marked_tuple,
        "]": lambda machine: machine.push([]),
        "a": _Machine.append,
        "e": _Machine.appends,
        "}": lambda machine: machine.push({}),
        "s": _Machine.set_item,
        "u": _Machine.set_items,
        "\x94": _Machine.memoize,
        "q": lambda machine: machine.put(1),
        "r": lambda machine: machine.put(4),
        "h": lambda machine: machine.get(1),
        "j": lambda machine: machine.get(4),
        "\x93": _Machine.find,
        "c": _Machine.find_line,
        "R": lambda machine: machine.call(),
        "b": lambda machine: machine.build(),
    }.items()
}


class _Literal(bytearray):
    """Bytes of a pickle that know where they lie in it."""

    at = 0


class _Tracer(_Machine):
    """Notes from which bytes of the pickle arrays are made; refuses all but the plainest."""

    def __init__(self, data: bytes | memoryview) -> None:
        super().__init__(data)
        # By id; the arrays are kept, so that no id is used twice.
        self.sources: dict[int, tuple[Array, int]] = {}

    def push_counted(self, size: int, make: Callable[[Any], Any]) -> None:
        if make not in (bytes, bytearray):
            super().push_counted(size, make)
            return
        count = self._number(size)
        at = self._at
        literal = _Literal(self._take(count))
        literal.at = at
        self._stack.append(literal)

    def call(self) -> None:
        arguments, function = self._stack[-1], self._stack[-2]
        if isinstance(function, Global) and function.call is make_scalar:
            # As an array of no dimensions: it is an object of its own, as True is not.
            kind, data = arguments
            self._stack[-2:] = [make_array(data, kind, (), "C")]
            self._trace(self._stack[-1], kind, data)
            return
        super().call()
        if isinstance(self._stack[-1], np.ndarray):
            data, kind, _shape, order = arguments
            if order != "C":
                raise ValueError("another order")
            self._trace(self._stack[-1], kind, data)

    def build(self) -> None:
        state, target = self._stack[-1], self._stack[-2]
        super().build()
        if isinstance(target, ArrayStub):
            _version, _shape, kind, fortran, data = state
            if fortran:
                raise ValueError("another order")
            self._trace(target.value, kind, data)

    def _trace(self, array: Any, kind: Any, data: Any) -> None:
        if not isinstance(data, _Literal) or kind.dtype.byteorder == ">":
            raise ValueError("not its bytes as they are")
        self.sources[id(array)] = (array, data.at)


class _Resolver:
    """Puts finished values in place of those in the making."""

    def __init__(self, budget: int) -> None:
        # Parts may be shared, and shared parts share parts: the whole must not grow exponentially.
        self._budget = budget

    def resolve(self, value: Any, depth: int = 0) -> Any:
        self._budget -= 1
        if self._budget < 0 or depth > _MAX_DEPTH:
            raise ValueError("it is nested too deep")
        if isinstance(value, tuple):
            return tuple([self.resolve(item, depth + 1) for item in value])
        if isinstance(value, list):
            return [self.resolve(item, depth + 1) for item in value]
        if isinstance(value, dict):
            return type(value)((key, self.resolve(item, depth + 1)) for key, item in value.items())
        if isinstance(value, ArrayStub):
            if value.value is None:
                raise ValueError("an array without content")
            return value.value
        if isinstance(value, DTypeStub | Global):
            raise UnsafePickleError(f"a pickle holds a {type(value).__name__.strip('_').lower()}")
        return value


def load(data: bytes | memoryview) -> Any:
    """The value of a pickle that 0.1.4 wrote; arrays are fresh and writable.

    Raises:
        UnsafePickleError: it holds something else than the values a data set can have.
        ChecksumError: it is damaged.
        MissingExtraError: a dtype is in ``ml_dtypes``, which is not installed.
    """
    try:
        return _Resolver(_SLACK + _GROWTH * len(data)).resolve(_Machine(data).run())
    except YogadlError:
        raise
    except Exception as error:
        # Hostile bytes can fail in any way, and all of them mean the same.
        raise ChecksumError(
            f"a pickle is damaged: {type(error).__name__}: {str(error)[:200]}"
        ) from error


def trace(data: bytes | memoryview) -> tuple[Any, Callable[[Any], int | None]] | None:
    """The value of a pickle, scalars as arrays of no dimensions, and for each array its place.

    Of two pickles that differ only inside the bytes of arrays, all else is the same. So where many
    pickles differ only there, their arrays can be copied from them without running them.

    Returns:
        The value, and a function from an array in it to the offset of its bytes in ``data``, C
        order, little-endian; ``None`` for a pickle that also has something else than such arrays.
    """
    tracer = _Tracer(data)
    try:
        value = _Resolver(_SLACK + _GROWTH * len(data)).resolve(tracer.run())
    except Exception:
        # Whatever is wrong with it, it is found again by who then loads it.
        return None

    def place(array: Any) -> int | None:
        kept, at = tracer.sources.get(id(array), (None, 0))
        return at if kept is array else None

    return value, place

"""Python functions that TensorFlow calls, alive as long as the data set that needs them.

``tf.numpy_function`` keeps what it is given for the life of the default graph, which in eager mode
is that of the process: every data set would keep its file mapped for ever. So TensorFlow gets a
weak reference. The strong one is with a tensor, whose memory is that of a NumPy array that refers
to the functions: a function of the pipeline captures it, so that it lives as long as the data set
does in TensorFlow itself, be it in another data set, an iterator or a ``tf.function``, also when
the Python object of the data set is gone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from yogadl.cache.memory import MemoryPool
from yogadl.errors import ClosedError
from yogadl.extras import require

tf = require("tensorflow", "tensorflow")

# TensorFlow copies what is smaller into the function that captures it.
_CAPTURED_BYTES = 1024


class Calls:
    """The functions of one data set."""

    def __init__(self) -> None:
        self._functions: list[Callable[..., Any]] = []

    def numpy_function(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        kinds: Any,
        stateful: bool = False,
    ) -> Any:
        """As ``tf.numpy_function``, without keeping ``function`` alive."""
        number = len(self._functions)
        self._functions.append(function)
        reference = weakref.ref(self)

        def call(*arrays: Any) -> Any:
            calls = reference()
            if calls is None:
                raise ClosedError(
                    "the tf.data.Dataset of make_tf_dataset is gone, and its elements with it; "
                    "keep a reference to it, or to what was made of it"
                )
            return calls._functions[number](*arrays)

        return tf.numpy_function(call, inputs, kinds, stateful=stateful)

    def handle(self) -> Any:
        """A tensor that keeps the functions alive, for a function of the pipeline to capture.

        Nothing that the functions refer to may refer to it: no collector sees such a circle.

        Returns:
            A uint8 tensor; ``None`` where a graph is being built, which then keeps them.
        """
        if tf.executing_eagerly():
            return tf.experimental.dlpack.from_dlpack(np.asarray(_Handle(self)).__dlpack__())
        graph = tf.compat.v1.get_default_graph()
        while True:
            graph._yogadl_calls = [*getattr(graph, "_yogadl_calls", []), self]
            # Around the functions of eager mode is a graph that lives as long as the process.
            outer = getattr(graph, "outer_graph", None)
            if outer is None or not hasattr(outer, "outer_graph"):
                return None
            graph = outer


class _Handle:
    """What the memory of a handle's tensor refers to."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        # TensorFlow takes over memory that begins at a multiple of 64 bytes.
        self._memory = MemoryPool().empty((_CAPTURED_BYTES,), np.dtype("u1"))
        self.__array_interface__ = self._memory.__array_interface__

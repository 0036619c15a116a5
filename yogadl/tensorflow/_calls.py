"""Python functions that TensorFlow calls, alive as long as the data set that needs them.

``tf.numpy_function`` keeps what it is given for the life of the default graph, which in eager mode
is that of the process: every data set would keep its file mapped for ever. So TensorFlow gets a
weak reference, and the data set the strong one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from yogadl.errors import ClosedError
from yogadl.extras import require

tf = require("tensorflow", "tensorflow")


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

    def live_with(self, dataset: Any) -> None:
        """Ties the functions to a data set, or to the graph that is being built around it."""
        owner = dataset if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        owner._yogadl_calls = [*getattr(owner, "_yogadl_calls", []), self]

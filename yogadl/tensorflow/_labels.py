"""What a saved iterator is of, so that it is restored over nothing else.

``tf.data`` saves an iterator as places in the parts of its pipeline, which mean nothing on other
data, in another order or in other batches; but it would go on there. So the pipeline carries a
*label*, two numbers that say what it is of. It is the state of a ``scan``, which is saved with an
iterator whatever has been read of it, and part of the element that ``flat_map`` makes an epoch of,
which is saved while the epoch is read. What comes out of a restored iterator is thus labelled as it
was when it was saved, and compared with the pipeline's own label once an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xxhash

from yogadl.cache.record_reader import RecordReader
from yogadl.dataref import state_of
from yogadl.errors import StateMismatchError
from yogadl.extras import require
from yogadl.orders import Order
from yogadl.tensorflow._calls import Calls

tf = require("tensorflow", "tensorflow")

Array = np.ndarray[Any, Any]

_MISMATCHES = (
    "the saved iterator is of another data set; fetch the version that it was saved with, or begin "
    "anew without restoring",
    "the saved iterator is of another order of the data set, or of other batches; give the stream "
    "and make_tf_dataset the arguments they had, or begin anew without restoring",
)


class Label:
    """What a pipeline is of.

    Args:
        reader: of the records.
        order: of the stream.
        epoch, start: where it begins.
        arguments: whatever else decides which elements come, or how the pipeline is built.
    """

    def __init__(
        self, reader: RecordReader, order: Order, epoch: int, start: int, arguments: Sequence[Any]
    ) -> None:
        state = state_of(reader, order, epoch, start)
        data = [state.pop("dataset"), state.pop("records")]
        rest = [sorted(state.items()), order.first_epoch, order.first_place, *arguments]
        digests = [xxhash.xxh3_64_intdigest(repr(parts).encode()) for parts in (data, rest)]
        self._numbers: Array = np.array(digests, "u8").view("i8")

    def flat_map(self, starts: Any, plan: Callable[[Any], Any], calls: Calls) -> Any:
        """``starts.flat_map(plan)``, whose iterators can only be restored over the same.

        Args:
            starts: a data set of int64 ``[3]``.
            plan: makes a data set of each.
            calls: where to put the function that compares.
        """
        ours = tf.constant(self._numbers)
        labelled = starts.scan(ours, lambda label, start: (label, (start, label)))

        def checked(start: Any, label: Any) -> Any:
            found = calls.numpy_function(self._check, [start, label], tf.int64)
            found.set_shape([3])
            return plan(found)

        return labelled.flat_map(checked)

    def _check(self, start: Array, label: Array) -> Array:
        for number, ours in enumerate(self._numbers.tolist()):
            if label[number] != ours:
                raise StateMismatchError(_MISMATCHES[number])
        return start

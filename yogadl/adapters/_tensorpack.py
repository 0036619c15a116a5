"""TensorPack. Nothing of it is imported here."""

from __future__ import annotations

from typing import Any

from yogadl.adapters._base import Source
from yogadl.adapters._iterable import IterableSource
from yogadl.adapters._registry import is_a
from yogadl.errors import InfiniteDatasetError


def open_dataflow(flow: Any, spec: Any) -> Source:
    """The data points of a ``tensorpack.dataflow.DataFlow``; lists are tuples, dicts stay dicts.

    ``reset_state`` is called once, here.

    Raises:
        InfiniteDatasetError: it repeats another for ever.
    """
    inner = flow
    while inner is not None:
        if is_a(inner, "tensorpack.dataflow.RepeatedData") and inner.num == -1:
            raise InfiniteDatasetError(
                "the DataFlow has a RepeatedData without end and cannot be stored; submit it "
                "without that. To read a stored one for ever, iterate over its stream again"
            )
        inner = getattr(inner, "ds", None)
    flow.reset_state()
    return IterableSource(flow, spec, lists_are_tuples=True)

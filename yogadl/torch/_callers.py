"""Which part of torch calls.

A ``DataLoader`` does not tell a dataset what it makes of the items. What is looked for is named
here, and its absence is an error when this module is imported.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from yogadl.extras import require

torch = require("torch", "torch")

_fetch: Any = torch.utils.data._utils.fetch
_FETCHER = _fetch._IterableDatasetFetcher.__init__.__code__
_FETCHING = (
    _fetch._IterableDatasetFetcher.fetch.__code__,
    _fetch._MapDatasetFetcher.fetch.__code__,
)
_loader: Any = torch.utils.data.dataloader
_TAKES_AHEAD = _loader._MultiProcessingDataLoaderIter._try_put_index.__code__


def is_batching_loader() -> bool:
    """Whether who called the caller is a ``DataLoader`` that makes batches of the items."""
    frame = sys._getframe(2)
    return frame.f_code is _FETCHER and bool(frame.f_locals["auto_collation"])


def loaded_dataset() -> Any:
    """The dataset of the ``DataLoader`` that is making a batch, ``None`` if none is."""
    frame = _caller(*_FETCHING)
    return None if frame is None else frame.f_locals["self"].dataset


def taker_ahead() -> Any:
    """The iterator of torch's ``DataLoader`` that takes positions for its workers, ahead of the
    batches that it gives out; ``None`` if none does. Others, such as torchdata's, know better, and
    ask for states themselves."""
    frame = _caller(_TAKES_AHEAD)
    return None if frame is None else frame.f_locals["self"]


def has_taken_ahead(taker: Any) -> bool:
    """Whether there are positions that such an iterator has taken and given out no batch of."""
    return bool(taker._tasks_outstanding)


def _caller(*codes: types.CodeType) -> types.FrameType | None:
    """The last frame of some code that called this, if any did."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code not in codes:
        frame = frame.f_back
    return frame

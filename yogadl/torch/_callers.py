"""Which part of torch calls.

A ``DataLoader`` does not tell a dataset what it makes of the items. What is looked for is named
here, and its absence is an error when this module is imported.
"""

from __future__ import annotations

import sys
from typing import Any

from yogadl.extras import require

torch = require("torch", "torch")

_fetcher: Any = torch.utils.data._utils.fetch._IterableDatasetFetcher
_FETCHER = _fetcher.__init__.__code__


def is_batching_loader() -> bool:
    """Whether who called the caller is a ``DataLoader`` that makes batches of the items."""
    frame = sys._getframe(2)
    return frame.f_code is _FETCHER and bool(frame.f_locals["auto_collation"])

"""Batches announced to the system just before they are read, where that is of use."""

from __future__ import annotations

from typing import Any

import numpy as np

from yogadl.cache.record_reader import RecordReader

_MOST_SAMPLES = 8
_MOST_UNSEEN = 15


class BatchAnnouncer:
    """Announces batches that nobody knew of before, unless the page cache has got them.

    To look for a record there takes a system call, and lets other Python threads take over. So up
    to 8 records of a batch are looked for, fewer after every batch that was there, and in the end
    one record of every 16th batch. As soon as one is missing, all are looked at again.

    Safe for threads, which at worst look once more or less.
    """

    def __init__(self) -> None:
        self._samples = _MOST_SAMPLES
        self._unseen = 0
        self._left = 0

    def before(self, reader: RecordReader, positions: np.ndarray[Any, Any]) -> None:
        """To be called before some records are read; positions as in ``RecordReader``."""
        if self._left > 0:
            self._left -= 1
        elif not len(positions):
            return
        elif reader.are_cached(positions[:: -(-len(positions) // self._samples)]):
            if self._samples > 1:
                self._samples //= 2
            else:
                self._unseen = min(2 * self._unseen + 1, _MOST_UNSEEN)
            self._left = self._unseen
        else:
            self._samples, self._unseen = _MOST_SAMPLES, 0
            reader.announce(positions)

"""Profiles, and loops that are measured."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from yogadl.cache.traffic import Traffic
from yogadl.core import Stream
from yogadl.dataref._batches import StreamBatches
from yogadl.dataref._stream import IndexedStream
from yogadl.errors import InvalidArgumentError
from yogadl.extras import require
from yogadl.profile._meter import Clock, Meter
from yogadl.profile._report import Report
from yogadl.profile._timed import LoadTimer, TimedRef


class Profile:
    """Measures loops over streams, batches and data sets. What is measured more than once adds up.

    Streams may be read by any number of threads. Each :meth:`watch` is for one iteration at a time;
    threads that iterate at once need one each. Processes are measured apart.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self._clock = clock
        self._meters: list[Meter] = []
        self._loader = LoadTimer(clock, self._waited)
        self._streams = 0
        # What each data set has asked for, and had when its stream was profiled.
        self._traffic: list[tuple[Traffic, Traffic]] = []
        self._other_name = "other"

    def __repr__(self) -> str:
        report = self.report()
        return (
            f"{type(self).__name__}({report.items:,} items in {report.wall:.3f} s, of which "
            f"{report.waiting:.3f} s were waiting)"
        )

    def stream(self, stream: Stream) -> IndexedStream:
        """The same stream, measured: it has the same records, and the same place in them.

        Touches the pages of all records before they are read, which costs a little more than
        reading them untouched. Cannot be pickled, and is closed by itself.

        Args:
            stream: of ``DataRef.stream``.

        Raises:
            InvalidArgumentError: another stream.
            ClosedError: the stream or its DataRef is closed.
        """
        if not isinstance(stream, IndexedStream):
            raise InvalidArgumentError(
                f"Profile.stream takes a stream of DataRef.stream, not {stream!r:.100}; anything "
                "that can be iterated over can be given to Profile.watch"
            )
        known = {id(traffic) for traffic, _ in self._traffic}
        for traffic in stream.epochs.reader().traffic():
            if id(traffic) not in known:
                self._traffic.append((traffic, dataclasses.replace(traffic)))
        profiled = IndexedStream(
            stream.epochs.read_by(TimedRef(stream.epochs.dataref, self._loader))
        )
        self._streams += 1
        return profiled

    def watch(self, iterable: Iterable[Any]) -> Watched:
        """The same items, with the time spent in getting each and the time until the next measured.

        The time between the last item and a ``break`` is not counted.

        Args:
            iterable: a stream, its batches, a ``tf.data.Dataset``, or anything else. Every
                iteration over what is returned is one over it.
        """
        if type(iterable).__module__.partition(".")[0] == "tensorflow":
            self._other_name = "TensorFlow and other"
        return Watched(iterable, self._new_meter())

    def watch_dataset(self, dataset: Any) -> Any:
        """A ``tf.data.Dataset`` as one that measures itself: for Keras's ``fit``, which takes no
        other iterable, and for loops inside a ``tf.function``.

        It prefetches, as TensorFlow does by itself for a data set that does not; put nothing behind
        it. One iteration at a time.

        Raises:
            InvalidArgumentError: it is no ``tf.data.Dataset``.
            MissingExtraError: TensorFlow is not installed.
        """
        tf = require("tensorflow", "tensorflow")
        if not isinstance(dataset, tf.data.Dataset):
            raise InvalidArgumentError(
                f"watch_dataset takes a tf.data.Dataset, not {dataset!r:.100}; see Profile.watch"
            )
        meter = self._new_meter()
        self._other_name = "TensorFlow and other"

        def ask(number: Any) -> Any:
            meter.ask(first=number == 0)
            return np.int64(0)

        def give() -> Any:
            meter.give()
            return np.int64(0)

        def given(_asked: Any, element: Any) -> Any:
            tf.numpy_function(give, [], tf.int64)
            return element

        asked = tf.data.Dataset.counter().map(
            lambda number: tf.numpy_function(ask, [number], tf.int64)
        )
        # A zip asks its first data set before its second.
        zipped = tf.data.Dataset.zip((asked, dataset.prefetch(tf.data.AUTOTUNE)))
        options = tf.data.Options()
        # TensorFlow would put it behind the measuring.
        options.experimental_optimization.inject_prefetch = False
        autograph = tf.autograph.experimental.do_not_convert
        return zipped.map(autograph(given)).with_options(options)

    def report(self) -> Report:
        """What was measured until now; may be called at any time."""
        waiting = self._waited(self._clock())
        model = sum(meter.model for meter in self._meters)
        disk, decoding, records = self._loader.sums()
        awaited = disk.awaited + decoding.awaited
        # Several threads may have been waited for at once.
        share = min(1.0, waiting / awaited) if awaited else 0.0
        shown_disk, shown_decoding = disk.awaited * share, decoding.awaited * share
        counts = [meter.records for meter in self._meters]
        known = [count for count in counts if count is not None]
        loaded = records if self._streams else None
        return Report(
            wall=model + waiting,
            model=model,
            waiting=waiting,
            disk=shown_disk,
            decoding=shown_decoding,
            other=max(0.0, waiting - shown_disk - shown_decoding),
            other_name=self._other_name,
            disk_busy=disk.busy,
            decoding_busy=decoding.busy,
            hidden=max(0.0, disk.busy + decoding.busy - shown_disk - shown_decoding),
            items=sum(meter.items for meter in self._meters),
            records=sum(known) if len(known) == len(counts) else loaded,
            streams=self._streams,
            requests=sum(now.requests - then.requests for now, then in self._traffic),
            fetched_bytes=sum(now.nbytes - then.nbytes for now, then in self._traffic),
        )

    def _new_meter(self) -> Meter:
        meter = Meter(self._clock)
        self._meters.append(meter)
        return meter

    def _waited(self, now: float) -> float:
        """Seconds waited until now."""
        return sum(meter.waited(now) for meter in self._meters)


class Watched:
    """What :meth:`Profile.watch` returns: every iteration is measured, and added up."""

    def __init__(self, iterable: Iterable[Any], meter: Meter) -> None:
        self._iterable = iterable
        self._meter = meter

    def __len__(self) -> int:
        """As of what is watched; ``TypeError`` if that has none."""
        return len(self._iterable)  # type: ignore[arg-type] # raises what it should

    def __iter__(self) -> Iterator[Any]:
        meter = self._meter
        meter.ask(first=True)
        try:
            for item in self._iterable:
                meter.give(self._records(item))
                yield item
                meter.ask()
        finally:
            meter.end()

    def _records(self, item: Any) -> int | None:
        if isinstance(self._iterable, Stream):
            return 1
        # Of others, the first axis may be of one record.
        return _batch_length(item) if isinstance(self._iterable, StreamBatches) else None


def _batch_length(batch: Any) -> int | None:
    """The first axis of the first leaf of a batch of NumPy arrays and lists, if it has a leaf."""
    if not isinstance(batch, dict | tuple):
        return len(batch)
    children = batch.values() if isinstance(batch, dict) else batch
    return next((n for n in map(_batch_length, children) if n is not None), None)

"""The report of a profile, as numbers, text and JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

_ADVICE = {
    "model": "the loader is not the bottleneck",
    "disk": "try a larger read_ahead= of DataRef.stream, a faster disk, or more memory",
    "decoding": "read whole batches, by stream.batches or make_tf_dataset(batch_size=), and store "
    "records of fixed size",
    "TensorFlow and other": "try map with num_parallel_calls=, and prefetch at the end",
    "other": "read larger batches, by stream.batches, and do less in Python before the loop",
}
# Less is printed as zero.
_VISIBLE = 0.0005
_UNKNOWN = "give the stream to Profile.stream to learn what disk and decoding have of it"


@dataclass(frozen=True)
class Report:
    """What a profile measured so far. ``str`` makes a text of it. All times are in seconds.

    Attributes:
        wall: time of the iterations, ``model + waiting``.
        model: between an item and the request for the next one.
        waiting: for items, ``disk + decoding + other``.
        disk: waiting while the loader waited for the disk.
        decoding: waiting while the loader looked up, checked and copied records.
        other: all other waiting.
        other_name: ``"TensorFlow and other"`` if a ``tf.data.Dataset`` was watched, else
            ``"other"``.
        disk_busy, decoding_busy: what the loader spent on these in all its threads.
        hidden: what of that cost no time: it was done while the model ran, or by several threads
            at once.
        items: how many were given out.
        records: how many these were, if that can be told; else how many the profiled streams have
            read, also ahead; ``None`` without such a stream.
        streams: how many streams are profiled; without one, all waiting is ``other``.
        requests: to buckets and web servers since the streams were profiled, of data sets that are
            read without a download; for them, ``disk`` is waiting for the network.
        fetched_bytes: that came by these; a request counts once it has ended.
    """

    wall: float
    model: float
    waiting: float
    disk: float
    decoding: float
    other: float
    other_name: str
    disk_busy: float
    decoding_busy: float
    hidden: float
    items: int
    records: int | None
    streams: int
    requests: int = 0
    fetched_bytes: int = 0

    @property
    def largest(self) -> str:
        """What has the largest part: ``"model"``, ``"disk"``, ``"decoding"`` or ``other_name``."""
        parts = {"model": self.model, "disk": self.disk, "decoding": self.decoding}
        parts[self.other_name] = self.other
        return max(parts, key=parts.__getitem__)

    @property
    def advice(self) -> str:
        """A sentence on what has the largest part, and what to try."""
        if not self.wall:
            return "Nothing was watched yet."
        unknown = self.largest == self.other_name and not self.streams
        advice = _UNKNOWN if unknown else _ADVICE[self.largest]
        return f"The largest part is {self.largest}: {advice}."

    @property
    def records_per_second(self) -> float | None:
        """``None`` where the records are not known."""
        return self.records / self.wall if self.records is not None and self.wall else None

    def to_json(self) -> str:
        """All attributes as a JSON object."""
        derived = {
            "records_per_second": self.records_per_second,
            "largest": self.largest,
            "advice": self.advice,
        }
        return json.dumps({**dataclasses.asdict(self), **derived})

    def __str__(self) -> str:
        rows = [("wall time", self.wall), ("  model", self.model), ("  waiting", self.waiting)]
        if self.streams:
            rows += [
                ("    network" if self.requests else "    disk", self.disk),
                ("    decoding", self.decoding),
            ]
            rows += [(f"    {self.other_name}", self.other)]
        whole = self.wall or 1.0
        lines = [f"{name:26}{took:10.3f} s {took / whole:6.1%}" for name, took in rows]
        if self.hidden >= _VISIBLE:
            lines.append(
                f"loader threads were busy: disk {self.disk_busy:.3f} s, decoding "
                f"{self.decoding_busy:.3f} s, of which {self.hidden:.3f} s cost no time"
            )
        counts = f"{self.items:,} items"
        if self.records is not None:
            counts += f", {self.records:,} records"
        if self.requests:
            lines.append(f"{self.requests:,} requests, {self.fetched_bytes / 1e6:,.1f} MB fetched")
        if self.records_per_second is not None:
            counts += f", {self.records_per_second:,.0f} records/s"
        return "\n".join([*lines, counts, self.advice])

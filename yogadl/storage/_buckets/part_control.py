"""What builders and collectors of the parts of an id in a bucket agree by.

One object, ``<id>/yogadl.parts/yogadl.control``, which is only ever changed by conditional writes.
Its JSON is described in ``docs/cloud.md``.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from yogadl.conditional import ABSENT, Document, is_sealed, sealed, unsealed
from yogadl.errors import StoreError
from yogadl.storage._objects.probe import cannot_be_trusted
from yogadl.storage._objects.store import ObjectStore

CONTROL_OBJECT = "yogadl.control"
FORMAT = 1

LARGEST = 256 << 20
"""Bytes: the names of some seven million parts."""

REMOVED_SECONDS = 2 * 86400.0
"""For which names of removed parts are not used again; more than twice what a request takes."""

_DIGEST_CHARACTERS = 32
_LONGEST_PAUSE = 0.5
_MOST_LOOKS = 20
_READS = 3

Times: TypeAlias = dict[bytes, "float | None"]


@dataclass
class Control:
    """What the object says. Times are the store's, in seconds since 1970; ``None`` stands for the
    time at which the object was written.

    Attributes:
        builders: who is storing parts, by names nobody else has, and when they last said so.
        unused: digests of parts, and since when no version refers to them.
        removed: digests of parts that are being removed, or were, and since when. Nobody may store
            or refer to such a part.
    """

    builders: dict[str, float | None] = field(default_factory=dict)
    unused: Times = field(default_factory=dict)
    removed: Times = field(default_factory=dict)

    def copy(self) -> Control:
        """The same, to be changed."""
        return Control(dict(self.builders), dict(self.unused), dict(self.removed))

    def dated(self, now: float) -> Control:
        """The same with ``now`` for the time at which it was written."""
        return Control(
            {name: now if since is None else since for name, since in self.builders.items()},
            {digest: now if since is None else since for digest, since in self.unused.items()},
            {digest: now if since is None else since for digest, since in self.removed.items()},
        )

    def is_dated(self) -> bool:
        """Whether all times are known."""
        maps: Iterable[dict[Any, float | None]] = (self.builders, self.unused, self.removed)
        return all(since is not None for times in maps for since in times.values())

    def to_json(self, nonce: str) -> bytes:
        """The object's bytes."""
        found = {
            "format": FORMAT,
            "nonce": nonce,
            "builders": self.builders,
            "unused": _grouped(self.unused),
            "removed": _grouped(self.removed),
        }
        return sealed(found)

    @staticmethod
    def parse(data: bytes, name: str) -> tuple[Control, str]:
        """What the object says, whatever is in it, and its nonce.

        Raises:
            StoreError: nothing that this yogadl understands.
        """
        try:
            # What was written before there was a checksum has none.
            found = unsealed(data) if is_sealed(data) else json.loads(data)
            if found["format"] != FORMAT:
                raise StoreError(
                    f"{name} is of format {found['format']!r:.20}, and this yogadl knows {FORMAT}; "
                    "use a newer yogadl"
                )
            builders = {str(who): _time(since) for who, since in found["builders"].items()}
            control = Control(builders, _parsed(found["unused"]), _parsed(found["removed"]))
            return control, str(found["nonce"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise _DamagedError(
                f"{name} is damaged, so it is not known which parts may be used or removed; delete "
                "it when nobody stores parts there"
            ) from error


def is_over(since: float, now: float) -> bool:
    """Whether the name of a part that was removed may be used again."""
    return now - since >= REMOVED_SECONDS


class _DamagedError(StoreError):
    """What the object says makes no sense."""


class _ControlDocument(Document[Control]):
    """See ``Document``. Whoever changes it is shown when all of it was written."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        super().__init__(store, key, LARGEST)
        self._store = store
        self._name = f"{store.url}/{key}"

    def _empty(self) -> Control:
        return Control()

    def _parse(self, data: bytes) -> tuple[Control, str]:
        return Control.parse(data, self._name)

    def _encode(self, content: Control, nonce: str) -> bytes:
        return content.to_json(nonce)

    def _cannot_be_trusted(self, what: str) -> Exception:
        return cannot_be_trusted(self._store, what)

    def _is_busy(self, seconds: float) -> Exception:
        return StoreError(f"{self._name} was changed by others for {seconds:g} s; try again later")

    def _load(self, patience: float | None = None) -> tuple[Control, str, str]:
        for _ in range(_READS - 1):
            with contextlib.suppress(_DamagedError):
                return self._load_once(patience)
            # It may be the answer that is damaged.
        return self._load_once(patience)

    def _load_once(self, patience: float | None) -> tuple[Control, str, str]:
        found = self._store.read_dated(self._key, patience, LARGEST)
        if found is None:
            return Control(), ABSENT, ""
        data, tag, created = found
        control, nonce = self._parse(data)
        return control if created is None else control.dated(created.timestamp()), tag, nonce

    def read(self, patience: float | None = None) -> tuple[Control, str]:
        """See ``ControlObject.read``."""
        for _ in self._tries():
            control, tag = super().read(patience)
            if control.is_dated():
                return control, tag
            info = self._store.head(self._key)
            if info is not None and info.tag == tag:
                return control.dated(info.created.timestamp()), tag
        raise self._unsteady()

    def now(self) -> tuple[Control, str, float]:
        """See ``ControlObject.now``."""
        for _ in self._tries():
            _, tag = self.change(lambda control: control)
            info = self._store.head(self._key)
            if info is not None and info.tag == tag:
                now = info.created.timestamp()
                control, found = super().read()
                if found == tag:
                    return control.dated(now), tag, now
        raise self._unsteady()

    def _tries(self) -> Iterator[int]:
        """So many as others may come between, with pauses."""
        for attempt in range(_MOST_LOOKS):
            if attempt:
                time.sleep(random.uniform(0, _LONGEST_PAUSE))
            yield attempt

    def _unsteady(self) -> StoreError:
        return StoreError(
            f"{self._name} was another one at each of {_MOST_LOOKS} looks, or there at one and "
            "missing at the next; try again when fewer store parts there"
        )


class ControlObject:
    """The object, as its builders and collectors read and write it. Safe for threads.

    Args:
        store: the bucket.
        key: of the object.
    """

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._document = _ControlDocument(store, key)

    def read(self) -> tuple[Control, str]:
        """What it says, all times known, and its tag.

        Raises:
            StoreError: that cannot be told.
        """
        return self._document.read()

    def now(self) -> tuple[Control, str, float]:
        """What it says, its tag, and the store's time, between which and the tag nothing happened.

        Raises:
            StoreError: that cannot be told.
        """
        return self._document.now()

    def change(
        self, change: Callable[[Control], object], known: tuple[Control, str] | None = None
    ) -> tuple[Control, str]:
        """Changes what it says, in one step; what it says then, and its tag.

        Args:
            change: changes it, and may be called more than once, on what is there each time. Having
                been called on what it made itself, it makes the same of it.
            known: what it said a moment ago, and its tag then, so that it need not be read: all
                times known but those that ``change`` sets or takes out.

        Raises:
            StoreError: that cannot be done.
        """

        def make(control: Control) -> Control:
            found = control.copy()
            change(found)
            return found

        return self._document.change(make, known=known)

    def write(self, control: Control, if_tag: str) -> str | None:
        """Writes it if it has this tag; its new tag, or ``None`` if it has another."""
        return self._document.write(control, if_tag)


def _time(since: Any) -> float | None:
    if since is not None and not isinstance(since, int | float):
        raise TypeError(f"{since!r:.50} is no time")
    return since


def _grouped(times: Times) -> list[list[Any]]:
    """Few times with many digests each."""
    groups: dict[float | None, list[str]] = {}
    for digest, since in times.items():
        groups.setdefault(since, []).append(digest.hex())
    return [[since, "".join(digests)] for since, digests in groups.items()]


def _parsed(groups: Any) -> Times:
    times: Times = {}
    for since, digests in groups:
        if len(digests) % _DIGEST_CHARACTERS:
            raise ValueError("a digest was cut off")
        for at in range(0, len(digests), _DIGEST_CHARACTERS):
            times[bytes.fromhex(digests[at : at + _DIGEST_CHARACTERS])] = _time(since)
    return times

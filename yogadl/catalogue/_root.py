"""The root of a catalogue, and the small objects that it is one of."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

from yogadl.catalogue import _segment
from yogadl.catalogue._state import State
from yogadl.conditional import ConditionalObjects, Document
from yogadl.errors import CatalogueError

ROOT = "root.json"

READS = 3
"""Of what is damaged: it may be the answer that is."""


class CatalogueObjects(ConditionalObjects, Protocol):
    """The small objects that a catalogue is kept in: all those of one folder."""

    @property
    def where(self) -> str:
        """The folder, for people."""

    def alone(self, patience: float | None) -> contextlib.AbstractContextManager[object]:
        """Keeps others from writing meanwhile, where there are locks; else it does nothing."""

    def delete(self, key: str) -> None:
        """Deletes an object, if it is there."""

    def times(self) -> dict[str, float]:
        """All objects, and when they were written, by the store's clock, in seconds."""

    def cannot_be_trusted(self, what: str) -> Exception:
        """The error for a store that does not do what it should."""


class Root(Document[State]):
    """See ``Document``."""

    def __init__(self, objects: CatalogueObjects) -> None:
        super().__init__(objects, ROOT, _segment.LARGEST)
        self._folder = objects
        # By its tag, so that what is as it was is not parsed again.
        self._last: tuple[str, State, str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}

    def _parsed(self, data: bytes, tag: str) -> tuple[State, str]:
        last = self._last
        if last is None or last[0] != tag:
            self._last = last = (tag, *self._parse(data))
        return last[1:]

    def _wrote(self, content: State, tag: str, nonce: str) -> None:
        self._last = tag, content, nonce

    @property
    def name(self) -> str:
        return f"{self._folder.where}/{ROOT}"

    def _load(self, patience: float | None = None) -> tuple[State, str, str]:
        for _ in range(READS - 1):
            with contextlib.suppress(CatalogueError):
                return super()._load(patience)
            # It may be the answer that is damaged.
        return super()._load(patience)

    def _empty(self) -> State:
        return State()

    def _parse(self, data: bytes) -> tuple[State, str]:
        return State.parse(data, self.name)

    def _encode(self, content: State, nonce: str) -> bytes:
        return content.to_json(nonce)

    def _cannot_be_trusted(self, what: str) -> Exception:
        return self._folder.cannot_be_trusted(what)

    def _is_busy(self, seconds: float) -> Exception:
        return CatalogueError(
            f"{self.name} was changed by others for {seconds:g} s; try again when there are fewer"
        )

    def _alone(self, patience: float | None) -> contextlib.AbstractContextManager[object]:
        return self._folder.alone(patience)

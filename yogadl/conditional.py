"""Small objects that many may change, each on condition that nobody else did meanwhile."""

from __future__ import annotations

import abc
import contextlib
import json
import random
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import xxhash

from yogadl.errors import YogadlError

ABSENT = ""
"""A precondition: there must be no such object yet."""

SMALL_BYTES = 1 << 20
"""A small object has no more, unless it is known to."""

# A field that has the digest of all that follows it.
_HEAD = b'{"checksum": "%s", '
_HEAD_SIZE = len(_HEAD) - 2 + 32
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5
_MOST_REFUSALS = 10


class PreconditionFailedError(Exception):
    """The object is not in the state that a conditional request asked for."""


def sealed(found: Mapping[str, Any]) -> bytes:
    """JSON of an object, whose first field, ``checksum``, has the digest of all that follows."""
    body = json.dumps(found).encode()
    return _HEAD % xxhash.xxh3_128_hexdigest(body).encode() + body[1:]


def unsealed(data: bytes) -> Any:
    """The inverse of :func:`sealed`.

    Raises:
        ValueError: it is damaged.
        RecursionError: likewise.
    """
    head, body = data[:_HEAD_SIZE], b"{" + data[_HEAD_SIZE:]
    found = json.loads(body)
    if head != _HEAD % xxhash.xxh3_128_hexdigest(body).encode():
        raise ValueError("it is not what was written")
    return found


def is_sealed(data: bytes) -> bool:
    """Whether something begins as :func:`sealed` has it."""
    return data.startswith(_HEAD[: _HEAD.index(b"%")])


class ConditionalObjects(Protocol):
    """Objects that can be replaced on condition that they are as they were."""

    def read(
        self, key: str, patience: float | None = None, largest: int = SMALL_BYTES
    ) -> tuple[bytes, str] | None:
        """An object and its tag, which differs whenever the contents do; ``None`` if there is none.

        Args:
            key: of the object.
            patience: seconds after which no other try begins.
            largest: bytes that it may have; one with more is an error.
        """

    def write(
        self, key: str, data: bytes, if_tag: str | None = None, patience: float | None = None
    ) -> str:
        """Writes an object and returns its tag.

        Args:
            key: of the object.
            data: all of it.
            if_tag: do so only if the object has this tag, or, if ``ABSENT``, is not there.
            patience: as for :meth:`read`.

        Raises:
            PreconditionFailedError: it is otherwise. After a lost answer, the object may be in this
                state because an earlier try of the same call succeeded.
        """


Content = TypeVar("Content")


class Document(abc.ABC, Generic[Content]):
    """An object that is only ever changed by conditional writes. Safe for threads and processes, of
    any machine.

    Each write has a nonce, which tells one whose answer was lost from others' writes.

    Args:
        objects: among which it is.
        key: of it.
        largest: bytes that it may have.
    """

    def __init__(self, objects: ConditionalObjects, key: str, largest: int) -> None:
        self._objects = objects
        self._key = key
        self._largest = largest

    # What a kind of document supplies

    @abc.abstractmethod
    def _empty(self) -> Content:
        """What it says as long as it is not there."""

    @abc.abstractmethod
    def _parse(self, data: bytes) -> tuple[Content, str]:
        """What it says, and its nonce, whatever is in it; raises if that makes no sense."""

    @abc.abstractmethod
    def _encode(self, content: Content, nonce: str) -> bytes:
        """Its bytes."""

    @abc.abstractmethod
    def _cannot_be_trusted(self, what: str) -> Exception:
        """The error for a store that does not do what it should."""

    @abc.abstractmethod
    def _is_busy(self, seconds: float) -> Exception:
        """The error for one that others have changed for so long."""

    def _alone(self, patience: float | None) -> contextlib.AbstractContextManager[object]:  # noqa: ARG002 # overrides need it
        """What keeps others from changing it meanwhile, where there is such a thing."""
        return contextlib.nullcontext()

    # What is the same for all of them

    def _load(self, patience: float | None = None) -> tuple[Content, str, str]:
        """What it says now, its tag and its nonce."""
        found = self._objects.read(self._key, patience, self._largest)
        if found is None:
            return self._empty(), ABSENT, ""
        content, nonce = self._parsed(*found)
        return content, found[1], nonce

    def _parsed(self, data: bytes, _tag: str) -> tuple[Content, str]:
        """See :meth:`_parse`; who knows what is said by what has this tag need not parse it."""
        return self._parse(data)

    def _wrote(self, content: Content, tag: str, nonce: str) -> None:
        """Is told what was written."""

    def read(self, patience: float | None = None) -> tuple[Content, str]:
        """What it says now, and its tag."""
        content, tag, _ = self._load(patience)
        return content, tag

    def write(self, content: Content, if_tag: str, patience: float | None = None) -> str | None:
        """Writes it if it has this tag; its new tag, or ``None`` if it has another."""
        nonce = uuid.uuid4().hex
        data = self._encode(content, nonce)
        try:
            tag = self._objects.write(self._key, data, if_tag, patience)
        except PreconditionFailedError:
            # After a lost answer, it was sent again and met its own work.
            _, tag, found = self._load(patience)
            return tag if found == nonce else None
        self._wrote(content, tag, nonce)
        return tag

    def _written_on(
        self,
        guess: tuple[Content, str],
        make: Callable[[Content], Content | None],
        patience: float | None,
    ) -> tuple[Content, str] | None:
        """Changes it if it is as guessed; ``None`` if nothing comes of that."""
        content, tag = guess
        try:
            made = make(content)
        except YogadlError:
            # It may be otherwise by now.
            return None
        written = None if made is None else self.write(made, tag, patience)
        return None if made is None or written is None else (made, written)

    def change(
        self,
        make: Callable[[Content], Content | None],
        patience: float | None = None,
        known: tuple[Content, str] | None = None,
    ) -> tuple[Content, str]:
        """Changes what it says, in one step; what it says then, and its tag.

        Args:
            make: what it is to say, given what it says; ``None`` if there is nothing to change. It
                may be called more than once, on what is there each time, also on what it made
                itself. What it raises ends the change.
            patience: seconds after which it is given up; ``None`` for never.
            known: what it said a moment ago, and the tag it had: if it still has that, it need not
                be read. It is a guess: nothing but a write that succeeds comes of it.
        """
        until = None if patience is None else time.monotonic() + patience
        with self._alone(patience):
            tries, refusals, before = 0, 0, None
            while True:
                rest = None if until is None else max(until - time.monotonic(), 0.01)
                if known is not None:
                    guess, known = known, None
                    done = self._written_on(guess, make, rest)
                    if done is not None:
                        return done
                content, tag = self.read(rest)
                made = make(content)
                if made is None:
                    return content, tag
                written = self.write(made, tag, rest)
                if written is not None:
                    return made, written
                refusals = refusals + 1 if tag == before else 0
                before = tag
                if refusals == _MOST_REFUSALS:
                    raise self._cannot_be_trusted(
                        f"it refused to write {self._key}, which is as it was asked to be"
                    )
                if until is not None and time.monotonic() > until:
                    raise self._is_busy(patience or 0.0)
                tries += 1
                longest = min(_FIRST_PAUSE * 2.0 ** min(tries, 30), _LONGEST_PAUSE)
                time.sleep(random.uniform(0, longest))

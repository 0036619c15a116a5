"""What is given back when whoever has it is done, also if Ctrl-C ends that anywhere.

An interrupt may come between any two steps of the main thread, those of a ``finally`` too. So what
says that somebody has something is an object that ends with the frame that has it; what the
interpreter does then has no steps in between.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable


class Token:
    """Whoever has this has something; it ends with the last reference."""

    __slots__ = ("__weakref__",)


class GivenBack:
    """For one thread at a time; tokens may end in any."""

    def __init__(self) -> None:
        self._had: dict[weakref.ref[Token], Callable[[], object]] = {}
        self._ended: collections.deque[weakref.ref[Token]] = collections.deque()

    def token(self, give_back: Callable[[], object]) -> Token:
        """For something that is had from now on.

        Args:
            give_back: called by :meth:`look` some time after the token has ended; perhaps again if
                it is interrupted.
        """
        made = Token()
        self._had[weakref.ref(made, self._ended.append)] = give_back
        return made

    def look(self) -> None:
        """Gives back what nobody has any more."""
        while self._ended:
            ended = self._ended[0]
            give_back = self._had.get(ended)
            if give_back is not None:
                give_back()
                self._had.pop(ended, None)
            self._ended.popleft()

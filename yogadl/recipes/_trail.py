"""How a walk came to what it looks at, for those who have to mend what cannot be told."""

from __future__ import annotations

import contextlib
import types
import typing
from collections.abc import Iterator

from yogadl.errors import UndeterminedError
from yogadl.recipes._owners import name_of_module

_MOST_STEPS = 8


class Trail:
    """Where a walk is.

    Attributes:
        steps: that led there, for people.
        names: by which what is there, and what it is in, can be ignored.
    """

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.names: list[str] = []
        # Where it was too deep, if it was.
        self._deep: tuple[list[str], list[str]] | None = None

    def refuse(self, what: str, name: str = "") -> typing.NoReturn:
        """See ``Walk``."""
        name = name or (self.names[-1] if self.names else "")
        where = "".join(f" → {it}" if it[:1] not in ".[{" else it for it in self.steps)
        advice = f"leave it out with ignore=({name!r},), and " if name else ""
        raise UndeterminedError(
            f"what determines the data cannot be told: {where.removeprefix(' → ')} is {what}. "
            f"To go on, {advice}say with key= what it stands for, or give a version"
        )

    def refuse_deep(self) -> typing.NoReturn:
        """Refuses what is in so many others that Python has given up."""
        if self._deep is not None:
            self.steps, self.names = self._deep
        del self.steps[_MOST_STEPS:]
        self.refuse(
            "a value that is nested too deeply, as some 200 objects that have each other are; "
            "sys.setrecursionlimit allows more"
        )

    def refuse_module(self, module: types.ModuleType, name: str) -> typing.NoReturn:
        """The same of a module of the user's that is more than the beginning of a name."""
        own = name_of_module(module) or name
        with self.named(name):
            self.refuse(
                f"the module {own} itself, of which it cannot be told what is used; "
                "name what you use, or put it into a dict"
            )

    def restart(self, name: str) -> None:
        """Goes on from what has a name."""
        self.steps, self.names = [name], [name]

    @contextlib.contextmanager
    def named(self, *names: str) -> Iterator[None]:
        """What can be ignored by a name, inside."""
        depth, named = len(self.steps), len(self.names)
        self.names += names[:1]
        self.steps += names[1:]
        try:
            yield
        except RecursionError:
            self._deep = self._deep or ([*self.steps], [*self.names])
            raise
        finally:
            del self.steps[depth:], self.names[named:]

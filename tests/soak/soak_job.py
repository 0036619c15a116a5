"""What all jobs of the soak have in common."""

from __future__ import annotations

import abc
import contextlib
import pathlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from soak_children import Child, Repeating


class Job(abc.ABC):
    """Something that goes on, round after round, until its time is over or something is wrong.

    Args:
        seed: of all that it does by chance.
        folder: an empty one.
        deadline: when to end, by ``time.monotonic``.

    Attributes:
        seed: as given.
        folder: as given.
        chance: for the job itself.
        counts: of what it did.
    """

    readers = 0
    """How many processes read beside it."""

    def __init__(self, seed: str, folder: pathlib.Path, deadline: float) -> None:
        self.seed = seed
        self.folder = folder
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._deadline = deadline
        self._usual: dict[object, float] = {}

    def run(self) -> None:
        """Does it.

        Raises:
            AssertionError: something is not as promised.
        """
        self.prepare()
        with self._beside(self.readers) as readers:
            # At least once, however slow the machine is.
            while not self.counts["rounds"] or time.monotonic() < self._deadline:
                self.round()
                self.counts["rounds"] += 1
                for reader in readers:
                    if not reader.is_running:
                        reader.wait()

    @abc.abstractmethod
    def prepare(self) -> None:
        """What has to be there before the first reader."""

    @abc.abstractmethod
    def round(self) -> None:
        """One round."""

    def reading(self, number: int) -> Callable[[], Counter[str]]:
        """What reader ``number`` does again and again, in a process of its own."""
        raise NotImplementedError(f"{type(self).__name__} has no reader {number}")

    def kill(self, child: Child, kind: object) -> bool:
        """Kills a child at a moment of all that its kind of work usually takes, or about its end.

        Returns:
            Whether it was still at work.
        """
        usual = self._usual.get(kind, 0.1)
        cut_short = child.kill_after(usual * self.chance.uniform(*self.chance.choice(_MOMENTS)))
        self._usual[kind] = usual * 1.2 if cut_short else 0.5 * usual + 0.5 * child.age
        self.counts["kills"] += cut_short
        return cut_short

    @contextlib.contextmanager
    def _beside(self, count: int) -> Iterator[Sequence[Repeating]]:
        with contextlib.ExitStack() as stack:
            children = [
                stack.enter_context(Repeating(self.reading(number))) for number in range(count)
            ]
            yield children
            for child in children:
                self.counts.update(child.stop())


_MOMENTS = (0.0, 1.1), (0.8, 1.2)

"""What processes that are killed have noted down, and what follows from it."""

from __future__ import annotations

import json
import os
import pathlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Key: TypeAlias = tuple[str, str]
"""An id, and a version, tag or key of the metadata."""

ASKED, DONE, REFUSED, ENDED = "asked", "done", "refused", "ended"
REGISTERS = ("submit", "tag", "set_metadata")
"""What sets something that has been set before, always by processes of the same slot."""

# One byte for each operation that ended, of all processes.
_ENDED_FILE = "ended"


class Journal:
    """What one process notes down: before it asks for something, and when it has an answer.

    Args:
        folder: in which all journals are.
        slot: of the process; one has it at a time.
        generation: how many processes of this slot there were before.
    """

    def __init__(self, folder: pathlib.Path, slot: int, generation: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(folder / f"{slot:03}-{generation:06}.journal", flags)
        self._ended = os.open(folder / _ENDED_FILE, flags)

    def note(self, state: str, operation: str, *about: Any) -> None:
        """Notes it at once, all or nothing.

        Args:
            state: ``ASKED``, ``DONE``, ``REFUSED``; ``ENDED`` for an operation of which it does not
                matter what it did.
            operation: what is asked for.
            about: of the first three, an id, a name, and a value that JSON can hold.
        """
        os.write(self._file, (json.dumps([state, operation, *about]) + "\n").encode())
        if state == ENDED:
            os.write(self._ended, b".")


@dataclass
class Register:
    """What is there now, as far as it is known.

    Attributes:
        last: what was acknowledged last.
        maybe: what was asked for after that, by who was killed.
    """

    last: Any = None
    maybe: list[Any] = field(default_factory=list)

    def note(self, state: str, value: Any) -> None:
        """What a process has noted about it."""
        if state == ASKED:
            self.maybe.append(value)
        elif state == DONE:
            self.last, self.maybe = value, []
        else:
            self.maybe = [each for each in self.maybe if each != value]

    def may_be(self, value: Any) -> bool:
        """Whether that may be there."""
        return value == self.last or value in self.maybe


class History:
    """What all processes have asked for, and what of it was acknowledged.

    Args:
        folder: in which their journals are.

    Attributes:
        ended: how many operations of each kind were not killed.
        asked: by operation and name, the values that were asked for.
        done: by operation, what was acknowledged, with its last value.
        refused: by operation, what was refused, so that it is not there.
        registers: by operation of ``REGISTERS`` and name.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.ended: Counter[str] = Counter()
        self.asked: dict[str, dict[Key, list[Any]]] = defaultdict(lambda: defaultdict(list))
        self.done: dict[str, dict[Key, Any]] = defaultdict(dict)
        self.refused: dict[str, set[Key]] = defaultdict(set)
        self.registers: dict[str, dict[Key, Register]] = defaultdict(lambda: defaultdict(Register))
        # Those of a slot in the order of its processes.
        for path in sorted(folder.glob("*.journal")):
            for line in path.read_text().splitlines():
                self._take(*json.loads(line))

    def _take(self, state: str, operation: str, *about: Any) -> None:
        if state == ENDED:
            self.ended[operation] += 1
            return
        dataset_id, name, value = about
        key = dataset_id, name
        if state == ASKED:
            self.asked[operation][key].append(value)
        elif state == DONE:
            self.done[operation][key] = value
        else:
            self.refused[operation].add(key)
        if operation in REGISTERS:
            self.registers[operation][key].note(state, value)


def ended_in(folder: pathlib.Path) -> int:
    """How many operations were not killed until now."""
    path = folder / _ENDED_FILE
    return path.stat().st_size if path.exists() else 0

"""The threads of a process that fetch from one server: started when there is work, gone when there
is none."""

from __future__ import annotations

import threading
from collections.abc import Callable

from yogadl.remote._local.open_files import most_connections

CONNECTIONS = 80
"""Threads of a process for one server, each with a connection."""

# So many see soon enough that a server permits more than it did.
_MOST_REFUSED = 8


class Crew:
    """For one thread at a time. Of what Ctrl-C ends halfway, nothing is left that nobody would do.

    Args:
        mutex: what whoever calls this has; let go of in :meth:`rest` and :meth:`pause` alone.
        run: what a thread does.
        has_room: whether there may be more of all crews together; of each, there may be one.
    """

    def __init__(
        self,
        mutex: threading.Lock,
        run: Callable[[], object],
        has_room: Callable[[], bool],
    ) -> None:
        self._mutex = mutex
        self._run = run
        self._has_room = has_room
        self._threads: set[threading.Thread] = set()
        # One that Ctrl-C kept from starting is not alive, and one that it left to begin by itself
        # will be. To ask all of them takes too long to do it for each piece of work.
        self._is_in_doubt = False
        self._most = most_connections(CONNECTIONS)
        # What those wait with that nobody has called.
        self._resting: list[threading.Condition] = []
        # And those that are to end, but have not found out yet.
        self._dismissed: set[threading.Condition] = set()
        # By one another, so that who asks need not wait until all have started.
        self._to_start = 0
        # Those of which the server refused what they asked for last.
        self._refused: set[threading.Thread] = set()

    def call(self, at_least: int = 1) -> None:
        """Has a thread look for work: one that rests, or a new one; see :meth:`start`."""
        if self._resting:
            # The last one, whose connection is the warmest. It is woken for this work, and the next
            # work needs another.
            self._resting[-1].notify()
            self._resting.pop()
        else:
            self.start(at_least)

    def call_idle(self) -> None:
        """The same of one that rests, if any does."""
        if self._resting:
            self.call()

    def call_many(self, count: int) -> None:
        """The same of so many."""
        idle = min(len(self._resting), count)
        for _ in range(idle):
            self.call()
        self._to_start = count - idle
        self.start_next()

    def call_all(self) -> None:
        """Has all that rest look for work."""
        for each in self._resting:
            each.notify()
        self._resting.clear()

    @property
    def count(self) -> int:
        """How many threads there are."""
        if self._is_in_doubt:
            return sum(thread.is_alive() for thread in self._threads)
        return len(self._threads)

    @property
    def busy(self) -> int:
        """How many neither rest nor are about to end."""
        return self.count - len(self._dismissed.union(self._resting))

    def dismiss(self) -> None:
        """Has those that rest end, unless there is work and room for them."""
        self._dismissed.update(self._resting)
        self.call_all()

    def start_next(self) -> None:
        """Starts one of those that :meth:`call_many` has left to the others."""
        if self._to_start > 0:
            self._to_start -= 1
            self.start()

    def start(self, at_least: int = 1) -> None:
        """Starts a new one, if there are not very many, and most of them are not refused anything.

        Args:
            at_least: so many there may be though there are very many of all crews.

        Raises:
            RuntimeError: the system has no more, and there is none.
        """
        refused = len(self._refused)
        if refused and (refused >= _MOST_REFUSED or 2 * refused > self.count):
            # They look for work soon.
            return
        if self.count >= self._most or (self.count >= at_least and not self._has_room()):
            return
        thread = threading.Thread(target=self._run, name="yogadl fetch", daemon=True)
        if self._is_in_doubt:
            self._threads = {each for each in self._threads if each.is_alive()}
            self._is_in_doubt = False
        try:
            self._threads.add(thread)
            thread.start()
        except RuntimeError:
            self._threads.discard(thread)
            # Those that there are do it, if there are any.
            if self.count == 0:
                raise
        except BaseException:
            self._is_in_doubt = True
            raise

    def leave(self) -> None:
        """Of one of the threads: it is about to end, and takes no more work."""
        self._threads.discard(threading.current_thread())
        self._refused.discard(threading.current_thread())

    def rest(self, seconds: float, is_last: bool = False) -> bool:
        """Of one of the threads: waits until it is called, but for so long at most.

        Args:
            seconds: so long.
            is_last: call it after all others.

        Returns:
            Whether it was dismissed.
        """
        me = threading.Condition(self._mutex)
        self._resting.insert(0 if is_last else len(self._resting), me)
        me.wait(seconds)
        if me in self._resting:
            self._resting.remove(me)
        is_dismissed = me in self._dismissed
        self._dismissed.discard(me)
        return is_dismissed

    def pause(self, seconds: float) -> None:
        """Of one of the threads: waits for so long, whoever calls."""
        threading.Condition(self._mutex).wait(seconds)

    def is_refused(self) -> bool:
        """Of one of the threads, which the server has refused something; whether there are enough
        of those without it."""
        self._refused.add(threading.current_thread())
        return len(self._refused) > _MOST_REFUSED

    def is_served(self) -> None:
        """Of one of the threads, which the server does not refuse any more what it asks for."""
        self._refused.discard(threading.current_thread())

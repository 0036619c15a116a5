"""The threads of a process that fetch from one server, and what they fetch next.

A server that stalls keeps all of its threads, and none of others'. What comes next, ``work_queue``
says. All of it is claimed first, so that no two threads or processes fetch the same bytes; see
``sparse_file``.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from yogadl import backoff
from yogadl.errors import StoreError
from yogadl.remote._fetching.bulk_queue import BULK_CONNECTIONS, PAUSE_SECONDS
from yogadl.remote._fetching.crew import Crew
from yogadl.remote._fetching.given_back import GivenBack
from yogadl.remote._fetching.left_to_others import LOOK_SECONDS
from yogadl.remote._fetching.passing import AHEAD_BYTES, KEPT_PAUSE_SECONDS, Passing
from yogadl.remote._fetching.refusals import SERVED, Refusals
from yogadl.remote._fetching.transfer import CutError, DiskError, RefusedError, Transfer
from yogadl.remote._fetching.urgency import Urgency
from yogadl.remote._fetching.waiters import Waiters
from yogadl.remote._fetching.work import EndedError, Range, Small, Work
from yogadl.remote._fetching.work_queue import WorkQueue
from yogadl.remote._local.open_files import most_connections_in_all

if TYPE_CHECKING:
    from yogadl.remote._fetching.connections import Connections

_IDLE_SECONDS = 5.0
# Where something was refused lately, and others may want the connection.
_REFUSED_IDLE_SECONDS = 0.5
# So many are kept though nothing was asked of their servers for long.
_MOST_DESKS = 64

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Office:
    """What all desks of a process have in common.

    Attributes:
        mutex: whoever looks at any of this, or of theirs, has it.
        arrived: who waits until something has come.
        passing: what is in memory.
        given_back: what is given back when whoever has it is done.
        desks: by the servers that they are for.
        has_told_disk: whether it was said that a disk cannot be written to.
        most_threads: of all desks together, though each may have one.
    """

    mutex: threading.Lock = field(default_factory=threading.Lock)
    arrived: Waiters = field(default_factory=Waiters)
    passing: Passing = field(default_factory=Passing)
    given_back: GivenBack = field(default_factory=GivenBack)
    desks: dict[str, Desk] = field(default_factory=dict)
    has_told_disk: bool = False
    most_threads: int = field(default_factory=most_connections_in_all)

    def desk(self, server: str) -> Desk:
        """The one for a server."""
        found = self.desks.get(server)
        if found is None:
            if len(self.desks) >= _MOST_DESKS:
                self.desks = {name: it for name, it in self.desks.items() if it.is_used()}
            found = self.desks[server] = Desk(self)
        return found

    def room(self, desk: Desk) -> int:
        """How many bytes a desk may have under way that nobody waits for yet: what others leave of
        all that may be, and a share of it in any case, since one that stalls keeps what it has."""
        room = self.passing.room(work.file for work in desk.queue.bulk.beside())
        others = [it.queue.ahead() for it in self.desks.values() if it is not desk]
        busy = sum(map(bool, others))
        return max(room - sum(others), min(room, AHEAD_BYTES // (busy + 1)))

    def has_room_for_a_thread(self) -> bool:
        """Whether there may be more of them, of all desks together; otherwise those that have
        nothing to do end."""
        if self._count_of_threads() < self.most_threads:
            return True
        crews = [desk.crew for desk in self.desks.values()]
        for crew in crews:
            crew.dismiss()
        return sum(crew.busy for crew in crews) < self.most_threads

    def has_too_many_threads(self) -> bool:
        """Whether there are more than may be, of all desks together."""
        return self._count_of_threads() > self.most_threads

    def _count_of_threads(self) -> int:
        return sum(desk.crew.count for desk in self.desks.values())

    def tell_arrived(self) -> None:
        """Wakes all who wait; for who has not the mutex."""
        with self.mutex:
            self.arrived.wake_all()


class Desk:
    """What is asked of one server. For who has the office's mutex, but for the threads.

    Args:
        office: see there.

    Attributes:
        queue: what is to be fetched.
        crew: the threads that do it.
        urgency: what becomes of what somebody waits for.
        refusals: what the server refuses.
        is_full: whether somebody waits to ask for more.
    """

    def __init__(self, office: Office) -> None:
        self._office = office
        self.queue = WorkQueue()
        self.crew = Crew(office.mutex, self._run, office.has_room_for_a_thread)
        self.urgency = Urgency(self.queue, self.crew.call)
        self.refusals = Refusals(office.mutex, self.queue)
        self.is_full = False

    def is_used(self) -> bool:
        """Whether it has anything to do, or threads that may be about to have."""
        return self.crew.count > 0 or bool(self.queue) or bool(self.refusals.opening)

    def overtake(self, lacking: Sequence[Range], small: Small) -> list[Range]:
        """See ``Urgency.overtake``."""
        again = self.urgency.overtake(lacking, small)
        if self.queue.urgent:
            # Who was to call a thread for it may have been interrupted.
            self.crew.start()
        return again

    def use_room(self) -> None:
        """To be called when something was read, so that more may be fetched ahead."""
        if self.queue.lacks_room:
            # No more than find something: on a busy machine, others keep them all from working.
            for _ in range(self.queue.fitting(self._office.room(self), BULK_CONNECTIONS)):
                self.crew.call()

    # Threads

    def _run(self) -> None:
        # Only who fetches needs it.
        from yogadl.remote._fetching.connections import Connections

        try:
            connections = Connections()
        except OSError as error:
            self._lack_memory(error)
            return
        try:
            with self._office.mutex:
                self._claim_bulk()
                self.crew.start_next()
            while self._do_next(connections):
                pass
        except BaseException:
            # Whatever it is, there may be another thread in its place.
            with self._office.mutex:
                self.crew.leave()
            raise
        finally:
            connections.close()

    def _claim_bulk(self) -> None:
        """Claims what comes first of bulk that was added, and tells who waits for that."""
        if self.queue.bulk.is_unclaimed:
            self.queue.bulk.claim()
            self._office.arrived.wake_all()

    def _lack_memory(self, error: OSError) -> None:
        """To be called by a thread for which there is no memory: the others do its work, if there
        are any, and who waits is told otherwise."""
        _log.debug("Cannot have one more thread: %s", error)
        with self._office.mutex:
            self.crew.leave()
            left: list[Work] = []
            if self.crew.count == 0:
                left += self.queue.urgent
                self.queue.urgent.clear()
        for work in left:
            self._fail(work, error)

    def _do_next(self, connections: Connections) -> bool:
        """Does some work; ``False`` when there has been none for a while.

        In a function of its own, so that a file is let go of when its work is done.
        """
        work = self._take_work(connections)
        if work is None:
            return False
        rest: int | None = None
        is_refused = False
        try:
            self._fetch(work, connections)
        except CutError as cut:
            rest, is_refused = cut.at, isinstance(cut, RefusedError)
        except EndedError:
            _log.debug("Nobody wants the rest of %s.", work.file.asked.name)
        except BaseException as error:
            # Who waits for it would wait for ever.
            self._fail(work, error)
        finally:
            self._finish(work, rest, is_refused)
        if is_refused:
            # Without the work, which others do meanwhile: so there are as many connections as the
            # server allows, and it is seen when these are more.
            _log.debug("%s was refused, and is left to other connections.", work.file.asked.name)
            del work
            return self._pause(connections)
        if connections.refusals:
            connections.refusals = max(0.0, connections.refusals - SERVED)
            with self._office.mutex:
                self.crew.is_served()
        if self.refusals.gives_way(connections.since):
            with self._office.mutex:
                # Another one may have.
                if self.refusals.gives_way(connections.since):
                    self.refusals.give_way(connections.close)
        return True

    def _pause(self, connections: Connections) -> bool:
        """To be called by a thread that was refused; ``False`` when there are enough of these."""
        connections.refusals += 1
        with self._office.mutex:
            if self.crew.is_refused():
                self.crew.leave()
                return False
            self.crew.pause(backoff.pause_after(math.ceil(connections.refusals)))
        return True

    def _take_work(self, connections: Connections) -> Work | None:
        """What to do next, claimed; ``None`` when there has been nothing for a while."""
        office, bulk = self._office, self.queue.bulk
        with office.mutex:
            until = time.monotonic() + self._idle_seconds()
            was_interrupted = is_dismissed = False
            while True:
                if is_dismissed and self.crew.count > 1 and office.has_too_many_threads():
                    # There may be work, but others have been started in its place.
                    self.crew.leave()
                    return None
                if self.refusals.last and (connections.refusals or not connections):
                    while (rest := self.refusals.way_until - time.monotonic()) > 0:
                        self.crew.pause(rest)
                office.given_back.look()
                self._claim_bulk()
                if bulk.take_back():
                    self.crew.call_all()
                found = self.queue.take(office.room(self))
                if self.is_full and self.queue.has_room():
                    self.is_full = False
                    office.arrived.wake_all()
                if found is not None:
                    if was_interrupted:
                        # There may be as much for each of those that had nothing to do meanwhile.
                        self.crew.call_all()
                    return found
                if self.refusals.opening and connections:
                    self.refusals.give_way(connections.close)
                was_interrupted = bulk.is_interrupted
                if was_interrupted:
                    is_dismissed = self.crew.rest(PAUSE_SECONDS)
                    continue
                rest = until - time.monotonic()
                if rest <= 0 or is_dismissed:
                    rest = self._rest_as_last()
                    if not rest:
                        self.crew.leave()
                        return None
                    # Others may want it, of whom nobody knows.
                    connections.close()
                    until = time.monotonic() + rest
                rest = min(rest, LOOK_SECONDS) if bulk.left else rest
                is_dismissed = self.crew.rest(rest, is_last=not connections)

    def _idle_seconds(self) -> float:
        """For how long a thread rests with its connection."""
        is_wanted = self.refusals.are_late(time.monotonic())
        return min(_IDLE_SECONDS, _REFUSED_IDLE_SECONDS) if is_wanted else _IDLE_SECONDS

    def _rest_as_last(self) -> float:
        """For how long a thread rests that had nothing to do, before it looks again; 0.0 for who is
        not the last one, or has nothing to stay for."""
        passing = self._office.passing
        passing.let_go_of_ended()
        is_soon = passing.let_go_of_kept()
        # The last one stays for what is in memory until its file is closed, and as long as others
        # are fetching what may be left to it.
        if self.crew.count > 1 or not (passing or self.queue.bulk.left):
            return 0.0
        return KEPT_PAUSE_SECONDS if is_soon else _IDLE_SECONDS

    def _fetch(self, work: Work, connections: Connections) -> None:
        if work.file.ended.is_set():
            raise EndedError
        # Who has claimed some bytes may be about to write them, right or wrong: nobody else does,
        # since those that are there may be compared as a whole, and then nobody looks again.
        is_kept = work.is_claimed and work.file.space.take(work.stop - work.start)
        if (work.is_bulk or work.must_keep) and not is_kept:
            with self._office.mutex:
                self.queue.bulk.end(work.bulk)
            return
        if not is_kept:
            self._transfer(work, connections, is_kept=False)
            return
        try:
            self._keep(work, connections)
        finally:
            work.file.space.written(work.stop - work.start)

    def _keep(self, work: Work, connections: Connections) -> None:
        try:
            self._transfer(work, connections, is_kept=True)
            self._drop_kept(work)
        except CutError:
            self._drop_kept(work)
            raise
        except DiskError as error:
            level = logging.DEBUG if self._office.has_told_disk else logging.WARNING
            self._office.has_told_disk = True
            _log.log(level, "%s cannot be written to: %s", work.file.pieces.path, str(error))
            work.file.space.is_full()
            if not (work.is_bulk or work.must_keep):
                self._transfer(work, connections, is_kept=False)

    def _drop_kept(self, work: Work) -> None:
        """Lets go of what is in memory of what is kept now, or it waits there to be read."""
        # Who adds more of it sees that it is kept.
        if not work.file.pieces.memory:
            return
        with self._office.mutex:
            self._office.passing.drop_kept([(work.file, work.start, work.stop)])

    def _transfer(self, work: Work, connections: Connections, is_kept: bool) -> None:
        transfer = Transfer(work, is_kept, self._office.tell_arrived)
        try:
            transfer.run(connections, self.urgency.lateness.answered, self.refusals.is_for_others)
        except CutError as cut:
            if not is_kept:
                self._pass(work, cut.at, transfer.memory)
            raise
        if not is_kept:
            self._pass(work, work.stop, transfer.memory)

    def _pass(self, work: Work, stop: int, memory: memoryview) -> None:
        """Has what came of some work, up to an offset, wait in memory to be read."""
        passing, where = self._office.passing, (work.file, work.start, stop)
        with self._office.mutex:
            # Who was asked first may have brought it meanwhile, and who waited for it be gone.
            if stop > work.start and not work.file.pieces.is_kept(work.start, stop):
                passing.add(where, memory[: stop - work.start])
                passing.drop_kept([where])

    def _fail(self, work: Work, error: BaseException) -> None:
        with self._office.mutex:
            if work.is_bulk:
                self.queue.bulk.end(work.bulk)
                if isinstance(error, StoreError) and error.is_transient:
                    # Who has waited for it has been as patient as if it had come by itself.
                    work.file.note_failure(work.start, work.stop, error)
            elif work.is_claimed or not self.queue.is_being_fetched(
                work.file, work.start, work.stop, is_claimed=True
            ):
                work.file.note_failure(work.start, work.stop, error)
            self._office.arrived.wake_all()

    def _finish(self, work: Work, rest: int | None, is_refused: bool) -> None:
        """Lets go of some work.

        Args:
            work: it.
            rest: where what is to be fetched later begins, if any is.
            is_refused: whether it is, since it was refused.
        """
        with self._office.mutex:
            self.queue.flying.discard(work)
            work.file.traffic.requests += work.requests
            work.file.traffic.nbytes += work.nbytes
            self.urgency.lateness.came(work.nbytes, work.progressed - work.began)
            self.refusals.note_end(work, rest, is_refused)
            if work.bulk is None:
                # What is kept leaves room to others, too.
                for desk in self._office.desks.values():
                    if desk is not self:
                        desk.use_room()
            else:
                self.queue.bulk.note_end(work)
                # There may be more connections now than when it began.
                for _ in range(self.queue.bulk.free() - 1):
                    self.crew.call()
            if work.is_claimed:
                work.file.pieces.release(work.start, work.stop, work.is_bulk)
            if rest is not None:
                # What is claimed would be passed over.
                self.queue.put_back(work, rest, is_refused)
                if is_refused:
                    self.crew.call_idle()
            self._office.arrived.wake_all()

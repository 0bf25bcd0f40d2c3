"""The coordinator of one transactional id, after Kafka's TransactionCoordinator (4.3).

Its log is replicated perfectly, but for what is being written while the coordinator moves: that may
be in the log of the next one, or not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from tests.simulation.events import EventQueue
from tests.simulation.exactly_once.marked_log import ABORT
from tests.simulation.exactly_once.setup import Place, TransactionSetup, Who

if TYPE_CHECKING:
    from tests.simulation.exactly_once.markers import Markers

LOADING, NOT_COORDINATOR = 14, 16
BAD_STATE, UNMAPPED, CONCURRENT, FENCED, ABORTABLE = 48, 49, 51, 90, 120
LAST_EPOCH = 32766
AGAIN = 0.05
NOBODY = Who()

Reply = Callable[[int, Who], None]
"""Takes an error code, and who the producer is from now on."""


class Phase(Enum):
    """How far a transaction has come."""

    EMPTY = "empty"
    ONGOING = "ongoing"
    PREPARED = "prepared"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Standing:
    """What the log says of the transactional id. ``kind``: how it ends, or has ended."""

    phase: Phase = Phase.EMPTY
    kind: bytes = b""
    who: Who = NOBODY
    last_epoch: int = -1  # the one before, if the producer itself has asked for another
    former_id: int = -1
    next_id: int = -1  # when all epochs of the id are used up
    timeout: float = 60.0
    places: frozenset[Place] = frozenset()
    number: int = 0  # of the transaction


class Coordinator:
    """``node``: the broker that coordinates now. ``era`` counts those that have."""

    def __init__(
        self,
        setup: TransactionSetup,
        events: EventQueue,
        rng: random.Random,
        markers: Markers,
    ) -> None:
        self.node = 0
        self.loaded = True
        self.era = 0
        self.level = setup.level
        self.standing = Standing(who=Who(-1, setup.coordinated_epoch))
        self._setup = setup
        self._events = events
        self._rng = rng
        self._markers = markers
        self._pending: Standing | None = None
        self._next_id = 4000

    # Where it is ------------------------------------------------------------------------------

    def absence(self, node: int) -> int:
        """Why that broker cannot answer; 0 if it can."""
        if node != self.node:
            return NOT_COORDINATOR
        return 0 if self.loaded else LOADING

    def move(self, to: int, gap: float) -> None:
        """Another broker takes over; it answers after ``gap`` seconds."""
        self.era += 1
        era = self.era
        if self._pending is not None:
            if self._rng.random() < 0.5:
                self.standing = self._pending
            self._pending = None
        self.node, self.loaded = to, False
        self._events.after(gap, lambda: self._load(era))

    def _load(self, era: int) -> None:
        if era == self.era:
            self.loaded = True
            self._go_on()

    def _write(self, after: Standing, reply: Reply | None = None, code: int = 0) -> None:
        """Have it in the log, then answer; whoever asks meanwhile is told to wait."""
        era, self._pending = self.era, after

        def written() -> None:
            if era != self.era:
                if reply is not None:
                    reply(NOT_COORDINATOR, Who())
                return
            self._pending, self.standing = None, after
            if reply is not None:
                reply(code, identity_after(after))
            self._go_on()

        self._events.after(self._setup.replication, written)

    def _go_on(self) -> None:
        """What follows from what was written, or read."""
        now = self.standing
        if now.phase is Phase.PREPARED:
            self._send_markers(now)
        elif now.phase is Phase.ONGOING:
            number, era = now.number, self.era
            self._events.after(now.timeout, lambda: self._time_out(number, era))

    # The end of a transaction -----------------------------------------------------------------

    def _send_markers(self, now: Standing) -> None:
        left, era = set(now.places), self.era

        def done(place: Place) -> None:
            left.discard(place)
            if not left and era == self.era and self.standing is now and not self._pending:
                self._write(_completed(now))

        for place in sorted(now.places):
            self._markers.mark(place, now.who, now.kind, era, lambda at=place: done(at))  # type: ignore[misc]
        if not left:
            self._write(_completed(now))

    def _time_out(self, number: int, era: int) -> None:
        now = self.standing
        if era != self.era or now.number != number or now.phase is not Phase.ONGOING:
            return
        if self._pending is not None:
            self._events.after(AGAIN, lambda: self._time_out(number, era))
        elif now.who.epoch <= LAST_EPOCH:  # else nothing could fence the producer: as Kafka
            self._write(self._fenced(now))

    def _fenced(self, now: Standing) -> Standing:
        """Aborted in an epoch that nobody is told."""
        last = now.who.epoch if self.level >= 2 else -1
        who = now.who._replace(epoch=min(now.who.epoch, LAST_EPOCH) + 1)
        return replace(now, phase=Phase.PREPARED, kind=ABORT, who=who, last_epoch=last)

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id

    # What is asked ----------------------------------------------------------------------------

    def initialize(self, node: int, present: Who, timeout: float, reply: Reply) -> None:
        """Give an id and epoch; what is open is aborted first."""
        now = self.standing
        code = self.absence(node) or self._busy() or _stranger(now, present)
        if code:
            reply(code, Who())
        elif now.phase is Phase.ONGOING:
            self._write(self._fenced(now), reply, CONCURRENT)
        else:
            after = self._renewed(now, present, timeout)
            if after is None:
                reply(FENCED, Who())
            else:
                self._write(after, reply)

    def _renewed(self, now: Standing, present: Who, timeout: float) -> Standing | None:
        """With the next epoch; None for a producer that was fenced."""
        epoch, after = now.who.epoch, replace(now, phase=Phase.EMPTY, places=frozenset())
        after = replace(after, timeout=timeout)
        is_new = present.producer_id < 0
        if now.who.producer_id < 0:
            return replace(after, who=Who(self._take_id(), epoch + 1))
        if epoch >= LAST_EPOCH and (is_new or present.epoch == epoch):
            last = -1 if is_new else epoch
            who = Who(self._take_id(), 0)
            return replace(after, who=who, last_epoch=last, former_id=now.who.producer_id)
        following = now.who._replace(epoch=epoch + 1)
        if is_new:
            return replace(after, who=following, last_epoch=-1)
        if present.epoch == epoch:
            return replace(after, who=following, last_epoch=epoch)
        return after if present.epoch == now.last_epoch else None

    def add(self, node: int, who: Who, places: Iterable[Place], reply: Reply) -> None:
        """Something is about to be written there: the transaction begins, if it has not."""
        now = self.standing
        code = self._refusal(node, who)
        if code:
            reply(code, Who())
            return
        begun = now.phase is Phase.ONGOING
        if begun and now.places.issuperset(places):
            reply(0, who)
            return
        number = now.number if begun else now.number + 1
        together = (now.places if begun else frozenset()).union(places)
        self._write(replace(now, phase=Phase.ONGOING, places=together, number=number), reply)

    def verify(self, node: int, who: Who, place: Place, reply: Reply) -> None:
        """Is the place part of the open transaction?"""
        code = self._refusal(node, who)
        there = self.standing.phase is Phase.ONGOING and place in self.standing.places
        reply(code or (0 if there else ABORTABLE), who)

    def _refusal(self, node: int, who: Who) -> int:
        now, code = self.standing, self.absence(node) or self._busy()
        if code:
            return code
        if now.who.producer_id != who.producer_id:
            return UNMAPPED
        return FENCED if now.who.epoch != who.epoch else 0

    def _busy(self) -> int:
        """Before anything else: a producer may go on under an id that is only about to be its."""
        ends = self.standing.phase is Phase.PREPARED
        return CONCURRENT if ends or self._pending is not None else 0

    def end(self, node: int, who: Who, kind: bytes, implicit: bool, reply: Reply) -> None:
        """Commit or abort; a repeated request is answered as the first one."""
        now = self.standing
        repeated = implicit and _has_ended(now, who)
        code = self.absence(node) or self._busy() if repeated else self._refusal(node, who)
        if code:
            reply(code, Who())
        elif now.phase is Phase.ONGOING or (implicit and not repeated and kind == ABORT):
            self._write(self._ending(now, kind, implicit=implicit), reply)
        elif now.phase is Phase.COMPLETE and now.kind == kind and (repeated or not implicit):
            reply(0, now.who)
        else:
            late = repeated and now.phase is Phase.COMPLETE and kind != ABORT
            reply(FENCED if late and self._setup.fences_late_commits else BAD_STATE, Who())

    def takes_abort(self, who: Who) -> bool:
        """Whether a producer of protocol 2 may go on, though its transaction was aborted."""
        return self.standing.kind == ABORT and _has_ended(self.standing, who)

    def _ending(self, now: Standing, kind: bytes, *, implicit: bool) -> Standing:
        places = now.places if now.phase is Phase.ONGOING else frozenset()
        after = replace(now, phase=Phase.PREPARED, kind=kind, places=places)
        if not implicit:
            return after
        epoch = now.who.epoch
        next_id = self._take_id() if epoch >= LAST_EPOCH else -1
        # One that was fenced by the last epoch but one may have been given the last one.
        following = now.who._replace(epoch=min(epoch, LAST_EPOCH) + 1)
        return replace(after, who=following, last_epoch=epoch, next_id=next_id)


def _completed(now: Standing) -> Standing:
    after = replace(now, phase=Phase.COMPLETE, places=frozenset())
    if now.next_id < 0:
        return after
    return replace(after, who=Who(now.next_id, 0), former_id=now.who.producer_id, next_id=-1)


def identity_after(now: Standing) -> Who:
    """Who the producer is once the transaction has ended."""
    return now.who if now.next_id < 0 else Who(now.next_id, 0)


def _stranger(now: Standing, present: Who) -> int:
    """A producer that names another id than the present one was fenced."""
    if present.producer_id < 0 or now.who.producer_id in (-1, present.producer_id):
        return 0
    used_up = present.producer_id == now.former_id and present.epoch >= LAST_EPOCH
    return 0 if used_up else FENCED


def _has_ended(now: Standing, who: Who) -> bool:
    """Whether the request to end is one that was carried out before: its epoch is the last one."""
    if now.phase in (Phase.EMPTY, Phase.ONGOING):
        return False
    id_now, epoch = now.who
    renewed = epoch == 0 and who == (now.former_id, LAST_EPOCH)
    return who == (id_now, epoch - 1) or renewed

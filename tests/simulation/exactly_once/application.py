"""The application: one thread that follows its plans, with the rules that errors tell it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kprod.errors import IllegalStateError, KprodError, ProducerFencedError
from kprod.sender.transactions import State
from kprod.transactional.group_offsets import GroupMetadata
from kprod.transactional.rename import rename
from kprod.types import NextStep
from tests.simulation.app import Intent
from tests.simulation.exactly_once.plan import ABORTED, COMMITTED, UNKNOWN, Burst, Plan, Told
from tests.simulation.exactly_once.producer import SimProducer
from tests.simulation.exactly_once.setup import GROUP, TRANSACTIONAL_ID

if TYPE_CHECKING:
    from tests.simulation.exactly_once.world import TransactionWorld

EXPELLED = GroupMetadata(GROUP, 7, "expelled")
"""A member that the group does not have."""
Call = Callable[[float | None], None]
PATIENCE = 12.0  # seconds for a call once nothing fails any more
MOST_STARTS = 60
A_MOMENT = 0.05
PROBES = 8


class OutOfPatience(Exception):
    """A call has not come to its end."""


class Deliberate(Exception):
    """What the application itself raises in a block."""


class Application:
    """``told`` is in the order in which transactions were begun."""

    def __init__(self, world: TransactionWorld, *, gentle: bool) -> None:
        self.told: list[Told] = []
        self.starts = 0
        self._world = world
        self._gentle = gentle
        self._frozen: tuple[SimProducer, Told] | None = None
        self._producer = world.start_producer()

    def run(self, plans: tuple[Plan, ...]) -> None:
        """Every plan, then one after the other until one is committed, and one more."""
        self._initialize()
        for plan in plans:
            self._carry_out(plan)
            self._thaw()
        while not self._world.calm_since:
            self._pause(A_MOMENT)
        for _ in range(PROBES):
            if self._probe().fate == COMMITTED:
                break
        else:
            self._world.violated("nothing works any more")
        self._gentle = True  # it has worked: from here on it must, without an error
        if self._probe().fate != COMMITTED:
            self._world.violated("the last transaction was not committed")
        self._producer.close(PATIENCE)

    def _probe(self) -> Told:
        setup = self._world.setup
        bursts = tuple(
            Burst(0.0, topic, partitions) for topic, partitions in enumerate(setup.partitions)
        )
        return self._carry_out(Plan(bursts=bursts, offsets=True))

    # One transaction --------------------------------------------------------------------------

    def _carry_out(self, plan: Plan) -> Told:
        self._pause(plan.before)
        if self._world.renames and self._producer.state is State.READY:
            rename(self._producer, TRANSACTIONAL_ID)  # what a new producer would do, it does
            self._initialize()
        told = Told(len(self.told), self._producer.number)
        self.told.append(told)
        try:
            if plan.block:
                self._in_a_block(plan, told)
            else:
                self._call_by_call(plan, told)
        except KprodError as error:
            self._react(error, told, plan)
        return told

    def _call_by_call(self, plan: Plan, told: Told) -> None:
        producer = self._producer
        producer.begin_transaction()
        self._fill(plan, told)
        if self._meets_its_fate(plan, told):
            return
        if plan.end == "commit":
            told.asked = True
            self._complete(producer.commit_transaction, plan.timeout)
            told.ends(COMMITTED)
        else:
            self._complete(producer.abort_transaction, plan.timeout)
            told.ends(ABORTED)

    def _in_a_block(self, plan: Plan, told: Told) -> None:
        producer = self._producer
        block = producer.transaction(plan.timeout)
        try:
            with block:
                self._fill(plan, told)
                if plan.end != "commit":
                    raise Deliberate
        except Deliberate:
            pass
        finally:
            if block.outcome == UNKNOWN:
                told.asked = True
            elif block.outcome is not None:
                told.ends(block.outcome)
        if producer.state is State.FATAL_ERROR:
            self._renew(told)
        elif producer.state in (State.ABORTING, State.INITIALIZING):  # not confirmed in time
            self._complete(producer.abort_transaction, plan.timeout)

    def _fill(self, plan: Plan, told: Told) -> None:
        for burst in plan.bursts:
            self._pause(burst.pause)
            for number in range(burst.records):
                self._send(burst, number, told)
        if plan.offsets:
            self._move_offsets(plan, told)

    def _send(self, burst: Burst, number: int, told: Told) -> None:
        setup = self._world.setup
        topic = burst.topic % len(setup.partitions)
        partition = number % setup.partitions[topic] if burst.spread else None
        intent = Intent(setup.topics[topic], None, partition, burst.size)
        try:
            told.sent.append(self._producer.app.send_now(intent, setup.max_block_ms / 1000))
        except KprodError as error:
            if error.next_step is not None or isinstance(error, IllegalStateError):
                raise
            # There was no room, or no metadata: it is not part of the transaction.

    def _move_offsets(self, plan: Plan, told: Told) -> None:
        group = EXPELLED if plan.stale else GroupMetadata(GROUP)
        told.offset = self._world.brokers.place_to_read(told.number)
        offsets = {told.offset: told.number + 1}
        producer = self._producer
        self._complete(
            lambda timeout: producer.send_offsets_to_transaction(offsets, group, timeout),
            plan.timeout,
        )
        if plan.stale:
            self._world.violated("an expelled member has committed offsets")

    def _meets_its_fate(self, plan: Plan, told: Told) -> bool:
        """Whether the producer does not come to the end of the transaction."""
        producer = self._producer
        if plan.fate == "kill":
            producer.vanish()
        elif plan.fate == "close":
            producer.close(PATIENCE)
        elif plan.fate == "freeze":
            self._frozen = producer, told
        else:
            return False
        if plan.fate != "freeze":
            told.given_up()
        self._producer = self._world.start_producer()
        self._initialize()
        return True

    # Errors -----------------------------------------------------------------------------------

    def _react(self, error: KprodError, told: Told, plan: Plan) -> None:
        """Do what the error says."""
        producer = self._producer
        if self._gentle and not plan.stale:
            self._world.violated(f"nothing went wrong, but: {error!r}")
        if error.next_step is NextStep.RETRY_CALL:
            self._call_again(told, plan)
        elif error.next_step in (NextStep.ABORT, NextStep.BEGIN_AGAIN):
            if producer.state is not State.READY:  # a block has aborted
                self._end_aborted(told, plan)
            told.ends(ABORTED)
        elif error.next_step in (NextStep.START_AGAIN, NextStep.CLOSE):
            self._renew(told)
        else:
            raise error

    def _call_again(self, told: Told, plan: Plan) -> None:
        """A block was left while a call was under way: the same one again tells."""
        producer = self._producer
        try:
            if producer.state is State.ABORTING:
                self._complete(producer.abort_transaction, plan.timeout)
                told.ends(ABORTED)
            else:
                self._complete(producer.commit_transaction, plan.timeout)
                told.ends(COMMITTED)
        except KprodError as error:
            self._react(error, told, plan)

    def _end_aborted(self, told: Told, plan: Plan) -> None:
        try:
            self._complete(self._producer.abort_transaction, plan.timeout)
        except KprodError as error:
            if error.next_step not in (NextStep.START_AGAIN, NextStep.CLOSE):
                raise
            told.ends(ABORTED)
            self._renew(told)

    def _renew(self, told: Told) -> None:
        """Close the producer, and go on with another one."""
        self._judge_fencing()
        told.given_up()
        self._producer.close(0.0)
        self._producer = self._world.start_producer()
        self._initialize()

    def _judge_fencing(self) -> None:
        """Where the protocol is 2 from the start, its own end does not fence a producer."""
        error = self._producer.error
        told = isinstance(error, ProducerFencedError) and self._world.setup.level == 2
        if told and self._world.takes_abort(self._producer):
            self._world.violated(f"nobody has taken over, but: {error!r}")

    def _initialize(self) -> None:
        while True:
            self.starts += 1
            if self.starts > MOST_STARTS:
                raise OutOfPatience("producer after producer was refused")
            try:
                self._complete(self._producer.init_transactions, None)
                return
            except KprodError as error:
                if error.next_step not in (NextStep.START_AGAIN, NextStep.CLOSE):
                    raise
                self._producer.close(0.0)
                self._pause(A_MOMENT)
                self._producer = self._world.start_producer()

    def _complete(self, call: Call, timeout: float | None) -> None:
        """Call until it returns or raises something else than that it took too long."""
        world = self._world
        started = world.clock.now
        for calls in itertools.count():
            try:
                call(timeout)
                return
            except KprodError as error:
                if error.next_step is not NextStep.RETRY_CALL:
                    raise
                # Once it may: behind the markers of the transaction before, three attempts at each
                # of several partitions take longer than the shortest `max_block_ms` of a setup.
                if self._gentle and timeout is None and calls:
                    world.violated(f"all is well, but {error!r}")
                self._interrupt(call)
            since = max(started, world.calm_since)
            if world.calm_since and world.clock.now - since > PATIENCE:
                raise OutOfPatience(f"{call} does not end: {self._producer.state}")
            self._pause(A_MOMENT)

    def _interrupt(self, call: Call) -> None:
        """A call has timed out: until it has ended no other one gets through.

        A record may, until the sender has looked: then it shares the fate of the others.
        """
        producer = self._producer
        ends = (producer.commit_transaction, producer.abort_transaction)
        if call not in ends:
            return
        intent = Intent(self._world.setup.topics[0], None, 0, 10)
        with suppress(KprodError):
            self.told[-1].sent.append(producer.app.send_now(intent, 0.0))
        for other in (end for end in ends if end != call):
            with suppress(KprodError):
                other(0.0)
                self._world.violated(f"{other} got through during {call}")
        with suppress(KprodError):
            producer.begin_transaction()
            self._world.violated(f"a transaction began during {call}")

    # A producer that comes back -----------------------------------------------------------------

    def _thaw(self) -> None:
        """The one that was frozen goes on, though another one has taken over."""
        if self._frozen is None:
            return
        (zombie, told), self._frozen = self._frozen, None
        successor, self._producer = self._producer, zombie
        try:
            self._send(Burst(0.0, 0, 1), 0, told)
            told.asked = True
            self._complete(zombie.commit_transaction, 1.0)
            told.ends(COMMITTED)
        except KprodError as error:
            if error.next_step is NextStep.ABORT:
                told.ends(ABORTED)
        finally:
            told.given_up()
            zombie.close(0.0)
            self._producer = successor

    def _pause(self, seconds: float) -> None:
        """Time passes; the sender has its turns."""
        deadline = self._world.clock.now + seconds
        self._producer.app.wait(lambda: False, deadline)

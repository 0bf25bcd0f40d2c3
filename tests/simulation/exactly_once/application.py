"""The application: one thread that follows its plans and each error's ``next_step``."""

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
from tests.simulation.exactly_once.plan import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    AppTransaction,
    Burst,
    Plan,
)
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
    """A call has not ended in time."""


class Deliberate(Exception):
    """What the application itself raises in a block."""


class Application:
    """``transactions`` are in the order in which they began."""

    def __init__(self, world: TransactionWorld, *, gentle: bool) -> None:
        self.transactions: list[AppTransaction] = []
        self.starts = 0
        self._world = world
        self._gentle = gentle
        self._frozen: tuple[SimProducer, AppTransaction] | None = None
        self._producer = world.start_producer()

    def run(self, plans: tuple[Plan, ...]) -> None:
        """Run every plan, then probe until a transaction commits, and probe once more."""
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
            self._world.violated("no transaction commits any more")
        self._gentle = True  # from here on no error is allowed
        if self._probe().fate != COMMITTED:
            self._world.violated("the last transaction was not committed")
        self._producer.close(PATIENCE)

    def _probe(self) -> AppTransaction:
        setup = self._world.setup
        bursts = tuple(
            Burst(0.0, topic, partitions) for topic, partitions in enumerate(setup.partitions)
        )
        return self._carry_out(Plan(bursts=bursts, offsets=True))

    # One transaction --------------------------------------------------------------------------

    def _carry_out(self, plan: Plan) -> AppTransaction:
        self._pause(plan.before)
        if self._world.renames and self._producer.state is State.READY:
            rename(self._producer, TRANSACTIONAL_ID)  # instead of starting a new producer
            self._initialize()
        tx = AppTransaction(len(self.transactions), self._producer.number)
        self.transactions.append(tx)
        try:
            if plan.block:
                self._in_a_block(plan, tx)
            else:
                self._call_by_call(plan, tx)
        except KprodError as error:
            self._react(error, tx, plan)
        return tx

    def _call_by_call(self, plan: Plan, tx: AppTransaction) -> None:
        producer = self._producer
        producer.begin_transaction()
        self._fill(plan, tx)
        if self._ends_early(plan, tx):
            return
        if plan.end == "commit":
            tx.asked = True
            self._complete(producer.commit_transaction, plan.timeout)
            tx.ends(COMMITTED)
        else:
            self._complete(producer.abort_transaction, plan.timeout)
            tx.ends(ABORTED)

    def _in_a_block(self, plan: Plan, tx: AppTransaction) -> None:
        producer = self._producer
        block = producer.transaction(plan.timeout)
        try:
            with block:
                self._fill(plan, tx)
                if plan.end != "commit":
                    raise Deliberate
        except Deliberate:
            pass
        finally:
            if block.outcome == UNKNOWN:
                tx.asked = True
            elif block.outcome is not None:
                tx.ends(block.outcome)
        if producer.state is State.FATAL_ERROR:
            self._renew(tx)
        elif producer.state in (State.ABORTING, State.INITIALIZING):  # not confirmed in time
            self._complete(producer.abort_transaction, plan.timeout)

    def _fill(self, plan: Plan, tx: AppTransaction) -> None:
        for burst in plan.bursts:
            self._pause(burst.pause)
            for number in range(burst.records):
                self._send(burst, number, tx)
        if plan.offsets:
            self._move_offsets(plan, tx)

    def _send(self, burst: Burst, number: int, tx: AppTransaction) -> None:
        setup = self._world.setup
        topic = burst.topic % len(setup.partitions)
        partition = number % setup.partitions[topic] if burst.spread else None
        intent = Intent(setup.topics[topic], None, partition, burst.size)
        try:
            tx.sent.append(self._producer.app.send_now(intent, setup.max_block_ms / 1000))
        except KprodError as error:
            if error.next_step is not None or isinstance(error, IllegalStateError):
                raise
            # There was no room, or no metadata: it is not part of the transaction.

    def _move_offsets(self, plan: Plan, tx: AppTransaction) -> None:
        group = EXPELLED if plan.stale else GroupMetadata(GROUP)
        tx.offset = self._world.brokers.offset_partition(tx.number)
        offsets = {tx.offset: tx.number + 1}
        producer = self._producer
        self._complete(
            lambda timeout: producer.send_offsets_to_transaction(offsets, group, timeout),
            plan.timeout,
        )
        if plan.stale:
            self._world.violated("an expelled member has committed offsets")

    def _ends_early(self, plan: Plan, tx: AppTransaction) -> bool:
        producer = self._producer
        if plan.fate == "kill":
            producer.vanish()
        elif plan.fate == "close":
            producer.close(PATIENCE)
        elif plan.fate == "freeze":
            self._frozen = producer, tx
        else:
            return False
        if plan.fate != "freeze":
            tx.given_up()
        self._producer = self._world.start_producer()
        self._initialize()
        return True

    # Errors -----------------------------------------------------------------------------------

    def _react(self, error: KprodError, tx: AppTransaction, plan: Plan) -> None:
        producer = self._producer
        if self._gentle and not plan.stale:
            self._world.violated(f"failed without a fault: {error!r}")
        if error.next_step is NextStep.RETRY_CALL:
            self._call_again(tx, plan)
        elif error.next_step in (NextStep.ABORT, NextStep.BEGIN_AGAIN):
            if producer.state is not State.READY:  # a block has aborted
                self._end_aborted(tx, plan)
            tx.ends(ABORTED)
        elif error.next_step in (NextStep.START_AGAIN, NextStep.CLOSE):
            self._renew(tx)
        else:
            raise error

    def _call_again(self, tx: AppTransaction, plan: Plan) -> None:
        """A call timed out and its block was left: repeating the call returns the outcome."""
        producer = self._producer
        try:
            if producer.state is State.ABORTING:
                self._complete(producer.abort_transaction, plan.timeout)
                tx.ends(ABORTED)
            else:
                self._complete(producer.commit_transaction, plan.timeout)
                tx.ends(COMMITTED)
        except KprodError as error:
            self._react(error, tx, plan)

    def _end_aborted(self, tx: AppTransaction, plan: Plan) -> None:
        try:
            self._complete(self._producer.abort_transaction, plan.timeout)
        except KprodError as error:
            if error.next_step not in (NextStep.START_AGAIN, NextStep.CLOSE):
                raise
            tx.ends(ABORTED)
            self._renew(tx)

    def _renew(self, tx: AppTransaction) -> None:
        self._check_fencing()
        tx.given_up()
        self._producer.close(0.0)
        self._producer = self._world.start_producer()
        self._initialize()

    def _check_fencing(self) -> None:
        """With protocol 2 from the start a producer is not fenced by ending its transaction."""
        error = self._producer.error
        fenced = isinstance(error, ProducerFencedError) and self._world.setup.level == 2
        if fenced and self._world.takes_abort(self._producer):
            self._world.violated(f"fenced without a successor: {error!r}")

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
        """Repeat the call until it returns or raises anything but a timeout."""
        world = self._world
        started = world.clock.now
        for calls in itertools.count():
            try:
                call(timeout)
                return
            except KprodError as error:
                if error.next_step is not NextStep.RETRY_CALL:
                    raise
                # One timeout is allowed: three attempts for each of several partitions, after the
                # previous transaction's markers, take longer than the shortest `max_block_ms`.
                if self._gentle and timeout is None and calls:
                    world.violated(f"timed out without a fault: {error!r}")
                self._interrupt(call)
            since = max(started, world.calm_since)
            if world.calm_since and world.clock.now - since > PATIENCE:
                raise OutOfPatience(f"{call} does not end: {self._producer.state}")
            self._pause(A_MOMENT)

    def _interrupt(self, call: Call) -> None:
        """A call has timed out: until it has ended, all others must be rejected.

        A record may be accepted until the sender's next iteration, as part of the transaction.
        """
        producer = self._producer
        ends = (producer.commit_transaction, producer.abort_transaction)
        if call not in ends:
            return
        intent = Intent(self._world.setup.topics[0], None, 0, 10)
        with suppress(KprodError):
            self.transactions[-1].sent.append(producer.app.send_now(intent, 0.0))
        for other in (end for end in ends if end != call):
            with suppress(KprodError):
                other(0.0)
                self._world.violated(f"{other} was accepted during {call}")
        with suppress(KprodError):
            producer.begin_transaction()
            self._world.violated(f"a transaction began during {call}")

    # A producer that resumes --------------------------------------------------------------------

    def _thaw(self) -> None:
        """The frozen producer goes on after another one has taken over."""
        if self._frozen is None:
            return
        (zombie, tx), self._frozen = self._frozen, None
        successor, self._producer = self._producer, zombie
        try:
            self._send(Burst(0.0, 0, 1), 0, tx)
            tx.asked = True
            self._complete(zombie.commit_transaction, 1.0)
            tx.ends(COMMITTED)
        except KprodError as error:
            if error.next_step is NextStep.ABORT:
                tx.ends(ABORTED)
        finally:
            tx.given_up()
            zombie.close(0.0)
            self._producer = successor

    def _pause(self, seconds: float) -> None:
        deadline = self._world.clock.now + seconds
        self._producer.app.wait(lambda: False, deadline)

"""One run: an application, a producer's decisions, and a network that loses, delays and repeats.

Everything but the bytes is the producer's own: the state machine, the questions and what their
answers change. Sequence numbers are counted here, for one batch is one record.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from kprod.errors import (
    BrokerError,
    ConnectionLost,
    DeliveryTimeoutError,
    KprodError,
    ProducerFencedError,
)
from kprod.sender.coordination import Coordination
from kprod.sender.sequences import ProducerIdentity
from kprod.sender.transaction_requests import (
    AddOffsets,
    AddPartitions,
    Ask,
    CommitOffsets,
    EndTransaction,
    InitProducerId,
)
from kprod.sender.transactions import DOOMED, Call, PendingCall, State, Transactions
from kprod.types import NextStep, TopicPartition
from kprod.wire.control import InitProducerIdReply
from kprod.wire.transactions import (
    CodeReply,
    EndTxnReply,
    GroupMetadata,
    OffsetToCommit,
    PartitionsReply,
)
from kprod.wire.versions import ApiVersions
from tests.simulation.transactions.coordinator import PRODUCER_ID, Coordinator
from tests.simulation.transactions.told import Record, Told

PARTITIONS = 3
STEPS = 150
PATIENCE = 400
PROBES = 30
PASSING = (14, 51)
ENDED = ("committed", "aborted")
LOST = ConnectionLost("the connection broke")
MEMBER = GroupMetadata("group")


class Walk:
    """``swap`` replaces the classes of the producer by broken ones; ``gentle``: nothing fails."""

    def __init__(self, seed: int, swap: Callable[[type], type] = lambda kind: kind) -> None:
        self.violations: list[str] = []
        self._rng = random.Random(seed)
        self._gentle = seed % 10 == 0
        self._swap = swap
        self._level = self._rng.choice((1, 2))
        self._coordinator = Coordinator(PARTITIONS, fences_late_commits=seed % 2 == 1)
        self._told: list[Told] = []
        self._heirs: list[Told] = []  # of another producer, that took over for a moment
        self._late: list[Callable[[], object]] = []
        self._features = 0
        self._faults = not self._gentle
        self._fenced = False
        self._start()

    def _start(self) -> None:
        """A producer, as an application makes one at first and after errors that want it."""
        self._transactions: Transactions = self._swap(Transactions)("tx", 60_000)
        self._identity = ProducerIdentity()
        self._coordination: Coordination = self._swap(Coordination)(
            self._transactions, self._identity, lambda: not self._queue
        )
        self._queue: list[Record] = []
        self._numbers: dict[int, tuple[int, int]] = {}  # by partition: epoch, next sequence
        self._pending: PendingCall | None = None
        self._handshake()
        self._pending = self._transactions.start(Call.INIT)

    def _handshake(self) -> None:
        self._features += 1
        told = ApiVersions({}, {"transaction.version": self._level}, self._features)
        self._transactions.told(told)

    @property
    def fates(self) -> list[str]:
        """What became of the application's transactions, as far as it was told."""
        return [told.fate for told in self._told]

    def run(self) -> list[str]:
        """Every step, and the end; what was wrong."""
        try:
            for _ in range(STEPS):
                self._step()
            self._calm()
        except Exception as error:
            self.violations.append(f"{type(error).__name__} escaped: {error}")
        for deliver in self._late:
            deliver()
        self._judge()
        return self.violations

    def _step(self) -> None:
        steps = [self._application, self._deliver, self._ask]
        weights = [4.0, 4.0, 4.0]
        if self._faults:
            steps += [self._late_one, self._time_out, self._upgrade, self._another]
            weights += [2, 0.1, 0.02, 0.05]
        self._rng.choices(steps, weights)[0]()

    # The application ------------------------------------------------------------------------------

    def _application(self) -> None:
        if self._pending is not None:
            self._hear()
            return
        try:
            self._call()
        except KprodError as error:
            self._react(error)

    def _call(self) -> None:
        state, rng = self._transactions.state, self._rng
        if state is State.READY:
            self._transactions.begin()
            self._told.append(Told())
            return
        if state is not State.IN_TRANSACTION:
            self._transactions.check(Call.COMMIT)
            return
        what = rng.random()
        if what < 0.6:
            self._send()
        elif what < 0.7 and not self._told[-1].offset:
            self._told[-1].offset = True
            offsets = (OffsetToCommit("in", len(self._told), 1),)
            self._transactions.start_offsets(offsets, MEMBER)
        elif what < 0.9 or self._gentle:
            self._pending = self._transactions.start(Call.COMMIT)
        else:
            self._pending = self._transactions.start(Call.ABORT)

    def _send(self) -> None:
        refused = self._transactions.refusal()
        if refused is not None:
            raise refused
        told = self._told[-1]
        value = b"%d-%d" % (len(self._told), len(told.values))
        partition = self._rng.randrange(PARTITIONS)
        told.values.append((partition, value))
        self._queue.append(Record(value, partition))

    def _hear(self) -> None:
        pending = self._pending
        if pending is None:
            return
        if not pending.ended.is_open:
            self._interfere(pending)
            return
        self._pending = None
        call = pending.call
        try:
            self._transactions.heard(pending)
        except KprodError as error:
            self._react(error, call)
            return
        if call is Call.COMMIT:
            self._told[-1].fate = "committed"
        elif call is Call.ABORT:
            self._told[-1].fate = "aborted"

    def _interfere(self, pending: PendingCall) -> None:
        """The call has timed out, say: another one than the same must not get through."""
        if self._transactions.refusal() is None:
            self.violations.append(f"a record got through during {pending.call.value}")
        other = Call.ABORT if pending.call is Call.COMMIT else Call.COMMIT
        try:
            self._transactions.start(other)
        except KprodError:
            return
        self.violations.append(f"{other.value} got through during {pending.call.value}")
        self._told[-1].fate = "aborted" if other is Call.ABORT else self._told[-1].fate

    def _react(self, error: KprodError, call: Call | None = None) -> None:
        told = self._told[-1] if self._told else Told()
        if self._gentle:
            self.violations.append(f"nothing went wrong, but: {error!r}")
        if error.next_step is NextStep.ABORT:
            told.fate = "aborted"
            self._pending = self._transactions.start(Call.ABORT)
        elif error.next_step in (NextStep.START_AGAIN, NextStep.CLOSE):
            self._judge_fencing(error)
            if told.fate == "open":
                told.fate = "unknown" if call is Call.COMMIT else "aborted"
            self._start()
        else:
            raise error

    def _judge_fencing(self, error: KprodError) -> None:
        """In protocol 2 a producer is not fenced by the end of its own transaction."""
        producer = self._transactions.producer
        fenced = isinstance(error, ProducerFencedError) and self._coordination.implicit
        if fenced and producer is not None and self._coordinator.takes_abort(producer[1]):
            self.violations.append(f"nobody has taken over, but: {error!r}")

    # Records --------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        """The oldest record of some partition leaves, or those of a lost cause end."""
        if self._transactions.state in DOOMED or self._transactions.state is State.FATAL_ERROR:
            self._drop()
            return
        if not self._queue or self._identity.producer is None:
            return
        partition = self._rng.choice(self._queue).partition
        record = next(r for r in self._queue if r.partition == partition)
        if not self._coordination.may_send(TopicPartition("t", partition)):
            return
        if record.place is None:
            record.place = self._number(partition)
        self._produce(record)

    def _number(self, partition: int) -> tuple[int, int]:
        epoch = self._identity.producer.epoch if self._identity.producer else -1
        known, following = self._numbers.get(partition, (epoch, 0))
        if known != epoch:
            following = 0
        self._numbers[partition] = epoch, following + 1
        return epoch, following

    def _produce(self, record: Record) -> None:
        epoch, sequence = record.place or (0, 0)
        implicit = self._coordination.implicit

        def arrive() -> int:
            return self._coordinator.produce(
                record.partition, epoch, sequence, record.value, implicit=implicit
            )

        luck = self._rng.random() if self._faults else 1.0
        if luck < 0.1:  # it will come, but later
            self._late.append(arrive)
        elif luck < 0.2:  # its answer will not
            arrive()
        elif luck < 0.25:
            self._fail(record, DeliveryTimeoutError("too late"))
        else:
            code = arrive()
            if code:
                self._fail(record, BrokerError(code, "t"))
            else:
                self._queue.remove(record)

    def _fail(self, record: Record, error: KprodError) -> None:
        self._queue.remove(record)
        if record.place is not None:
            self._coordination.sequence_lost()
        self._coordination.record_failed(error)

    def _drop(self) -> None:
        for record in list(self._queue):
            self._fail(record, KprodError("aborted"))
        self._transactions.aborts()

    # Questions ------------------------------------------------------------------------------------

    def _ask(self) -> None:
        if self._transactions.state in DOOMED:
            self._drop()
        self._coordination.let_go()
        if self._coordination.settle():
            return
        ask = self._coordination.due()
        if ask is None:
            return
        self._coordination.leaves(ask)
        luck = self._rng.random() if self._faults else 1.0
        if luck < 0.05:
            self._coordination.lost(ask, LOST, sent=False)
        elif luck < 0.15:  # it arrives later than the one that replaces it
            self._late.append(lambda: self._act(ask))
            self._coordination.lost(ask, LOST, sent=True)
        elif luck < 0.25:
            self._act(ask)
            self._coordination.lost(ask, LOST, sent=True)
        elif luck < 0.3:
            self._coordination.answered(ask, self._reply(ask, self._rng.choice(PASSING)))
        else:
            self._coordination.answered(ask, self._reply(ask, self._act(ask)))

    def _act(self, ask: Ask) -> int:
        coordinator, of = self._coordinator, ask.of
        epoch = None if of.producer is None else of.producer.epoch
        if isinstance(ask, InitProducerId):
            return coordinator.initialize(epoch)
        if epoch is None:
            raise AssertionError("asked without a producer id")
        if isinstance(ask, AddPartitions):
            return coordinator.add(epoch, [tp.partition for tp in ask.partitions])
        if isinstance(ask, AddOffsets):
            return coordinator.add(epoch, [])
        if isinstance(ask, CommitOffsets):
            offsets = {offset.partition: offset.offset for offset in ask.offsets}
            return coordinator.move(epoch, offsets, implicit=of.implicit)
        if isinstance(ask, EndTransaction):
            kind = "commit" if ask.committed else "abort"
            return coordinator.end(epoch, kind, implicit=of.implicit)
        raise AssertionError(f"nobody answers {ask}")

    def _reply(self, ask: Ask, code: int) -> Any:
        epoch = self._coordinator.epoch
        if isinstance(ask, InitProducerId):
            return InitProducerIdReply(code, -1 if code else PRODUCER_ID, -1 if code else epoch, 0)
        if isinstance(ask, AddPartitions):
            return PartitionsReply([(*tp, code) for tp in ask.partitions], 0)
        if isinstance(ask, CommitOffsets):
            return PartitionsReply([(o.topic, o.partition, code) for o in ask.offsets], 0)
        if isinstance(ask, EndTransaction):
            renewed = ask.of.implicit and not code
            return EndTxnReply(code, (PRODUCER_ID, epoch) if renewed else None, 0)
        return CodeReply(code, 0)

    # What happens to them -------------------------------------------------------------------------

    def _late_one(self) -> None:
        if self._late:
            self._late.pop(self._rng.randrange(len(self._late)))()

    def _time_out(self) -> None:
        self._coordinator.time_out()

    def _upgrade(self) -> None:
        self._level = 2
        self._handshake()

    def _another(self) -> None:
        """Another producer of the same name takes over for one transaction, and goes."""
        coordinator = self._coordinator
        coordinator.initialize(None)
        told = Told([(0, b"heir-%d" % coordinator.epoch)], fate="committed")
        epoch, value = coordinator.epoch, told.values[0][1]
        coordinator.produce(0, epoch, 0, value, implicit=True)
        coordinator.end(epoch, "commit", implicit=True)
        self._heirs.append(told)

    # The end --------------------------------------------------------------------------------------

    def _calm(self) -> None:
        """Nothing fails any more: what is open ends, and a transaction after that works."""
        self._faults = False
        for _ in range(PROBES):
            told = self._probe()
            if told is None:
                return
            if told.values and told.fate == "committed":
                break
        else:
            self.violations.append("nothing works any more")
        self._gentle = True  # it has worked: from here on it must, without an error
        self._probe()

    def _probe(self) -> Told | None:
        """The next transaction to its end; None if there is none, which is noted."""
        wanted = len(self._told) + 1
        for _ in range(PATIENCE):
            last = self._told[-1] if self._told else Told()
            if last.fate != "open" and self._pending is None and len(self._told) >= wanted:
                return last
            self._step()
        self.violations.append(f"a transaction does not end: {self._transactions.state}")
        return None

    def _judge(self) -> None:
        seen = [log.committed() for log in self._coordinator.logs]
        for number, told in enumerate([*self._told, *self._heirs], start=1):
            counts = {seen[partition][value] for partition, value in told.values}
            if told.fate == "committed" and counts - {1}:
                self.violations.append(f"{number} was committed, and is there {counts} times")
            elif told.fate == "aborted" and counts - {0}:
                self.violations.append(f"{number} was aborted, and is there {counts} times")
            elif told.fate == "unknown" and len(counts) > 1:
                self.violations.append(f"{number} is there in parts: {counts}")
            if max(counts, default=0) > 1:
                self.violations.append(f"{number} is there twice")
        self._judge_offsets()

    def _judge_offsets(self) -> None:
        for number, told in enumerate(self._told, start=1):
            moved = number in self._coordinator.offsets
            if told.offset and told.fate in ENDED and moved is not (told.fate == "committed"):
                self.violations.append(f"offsets of {number} moved: {moved}; {told.fate}")

"""A transaction's requests to its coordinators, and the effect of each answer (KIP-98, KIP-890).

One request is sent at a time, as in Kafka's ``TransactionManager``: a coordinator makes one change
after another anyway. There are two protocols. In protocol 1, the producer adds partitions and
groups to the transaction before anything is written to them. In protocol 2, the brokers add them,
and the end of each transaction returns the epoch of the next one. The cluster's feature
``transaction.version`` decides which protocol the next transaction uses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

from kprod.errors import (
    BrokerError,
    ErrorCode,
    KprodError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionError,
    UnsupportedVersionError,
)
from kprod.sender.broker import Broker
from kprod.sender.connection import Buffers, Exchange
from kprod.sender.deadlines import FOREVER
from kprod.sender.partitions import LAST_EPOCH, PartitionSet
from kprod.sender.retry import AGAIN, FATAL, LATE, Reaction, reaction
from kprod.sender.transactions import (
    DOOMED,
    ENDS,
    OPEN,
    OffsetFetch,
    PendingOffsets,
    State,
    Transactions,
)
from kprod.sender_log import SenderLog
from kprod.types import NextStep, ProducerId, TopicPartition
from kprod.wire import transactions as wire
from kprod.wire.control import decode_init_producer_id_response, encode_init_producer_id_request
from kprod.wire.transactions import GROUP, TRANSACTION, GroupMetadata, OffsetsReply
from kprod.wire.versions import ApiKey

log = SenderLog(__name__)

IMPLICIT_FROM = 2
"""The lowest level of the feature at which brokers add partitions themselves."""
FENCED = (
    "another producer with this transactional id has been started since, or the transaction has"
    " lasted longer than transaction_timeout_ms and its coordinator has ended it"
)
SOON = 0.02
"""Seconds until an addition is repeated, if the previous transaction is still being ended."""
MARKERS = 0.0006
"""Seconds that a cluster needs for the markers of a transaction after it has answered EndTxn.
Apache Kafka delays an earlier request of the next transaction by 20 ms (decision 0042)."""
FATAL_FOR_RECORDS = FATAL | {
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
"""Codes in the answer to a Produce request after which nothing can be sent any more."""
ADDITIONS = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN)
CHANGES = (*ADDITIONS, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN)
"""Requests that change something at a coordinator, if they arrive."""
FLUSHING = (State.COMMITTING, State.PREPARED)
ENDING = FLUSHING + DOOMED
PATIENCE = 1.0
"""Seconds for which metadata may lack a broker that was named as coordinator."""


Coordinator: TypeAlias = tuple[int, str]
"""The kind of a coordinator and its key, for example ``(wire.TRANSACTION, transactional id)``."""

SINCE_2_5 = 3
"""The first version of INIT_PRODUCER_ID that asks for an epoch (KIP-360), and of TXN_OFFSET_COMMIT
that names a member (KIP-447)."""
BEFORE_IMPLICIT = 4
"""The last version of TXN_OFFSET_COMMIT and of END_TXN in protocol 1. No other request that changes
a transaction has a later one."""

_WIRE: Mapping[ApiKey, tuple[Callable[..., bytes], Callable[..., Any]]] = {
    ApiKey.FIND_COORDINATOR: (
        wire.encode_find_coordinator_request,
        wire.decode_find_coordinator_response,
    ),
    ApiKey.INIT_PRODUCER_ID: (encode_init_producer_id_request, decode_init_producer_id_response),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        wire.encode_add_partitions_request,
        wire.decode_add_partitions_response,
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (wire.encode_add_offsets_request, wire.decode_add_offsets_response),
    ApiKey.TXN_OFFSET_COMMIT: (
        wire.encode_txn_offset_commit_request,
        wire.decode_txn_offset_commit_response,
    ),
    ApiKey.OFFSET_FETCH: (wire.encode_offset_fetch_request, wire.decode_offset_fetch_response),
    ApiKey.END_TXN: (wire.encode_end_txn_request, wire.decode_end_txn_response),
}


class Ask(Exchange):
    """One question to a coordinator, which ``by`` asks.

    ``coordinator`` gets the request; FIND_COORDINATOR asks any broker for it. ``fields`` are those
    of the request, as its writer takes them. ``about`` is what the answer is about: partitions to
    add, the id of a group to add, ``PendingOffsets``, an ``OffsetFetch``, whether to commit, or the
    question that follows. ``count`` is the maximum number of partitions in the answer.
    ``version_cap``: see ``Exchange``. ``older`` says what brokers before Apache Kafka 2.5 do, if
    they must not get the request.
    """

    too_old = False
    """True if a broker's versions could not express the question."""
    by: Coordination

    def __init__(
        self,
        api: ApiKey,
        coordinator: Coordinator,
        fields: tuple[Any, ...],
        about: Any = None,
        *,
        count: int | None = None,
        version_cap: int | None = None,
        older: str = "",
    ) -> None:
        self.api = api
        self.coordinator = coordinator
        self.fields = fields
        self.about = about
        self.version_cap = version_cap
        self._limits = () if count is None else (count,)
        self._older = older

    def __str__(self) -> str:
        if self.api is not ApiKey.FIND_COORDINATOR:
            return self.api.name
        kind, key = self.coordinator
        return f"{self.api.name} of the {'transactional id' if kind else 'group'} {key!r}"

    def encode(self, version: int, correlation_id: int, client_id: str) -> Buffers:
        if self._older and version < SINCE_2_5:
            self.too_old = True
            why = f"{self.api.name}: brokers before Apache Kafka 2.5 {self._older}"
            raise UnsupportedVersionError(why)
        return [_WIRE[self.api][0](version, correlation_id, client_id, *self.fields)]

    def answered(self, version: int, body: memoryview, now: float) -> int:
        reply = _WIRE[self.api][1](version, body, *self._limits)
        self.by.answered(self, reply, now)
        throttle_ms: int = reply.throttle_ms
        return throttle_ms

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        self.by.failed(self, error, now, sent=sent)


def finding(then: Ask) -> Ask:
    """The question to any broker which coordinator gets ``then``."""
    kind, key = then.coordinator
    return Ask(ApiKey.FIND_COORDINATOR, then.coordinator, (key, kind), then)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of the partitions of each topic."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


class Coordination:
    """The sender's side of ``Transactions``: all its requests except Produce and Metadata.

    Each answer and each change of ``Transactions`` queues it, so that ``fire`` is called (see
    ``Deadlines``). As ``PartitionSet.transaction`` it decides which batches may be sent.
    ``drained``, an argument of some methods: every record of the transaction has its outcome, and
    no request with a batch is in flight. Used only by the owner of the loop.
    """

    def __init__(self, transactions: Transactions, partitions: PartitionSet) -> None:
        self._transactions = transactions
        self._partitions = partitions
        self._identity = partitions.identity
        self._metadata = partitions.metadata
        self._network = partitions.network
        self._deadlines = partitions.deadlines
        self.due = FOREVER  # see Deadlines
        self._hold_until = 0.0  # the next transaction waits till then; 0.0: it does not
        self._needs_epoch = False  # before the next transaction
        self._coordinators: dict[Coordinator, tuple[int, float]] = {}  # node id, known since
        self._in_flight = False
        self._fetches = False  # the last request was about a group's offsets, and is not answered
        self._failures = 0  # in a row
        self._retry_at = 0.0
        self._closed_for = 0  # the transaction that takes no more records
        self._forget_transaction()
        transactions.changed = partial(self._deadlines.queued.append, self)
        self._partitions.transaction = self

    def _forget_transaction(self) -> None:
        self.started = False  # something of the transaction may be known to brokers
        self._wanted: dict[TopicPartition, None] = {}  # they are to be added, or held
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._doubtful: Ask | None = None  # an addition that may have been made
        self._refused_commit: BrokerError | None = None  # the answer to an abort explains it
        self._resumed = False  # another process has begun it

    @property
    def transactional_id(self) -> str:
        """The id of the producer. It may change between two transactions."""
        return self._transactions.transactional_id

    @property
    def _coordinator(self) -> Coordinator:
        return TRANSACTION, self.transactional_id

    @property
    def implicit(self) -> bool:
        """True if brokers add partitions to the transaction themselves (KIP-890)."""
        used = self._transactions.used_level
        return (self._transactions.level if used is None else used) >= IMPLICIT_FROM

    # Questions of the gate ------------------------------------------------------------------------

    def admits(self, tp: TopicPartition) -> bool:
        """True if a batch of ``tp`` may be sent.

        Otherwise, the partition is remembered as waiting while the state allows to send.
        """
        if self._transactions.state not in OPEN:
            return False
        if tp in self._added:
            return True
        if self.implicit and not self._hold_until:
            self.started = True
            return True
        self._wanted[tp] = None
        self._transactions.changed()
        return False

    def release_hold(self) -> None:
        """Called a moment after a transaction has ended: let waiting partitions go on."""
        self._hold_until = 0.0
        if self.implicit:  # otherwise they are added now
            waiting, self._wanted = self._wanted, {}
            self._partitions.reopen(waiting)

    def sequence_lost(self) -> None:
        """Some sequence numbers may be missing in the log. They must not be used again."""
        self._needs_epoch = True

    def record_failed(self, error: KprodError) -> None:
        """Records of the transaction have ended in ``error``: it cannot be committed any more."""
        if isinstance(error, BrokerError) and error.code in FATAL_FOR_RECORDS:
            self._end_for_good(reaction(ApiKey.PRODUCE, error.code), error)
        else:
            self._transactions.fail(error)
        self._transactions.changed()  # it may be drained

    # The sender's loop ---------------------------------------------------------------------------

    def fire(self, now: float) -> None:
        """Do what the state asks for: send a request, end a call, or check again later."""
        state = self._transactions.state
        flushes = self._partitions.accumulator.flushes
        (flushes.add if state in FLUSHING else flushes.discard)(self)
        drained = state in ENDING and self._gather(state, now)
        if self._hold_until:
            if now < self._hold_until:
                self._deadlines.set(self, self._hold_until)
                return
            self.release_hold()
        if self._in_flight:
            return
        ask = self.next_ask(drained=drained)
        if ask is not None:
            if now < self._retry_at:
                self._deadlines.set(self, self._retry_at)
            else:
                self._ask(ask, now)

    def _gather(self, state: State, now: float) -> bool:
        """End the transaction's batches: send them at once, or drop them.

        True when all have outcomes. No more records join the transaction.
        """
        if self._closed_for != self._transactions.number:
            # From here on a record can only be one of the next transaction.
            self._partitions.accumulator.close_open_batches()
            self._closed_for = self._transactions.number
        if state in DOOMED:
            self._drop_queued(now)
        drained = self._partitions.drained
        if not drained:
            self._network.waiting[self] = None  # each answer may be the last
        return drained

    def _drop_queued(self, now: float) -> None:
        cause = self._transactions.error
        for batch in self._partitions.take_queued(now):
            if batch.maybe_written:
                why = (
                    f"{self._transactions} was aborted: {batch.tp} may have the record, and no"
                    " reader of committed records ever sees it"
                )
            else:
                why = f"{self._transactions} was aborted before {batch.tp} had the record"
            error = TransactionAbortedError(why)
            error.__cause__ = cause
            batch.partition.give_up(batch, error, now)

    # The next request -----------------------------------------------------------------------------

    def next_ask(self, *, drained: bool) -> Ask | None:
        """The next request, or None. Ends the calls that need no request."""
        transactions = self._transactions
        if transactions.producer is not None and self._identity.producer is None:
            # Another process has prepared it under its id and epoch. How far the sequence numbers
            # of the partitions are is not known: another epoch follows.
            self._identify(*transactions.producer)
            self.started = self._resumed = self._needs_epoch = True
        ask = self._next_of_transaction(drained=drained)
        # A question about a group changes nothing, so it may be asked at any time. But not again
        # and again before all others: the end of this very transaction may be what it waits for.
        if not transactions.fetches or (ask is not None and self._fetches):
            return ask
        fetch = transactions.fetches[0]
        fields, count = (fetch.group_id, by_topic(fetch.partitions)), len(fetch.partitions)
        return Ask(ApiKey.OFFSET_FETCH, (GROUP, fetch.group_id), fields, fetch, count=count)

    def _next_of_transaction(self, *, drained: bool) -> Ask | None:
        state = self._transactions.state
        if state is State.INITIALIZING:
            return self._initialize()
        ask: Ask | None = None
        if state in OPEN:
            if self._hold_until:
                return None
            ask = self._to_add()
        elif state is State.ABORTING:
            ask = self._doubtful
        if ask is not None or not drained:
            return ask
        if state is State.PREPARED:
            if self._transactions.under_way:
                self._transactions.prepared()
        elif state in ENDS and self.started:
            committed = state is State.COMMITTING and self._refused_commit is None
            return self._change(ApiKey.END_TXN, committed, about=committed)
        elif state in ENDS:
            self._ended(renewed=False)
        return None

    def _initialize(self) -> Ask:
        transactions, producer = self._transactions, self._transactions.producer
        fields = transactions.transactional_id, transactions.timeout_ms, *(producer or ())
        # Without the epoch it would fence a producer that has taken over.
        older = "" if producer is None else "give a producer no new epoch"
        return Ask(ApiKey.INIT_PRODUCER_ID, self._coordinator, fields, older=older)

    def _change(
        self, api: ApiKey, *fields: Any, about: Any, to: Coordinator | None = None, **limits: Any
    ) -> Ask:
        """A request that changes the transaction. ``fields`` follow those that say which it is."""
        producer = self._identity.producer
        if producer is None:
            raise AssertionError("a transaction has a producer id")
        whole = self._transactions.transactional_id, producer[:2], *fields
        cap = None if self.implicit else BEFORE_IMPLICIT
        return Ask(api, to or self._coordinator, whole, about, version_cap=cap, **limits)

    def _to_add(self) -> Ask | None:
        if self._wanted:
            added = tuple(self._wanted)
            topics, api = by_topic(added), ApiKey.ADD_PARTITIONS_TO_TXN
            return self._change(api, topics, about=added, count=len(added))
        pending = self._transactions.next_offsets()
        if pending is None:
            return None
        member, left = pending.member, tuple(pending.left)
        group_id = member.group_id
        if not self.implicit and group_id not in self._groups:
            return self._change(ApiKey.ADD_OFFSETS_TO_TXN, group_id, about=group_id)
        # Without its member it would commit for one that was expelled.
        alone = member == GroupMetadata(group_id)
        older = "" if alone else "check no member of a group: give the id of the group alone"
        api, to = ApiKey.TXN_OFFSET_COMMIT, (GROUP, group_id)
        return self._change(api, member, left, about=pending, to=to, count=len(left), older=older)

    def leaves(self, ask: Ask) -> None:
        """``ask`` is about to be sent."""
        if ask.api is ApiKey.TXN_OFFSET_COMMIT:
            self.started = True
        then = ask.about if ask.api is ApiKey.FIND_COORDINATOR else ask
        self._fetches = then.api is ApiKey.OFFSET_FETCH

    def _ask(self, ask: Ask, now: float) -> None:
        wanted = ask.coordinator
        known = self._coordinators.get(wanted)
        if known is None:
            ask = finding(ask)
            broker = self._network.any_usable(now)
        else:
            broker = self._reachable(wanted, *known, now)
        if broker is None:
            self._network.waiting[self] = None
            return
        self._in_flight = True
        self.leaves(ask)
        ask.by = self
        broker.send(ask, now)

    def _reachable(
        self, wanted: Coordinator, node_id: int, since: float, now: float
    ) -> Broker | None:
        """The node, if it takes a request now.

        If it seems unreachable, the coordinator is found anew.
        """
        broker = self._network.broker(node_id)
        if broker is not None and self._network.ready(broker, now):
            return broker
        if broker is None or node_id not in self._metadata.snapshot.brokers:
            self._metadata.request_update(brokers=True)
            if now < since + PATIENCE:
                self._deadlines.set(self, since + PATIENCE)
                return None
        else:
            last_error = broker.last_error(now)
            if last_error is None:
                return None
            self._transactions.last_error = last_error
            if broker.throttled_for(now) > 0:
                return None  # it has asked for that
            self._metadata.request_update(brokers=True)  # it may be at another address by now
        del self._coordinators[wanted]
        self._back_off(now)
        return None

    def _back_off(self, now: float, longest: float = FOREVER) -> None:
        self._failures += 1
        self._retry_at = now + min(self._partitions.retry_backoff.delay(self._failures), longest)
        self._deadlines.set(self, self._retry_at)

    # Answers --------------------------------------------------------------------------------------

    def answered(self, ask: Ask, reply: Any, now: float) -> None:
        """Handle the answer, and decide whether ``ask`` is repeated."""
        self._in_flight = False
        self._deadlines.queued.append(self)
        left = self.take(ask, reply, now)
        if left is None:
            self._retry_at = 0.0
            if ask.api is not ApiKey.FIND_COORDINATOR:  # which has still to be reached
                self._failures, self._transactions.last_error = 0, None
            known = self._identity.producer is not None or self._identity.fatal is not None
            if known and not self._identity.settled.is_open:
                self._identity.settled.open()
        else:
            if left is Reaction.FIND_AGAIN:
                self._coordinators.pop(ask.coordinator, None)
            self._back_off(now, SOON if left is Reaction.RETRY_SOON else FOREVER)

    def failed(self, ask: Ask, error: KprodError, now: float, *, sent: bool) -> None:
        """No answer came. Ask again, perhaps another broker."""
        self._in_flight = False
        self._deadlines.queued.append(self)
        self._coordinators.pop(ask.coordinator, None)
        self._transactions.last_error = error
        if sent and ask.api in CHANGES:
            # It is repeated, and may come a second time, to the next transaction: an end would end
            # that too early (KAFKA-17754), offsets of an aborted transaction would be committed
            # with it, and an addition would open one without an end.
            self._needs_epoch = True
        if sent and ask.api in ADDITIONS:
            self._doubtful = ask
        if ask.api is ApiKey.OFFSET_FETCH and isinstance(error, UnsupportedVersionError):
            self._transactions.end_fetch(ask.about, error)
        if ask.too_old and ask.api is ApiKey.INIT_PRODUCER_ID:
            self._end_for_good(Reaction.START_AGAIN, error)
        elif ask.too_old:
            self._transactions.fail(error)
        self._back_off(now)

    def take(self, ask: Ask, reply: Any, now: float) -> Reaction | None:
        """Handle the answer.

        Returns one of ``AGAIN`` if the request must be repeated, otherwise None.
        """
        if ask.api in ADDITIONS:
            self._doubtful = None
        if ask.api is ApiKey.OFFSET_FETCH:
            return self._offsets_fetched(ask, reply)
        if ask.api in (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT):
            return self._partitions_answered(ask, reply.results)
        if reply.error_code:
            return self._react(ask, reply.error_code)
        if ask.api is ApiKey.FIND_COORDINATOR:
            self._coordinators[ask.coordinator] = reply.node_id, now
            if reply.node_id not in self._metadata.snapshot.brokers:
                self._metadata.request_update(brokers=True)
        elif ask.api is ApiKey.ADD_OFFSETS_TO_TXN:
            self._groups.add(ask.about)
            self.started = True
        elif ask.api is ApiKey.END_TXN:
            if reply.producer is not None:
                self._identify(*reply.producer)
            self._ended(renewed=reply.producer is not None)
            self._hold_until = now + MARKERS
        else:
            self._identify(reply.producer_id, reply.producer_epoch)
            self._begin_anew()
        return None

    def _identify(self, producer_id: int, epoch: int) -> None:
        # A coordinator fences a producer, or ends a transaction that takes too long, with the next
        # epoch. There is none after the last one, which the answer to a late abort can have.
        self._needs_epoch = epoch == LAST_EPOCH
        self._identity.producer = ProducerId(producer_id, epoch, transactional=True)
        self._transactions.producer = producer_id, epoch

    def _begin_anew(self) -> None:
        self._forget_transaction()
        self._transactions.used_level = self._transactions.level
        self._transactions.ready()

    def _ended(self, *, renewed: bool) -> None:
        """The transaction is over. ``renewed``: its end returned the epoch of the next one."""
        refused = self._refused_commit if self._transactions.state is State.COMMITTING else None
        upgraded = not self.implicit and self._transactions.level >= IMPLICIT_FROM
        if not renewed and (upgraded or refused is not None):
            # Brokers distinguish transactions of the two protocols by their epochs.
            self._needs_epoch = True
        if refused is not None:
            # The coordinator took an abort after it had refused the commit: nothing was fenced.
            self._forget_transaction()
            self._transactions.fail(refused)
        elif self._needs_epoch:
            self._transactions.reinitializes()
        else:
            self._begin_anew()

    def _partitions_answered(
        self, ask: Ask, results: Iterable[tuple[str, int, int]]
    ) -> Reaction | None:
        """Handle an answer that has an error code for each partition."""
        codes = {TopicPartition(topic, number): code for topic, number, code in results}
        if ask.api is ApiKey.ADD_PARTITIONS_TO_TXN:
            asked: Iterable[TopicPartition] = ask.about
            added = [tp for tp in asked if codes.get(tp) == 0]
            self.started = self.started or bool(added)
            self._added.update(added)
            for tp in added:
                self._wanted.pop(tp, None)
            self._partitions.reopen(added)
        else:
            pending: PendingOffsets = ask.about
            if pending is not self._transactions.next_offsets():
                return None  # dropped meanwhile: the transaction is being aborted
            asked = [TopicPartition(offset.topic, offset.partition) for offset in pending.left]
            places = zip(asked, pending.left, strict=True)
            pending.left = [offset for tp, offset in places if codes.get(tp) != 0]
            if not pending.left:
                self._transactions.offsets_sent(pending)
        refused = [tp for tp in asked if codes.get(tp)]
        if not refused:
            return None if all(tp in codes for tp in asked) else Reaction.RETRY
        worst = max(
            refused,
            key=lambda tp: (
                reaction(ask.api, codes[tp], implicit=self.implicit).value,
                codes[tp] != ErrorCode.OPERATION_NOT_ATTEMPTED,  # because of another one
            ),
        )
        return self._react(ask, codes[worst], str(worst))

    def _offsets_fetched(self, ask: Ask, reply: OffsetsReply) -> Reaction | None:
        codes = [reply.error_code, *(found.error_code for found in reply.offsets)]
        code = next((code for code in codes if code), 0)
        fetch: OffsetFetch = ask.about
        if code and (code != ErrorCode.UNSTABLE_OFFSET_COMMIT or fetch.waits):
            return self._react(ask, code, f"of the group {fetch.group_id!r}")
        fetch.found = reply.offsets
        self._transactions.end_fetch(fetch)
        self._fetches = False
        return None

    def _react(self, ask: Ask, code: int, where: str = "") -> Reaction | None:
        if ask.api is ApiKey.END_TXN and ask.about and self.implicit and code in LATE:
            self._refused_commit = BrokerError(code, str(ask))
            return None
        found = reaction(ask.api, code, implicit=self.implicit)
        error = BrokerError(code, f"{ask} {where}" if where else str(ask))
        finds = ask.api is ApiKey.FIND_COORDINATOR
        then, state = ask.about if finds else ask, self._transactions.state
        if found in AGAIN:
            self._transactions.last_error = error
            return found
        if then.api is ApiKey.OFFSET_FETCH:
            # Also if its caller has gone: the transaction has nothing to do with it.
            self._transactions.end_fetch(then.about, error)
        elif found is not Reaction.ABORT:
            self._end_for_good(found, error)
        elif state is State.INITIALIZING:
            self._end_for_good(Reaction.CLOSE, error)
        elif (
            state is State.ABORTING
            and ask.coordinator == self._coordinator
            and (finds or ask.api is ApiKey.END_TXN)
        ):
            self._end_for_good(Reaction.START_AGAIN, error)  # it cannot even be aborted
        else:
            self._wanted.clear()
            self._transactions.fail(error)
        return None

    def _end_for_good(self, found: Reaction, cause: KprodError) -> None:
        if found is Reaction.FENCED:
            error: TransactionError = ProducerFencedError(f"{self._transactions}: {cause}")
            error.add_note(FENCED)
        else:
            error = TransactionError(f"{self._transactions}: {cause}")
            again = found is Reaction.START_AGAIN
            error.next_step = NextStep.START_AGAIN if again else NextStep.CLOSE
        error.__cause__ = cause
        text = error.with_number()
        # A resumed transaction may have been ended by another process: an answer, not a failure.
        is_over = self._resumed and isinstance(cause, BrokerError) and cause.code in LATE
        gave_way = self._transactions.has_rivals and found is Reaction.FENCED
        level = logging.INFO if is_over or gave_way else logging.ERROR
        log.log(level, "%s; the producer can only be closed (%s)", text, error.next_step)
        self._identity.fatal = error
        self._transactions.end_for_good(error)

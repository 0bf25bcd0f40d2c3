"""Runs the protocols with transactional producers, in a task or for the driver."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from kprod.clock import monotonic
from kprod.config import ProducerConfig
from kprod.config.reading import option_name
from kprod.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    IllegalStateError,
    KprodError,
    KprodTimeoutError,
    ProducerFencedError,
    TransactionError,
    UnsupportedVersionError,
)
from kprod.exactly_once.errors import ExactlyOnceError, TransactionTooSlow
from kprod.exactly_once.marker import (
    SHARE_OF_TIME,
    Marker,
    check_batch_time,
    check_time,
    read_marker,
    too_slow,
)
from kprod.exactly_once.shard import Shard, names_of_attempts
from kprod.exactly_once.steps import (
    CheckTime,
    CommitMarkers,
    CompareRows,
    EndAll,
    FenceAll,
    Fenced,
    ListOpen,
    Pause,
    Prepare,
    ReadMarker,
    Step,
    TakeOver,
    WriteRows,
    Written,
)
from kprod.transactional.rename import rename
from kprod.transactional.two_phase_commit import PreparedTransaction, TwoPhaseCommit

if TYPE_CHECKING:
    from kprod.admin import OpenTransaction
    from kprod.producer import KafkaProducer

log = logging.getLogger("kprod")

CLOSING_SECONDS = 5.0
"""Seconds to abort a transaction after an exception; after that, it is left to time out."""
AT_ONCE = 8
"""Transactions that are ended at the same time, each by a separate producer."""
RETRY_PAUSE = 0.1
OVER = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""The transaction has ended, or its epoch is outdated."""

Lend: TypeAlias = "Callable[[str], AbstractContextManager[KafkaProducer]]"
"""Lends a producer to a block. If it has to be made, it gets this transactional id. If the block
raises, it is closed, which aborts an open transaction, but not a prepared one."""

T = TypeVar("T")
R = TypeVar("R")


class _Position(NamedTuple):
    """An offset to commit, in the form that producers take."""

    offset: int
    metadata: str


class ShardRows(Protocol):
    """The rows of one attempt at a shard. For one thread only."""

    def write(self, producer: KafkaProducer, tick: Callable[[], None]) -> Written:
        """Send every row in the open transaction, and return when all are acknowledged.

        Calls ``tick`` repeatedly meanwhile. Raises the errors of ``send``.
        """

    def compare(self, marker: Marker, shard: Shard) -> None:
        """Raise RowsChanged unless the rows are the ones that the marker describes."""


@dataclass(kw_only=True)
class Runner:
    """Runs one protocol: an attempt at ``shard``, or the driver's part for the batch of ``shard``.

    ``options`` are those of ``KafkaProducer``, without a ``transactional_id``. An attempt has
    ``rows``, the driver has none. One producer from ``lend`` has all transactional ids of the
    protocol, one after the other; by default it is made for the runner. Use a runner once, in one
    thread, as a context manager.
    """

    shard: Shard
    options: Mapping[str, Any] = field(repr=False)  # may hold passwords
    rows: ShardRows | None = None
    lend: Lend | None = None
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self._lent: KafkaProducer | None = None
        self._lending = ExitStack()
        self._config = ProducerConfig.from_options(self._options_of(self.shard.transactional_id))
        self._seconds = self._config.transaction_timeout_ms / 1000
        self._is_open = False  # the transaction
        self._began = 0.0
        self._began_ms = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._lending.__exit__(kind, error, traceback)
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"the producer could not be closed: {failure}")

    @property
    def patience(self) -> float:
        """Seconds for which a fenced attempt or driver waits for the one that fenced it."""
        return self._seconds * SHARE_OF_TIME

    def follow(self, protocol: Generator[Step, Any, T]) -> T:
        """Execute the steps of ``protocol``, and return its result.

        Raises ExactlyOnceError and the errors of ``send``. Raises ProducerFencedError if another
        attempt or driver has taken over and does not complete its work. Raises TransactionTooSlow,
        without waiting for another attempt, if the transaction was open for longer than its
        time-out.
        """
        answer: Any = None
        thrown: Fenced | ExactlyOnceError | None = None
        while True:
            try:
                step = protocol.send(answer) if thrown is None else protocol.throw(thrown)
            except StopIteration as end:
                result: T = end.value
                return result
            except Fenced as fenced:
                if fenced.too_slow is not None:
                    raise fenced.too_slow from fenced.__cause__
                raise ProducerFencedError(str(fenced)) from fenced.__cause__
            answer, thrown = None, None
            try:
                answer = _TAKES[type(step)](self, step)
            except KprodError as error:
                late = self._timed_out()
                if self._gave_way(error):
                    thrown = Fenced(f"{self.shard}: {error}", late)
                    thrown.__cause__ = error
                elif isinstance(error, ExactlyOnceError):
                    thrown = error
                else:
                    raise

    def tick(self) -> None:
        """Raise TransactionTooSlow if half of the transaction's time-out has passed."""
        if self._is_open:
            check_time(self.shard, self._began, self.now(), self._seconds)

    def _timed_out(self) -> TransactionTooSlow | None:
        """The error for the open transaction, if it has been open for longer than its time-out."""
        seconds = self.now() - self._began
        if not self._is_open or seconds <= self._seconds:
            return None
        return too_slow(self.shard, seconds, self._seconds)

    def _gave_way(self, error: KprodError) -> bool:
        """Abort the open transaction; return whether another producer has taken over."""
        was_open, self._is_open = self._is_open, False
        if was_open and not isinstance(error, ProducerFencedError):
            try:
                self._producer.abort_transaction()
            except ProducerFencedError:
                return True
            except KprodError as unconfirmed:
                error.add_note(f"its coordinator has not confirmed the abort: {unconfirmed}")
        return isinstance(error, ProducerFencedError) or _is_over(error)

    @property
    def _producer(self) -> KafkaProducer:
        """The producer, lent on first use."""
        if self._lent is None:
            lend = self.lend or self._own
            self._lent = self._lending.enter_context(lend(self.shard.transactional_id))
        return self._lent

    def _own(self, name: str) -> AbstractContextManager[KafkaProducer]:
        return _made(self._options_of(name))

    def _ending(self, name: str) -> AbstractContextManager[KafkaProducer]:
        """A producer that ends a transaction of this id, and sends no records."""
        from kprod.producer import SENDS_RECORDS

        options = self._options_of(name)
        return _made(
            {key: options[key] for key in options if option_name(key) not in SENDS_RECORDS}
        )

    def _options_of(self, name: str) -> dict[str, Any]:
        return {**self.options, "transactional_id": name}

    def _take_over(self, step: TakeOver) -> None:
        """Take over the id. Raises ConfigError if the brokers reject the transaction's time-out."""
        while not self._takes_id(step.transactional_id):
            self._lent = None
        try:
            self._producer.init_transactions()
        except TransactionError as error:
            _check_allowed(self._config.transaction_timeout_ms, error)
            raise

    def _takes_id(self, name: str) -> bool:
        """Give the producer this id. If it was fenced, return it as a failed one."""
        try:
            rename(self._producer, name)
        except IllegalStateError as error:
            self._lending.__exit__(type(error), error, error.__traceback__)
            return False
        return True

    def _read_marker(self, step: ReadMarker) -> Marker | None:
        offsets, place = TwoPhaseCommit(self._producer), self.shard.place
        found = offsets.committed_offsets(step.group, [place], wait=step.wait)[place]
        return read_marker(found.offset, found.metadata, step.group)

    def _begin(self) -> KafkaProducer:
        if not self._is_open:
            self._producer.begin_transaction()
            self._is_open, self._began = True, self.now()
            self._began_ms = time.time_ns() // 1_000_000
        return self._producer

    def _write_rows(self, step: WriteRows) -> Written:
        assert self.rows is not None, "a driver has no rows"
        written = self.rows.write(self._begin(), self.tick)
        self.tick()
        return written

    def _compare_rows(self, step: CompareRows) -> None:
        assert self.rows is not None, "a driver has no rows"
        self.rows.compare(step.marker, self.shard)

    def _commit_markers(self, step: CommitMarkers) -> None:
        if not self._is_open:
            self._producer.partitions_for(self.shard.topic)  # it exists, or is made
        producer = self._begin()
        for group, marker in step.markers:
            self._add_marker(producer, group, marker)
        self.tick()
        producer.commit_transaction()
        self._is_open = False

    def _add_marker(self, producer: KafkaProducer, group: str, marker: Marker) -> None:
        position = _Position(marker.offset, marker.metadata)
        producer.send_offsets_to_transaction({self.shard.place: position}, group)

    def _prepare(self, step: Prepare) -> PreparedTransaction:
        producer = self._producer
        self._add_marker(producer, step.group, step.marker)
        self.tick()
        prepared = TwoPhaseCommit(producer).prepare(began_ms=self._began_ms)
        self._is_open = False
        return prepared

    def _end_all(self, step: EndAll) -> tuple[bool, ...]:
        """End the transactions. Raises an error if the end of one is not known."""
        return _side_by_side(lambda one: self._end(one, step.committed), step.transactions)

    def _end(self, prepared: PreparedTransaction, committed: bool) -> bool:
        with self._ending(prepared.transactional_id) as producer:
            try:
                TwoPhaseCommit(producer).resume(prepared)
                if committed:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
            except KprodError as error:
                if isinstance(error, ProducerFencedError) or _is_over(error):
                    return False
                raise
        return True

    def _fence_all(self, step: FenceAll) -> None:
        _side_by_side(self._fence, step.transactional_ids)

    def _fence(self, name: str) -> None:
        with self._ending(name) as producer:
            producer.init_transactions()

    def _list_open(self, step: ListOpen) -> list[PreparedTransaction]:
        """List the transactions. Raises UnsupportedVersionError before Apache Kafka 3.0."""
        names = names_of_attempts(step.job_name, layout=step.idle)
        try:
            states = ("Ongoing", "Empty") if step.idle else ("Ongoing",)
            found = self._in_states(states, names)
        except (ConfigError, UnsupportedVersionError) as error:
            if not step.if_possible:
                raise
            log.debug("%s: open transactions cannot be listed: %s", self.shard, error)
            return []
        return [
            PreparedTransaction(one.transactional_id, one.producer_id, one.epoch) for one in found
        ]

    def _in_states(self, states: Sequence[str], names: re.Pattern[str]) -> list[OpenTransaction]:
        """These transactions in these states. If a broker restarts, retry for ``max_block_ms``."""
        from kprod.admin.cluster_client import ClusterClient
        from kprod.admin.open_transactions import in_states

        deadline = monotonic() + self._config.max_block_ms / 1000
        while True:
            try:
                with ClusterClient(self._config, deadline) as cluster:
                    return in_states(cluster, states, names)
            except KprodTimeoutError:
                raise
            except KprodError as error:
                if not error.retriable:
                    raise
            self.sleep(RETRY_PAUSE)

    def _check_time(self, step: CheckTime) -> None:
        began = [one.began_ms for one in step.transactions if one.began_ms is not None]
        if began:
            check_batch_time(self.shard, min(began) / 1000, time.time_ns() / 1e9, self._seconds)

    def _pause(self, step: Pause) -> None:
        self.sleep(step.seconds)


_TAKES: Mapping[type[Step], Callable[[Runner, Any], Any]] = {
    TakeOver: Runner._take_over,
    ReadMarker: Runner._read_marker,
    WriteRows: Runner._write_rows,
    CompareRows: Runner._compare_rows,
    CommitMarkers: Runner._commit_markers,
    Prepare: Runner._prepare,
    EndAll: Runner._end_all,
    FenceAll: Runner._fence_all,
    ListOpen: Runner._list_open,
    CheckTime: Runner._check_time,
    Pause: Runner._pause,
}


@contextmanager
def _made(options: Mapping[str, Any]) -> Iterator[KafkaProducer]:
    # Imported here: the driver that only describes a job opens no door to the network.
    from kprod.producer import KafkaProducer

    producer = KafkaProducer(**options)
    try:
        yield producer
    finally:
        producer.close(CLOSING_SECONDS)


def _side_by_side(call: Callable[[T], R], items: Sequence[T]) -> tuple[R, ...]:
    if len(items) < 2:
        return tuple(map(call, items))
    with ThreadPoolExecutor(min(AT_ONCE, len(items))) as threads:
        return tuple(threads.map(call, items))


def _check_allowed(timeout_ms: int, error: TransactionError) -> None:
    cause = error.__cause__
    if isinstance(cause, BrokerError) and cause.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        raise ConfigError(
            f"transaction_timeout_ms is {timeout_ms:,}, which is more than the brokers allow: set"
            " it to at most their transaction.max.timeout.ms. A task or an atomic batch may take"
            " half of it"
        ) from error


def _is_over(error: BaseException | None) -> bool:
    """Whether brokers say that the transaction has ended, or that its epoch is outdated.

    With version 2 of the transaction protocol, an abort may succeed while another producer takes
    over. The aborting producer then does not learn that it was fenced. In a task, the cause is
    never the transaction's time-out, because ``tick`` raises earlier.
    """
    while error is not None:
        if isinstance(error, BrokerError) and error.code in OVER:
            return True
        error = error.__cause__
    return False

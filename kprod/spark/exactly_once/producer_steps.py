"""Steps of the protocols that need a producer, or a list of the brokers' transactions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from kprod.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    KprodError,
    KprodTimeoutError,
    ProducerFencedError,
    TransactionError,
)
from kprod.spark.exactly_once.marker import Marker, read_marker
from kprod.spark.executor_producer import make_producer
from kprod.spark.producer_options import ClusterAccess, cluster_access
from kprod.transactional.two_phase_commit import PreparedTransaction, TwoPhaseCommit
from kprod.types import TopicPartition

if TYPE_CHECKING:
    from kprod.broker.open_transactions import OpenTransaction
    from kprod.producer import KafkaProducer

CLOSING_SECONDS = 5.0
"""For aborting what an exception has left open; after that brokers do it, at its time-out."""
AT_ONCE = 8
"""Transactions that are ended at the same time, each by a producer of its own."""
RETRY_PAUSE = 0.1
OVER = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""The transaction is over, or its epoch old."""

T = TypeVar("T")
R = TypeVar("R")


class _Position(NamedTuple):
    """An offset to commit, in the form that producers take."""

    offset: int
    metadata: str


class ProducerSteps:
    """Producers by transactional id, for one attempt at a shard or one end of a batch.

    ``place`` is what markers are committed for. Thread: one. A context manager: its end closes the
    producers, which aborts what is open and leaves what is prepared.
    """

    def __init__(self, options: Mapping[str, Any], place: TopicPartition) -> None:
        self.place = place
        self._options = options
        self._producers: dict[str, KafkaProducer] = {}
        self._taken_over: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for producer in self._producers.values():
            producer.close(CLOSING_SECONDS)

    def producer(self, name: str) -> KafkaProducer:
        """The producer of this transactional id, made when first asked for."""
        found = self._producers.get(name)
        if found is None:
            found = self._producers[name] = self._made(name)
        return found

    def take_over(self, name: str) -> None:
        """``TakeOver``. Raises ConfigError for a time-out that brokers do not allow."""
        if name in self._taken_over:  # it was fenced, and comes back as another one
            self._producers.pop(name).close(0)
        producer = self.producer(name)
        try:
            producer.init_transactions()
        except TransactionError as error:
            _check_allowed(producer.config.transaction_timeout_ms, error)
            raise
        self._taken_over.add(name)

    def read(self, group: str, *, asked: str, wait: bool) -> Marker | None:
        """``ReadMarker``, asked by the producer that is called ``asked``."""
        offsets = TwoPhaseCommit(self.producer(asked))
        found = offsets.committed_offsets(group, [self.place], wait=wait)[self.place]
        return read_marker(found.offset, found.metadata, group)

    def add_marker(self, name: str, group: str, marker: Marker) -> None:
        """Put a marker into the open transaction of ``name``."""
        position = _Position(marker.offset, marker.metadata)
        self.producer(name).send_offsets_to_transaction({self.place: position}, group)

    def end_all(
        self, transactions: Sequence[PreparedTransaction], *, committed: bool
    ) -> tuple[bool, ...]:
        """``EndAll``. Raises what is no answer about a transaction, as TransactionTimeoutError."""
        return self._side_by_side(lambda one: self._end(one, committed), transactions)

    def fence_all(self, names: Sequence[str]) -> None:
        """``FenceAll``."""
        self._side_by_side(self._fence, names)

    def opened(self, job_name: str) -> list[PreparedTransaction]:
        """``ListOpen``. Raises UnsupportedVersionError for brokers before Apache Kafka 3.0."""
        found = _ongoing(cluster_access(self._options))
        attempt = re.compile(re.escape(job_name) + r"\.\d+/\d+")
        return [
            PreparedTransaction(one.transactional_id, one.producer_id, one.epoch)
            for one in found
            if attempt.fullmatch(one.transactional_id)
        ]

    def _made(self, name: str) -> KafkaProducer:
        return make_producer({**self._options, "transactional_id": name})

    def _end(self, prepared: PreparedTransaction, committed: bool) -> bool:
        producer = self._made(prepared.transactional_id)
        try:
            TwoPhaseCommit(producer).resume(prepared)
            if committed:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        except KprodError as error:
            if isinstance(error, ProducerFencedError) or is_over(error):
                return False
            raise
        finally:
            producer.close(CLOSING_SECONDS)
        return True

    def _fence(self, name: str) -> None:
        producer = self._made(name)
        try:
            producer.init_transactions()
        finally:
            producer.close(CLOSING_SECONDS)

    def _side_by_side(self, call: Callable[[T], R], items: Sequence[T]) -> tuple[R, ...]:
        if len(items) < 2:
            return tuple(map(call, items))
        with ThreadPoolExecutor(min(AT_ONCE, len(items))) as threads:
            return tuple(threads.map(call, items))


def _check_allowed(timeout_ms: int, error: TransactionError) -> None:
    told = error.__cause__
    if isinstance(told, BrokerError) and told.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        raise ConfigError(
            f"transaction_timeout_ms is {timeout_ms:,}, and the brokers allow less: set it to their"
            " transaction.max.timeout.ms, of which a task or an atomic batch may take half"
        ) from error


def _ongoing(access: ClusterAccess) -> list[OpenTransaction]:
    """Asked again, for as long as ``access`` says, where a broker starts anew meanwhile."""
    from kprod.broker.open_transactions import open_transactions

    deadline = time.monotonic() + access.timeout
    while True:
        try:
            return open_transactions(
                access.bootstrap_servers,
                states=("Ongoing",),
                timeout=max(deadline - time.monotonic(), 0.0),
                security=access.security,
            )
        except KprodTimeoutError:
            raise
        except KprodError as error:
            if not error.retriable:
                raise
        time.sleep(RETRY_PAUSE)


def is_over(error: BaseException | None) -> bool:
    """Whether brokers say that the transaction is over, or its epoch old.

    Protocol 2 takes an abort of a producer while another one is being given its place: that one is
    not told yet that it was fenced. In a task the time-out is no reason: ``tick`` comes before it.
    """
    while error is not None:
        if isinstance(error, BrokerError) and error.code in OVER:
            return True
        error = error.__cause__
    return False

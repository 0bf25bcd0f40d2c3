"""A node without a network, for tests of what handlers answer."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kprod.broker.dispatch import Dispatcher
from kprod.broker.groups.group import GroupConfig
from kprod.broker.groups.group_coordinator import GroupCoordinator
from kprod.broker.groups.offsets_topic import OFFSETS_TOPIC
from kprod.broker.handler_pool import HandlerPool
from kprod.broker.handlers import HANDLERS
from kprod.broker.log.log_directories import LogDirectories
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.network.connection import HangUp
from kprod.broker.network.listener import Session
from kprod.broker.network.stream import Part
from kprod.broker.node import Address, BrokerOptions, ClusterState, Handler, Node
from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.protocol.messages import Message, request_schema, response_schema
from kprod.broker.purgatory import Purgatory, Timer
from kprod.broker.records.batch_writer import TransactionMarker
from kprod.broker.records.file_slice import in_memory
from kprod.broker.topics import Topics
from kprod.broker.transactions.transaction import ProducerIds
from kprod.broker.transactions.transaction_coordinator import TransactionCoordinator
from kprod.broker.transactions.transaction_topic import TRANSACTION_TOPIC
from kprod.clock import SystemClock
from kprod.types import TopicPartition


@contextmanager
def running_node(path: Path, **options: Any) -> Iterator[Node]:
    """A node with its data under ``path``; ``options`` are fields of ``BrokerOptions``.

    ``before_write`` is called before each record of a coordinator and each marker is written.
    """
    before_write: Callable[[], None] = options.pop("before_write", lambda: None)
    clean: bool = options.pop("clean", True)
    given = BrokerOptions(**options)
    logs = LogDirectories([path], given.log_config)
    timer, pool, controller = Timer(SystemClock()), HandlerPool(), HandlerPool(1)
    pool.start()
    controller.start()
    topics = Topics(logs)
    state = ClusterState()

    def internal(name: str) -> PartitionLog:
        (log,) = topics.find_or_create(name, 1).partitions
        before_write()
        return log

    def end(where: TopicPartition, marker: TransactionMarker, version: int) -> None:
        before_write()
        _end(topics, groups, where, marker, version)

    state.node_started(1, {"PLAINTEXT": Address("broker.example", 9092)})
    around = (timer, pool.submit, SystemClock())
    groups = GroupCoordinator(GroupConfig(), lambda _: internal(OFFSETS_TOPIC), *around)
    transactions = TransactionCoordinator(
        given.transaction_config,
        lambda _: internal(TRANSACTION_TOPIC),
        end,
        ProducerIds(path / "producer-ids-checkpoint"),
        *around,
    )
    _load(topics, groups, transactions)
    try:
        yield Node(
            options=given,
            cluster_id=logs.cluster_id,
            topics=topics,
            purgatory=Purgatory(timer, pool.submit),
            groups=groups,
            transactions=transactions,
            timer=timer,
            controller=controller.submit,
            state=state,
        )
    finally:
        controller.close()
        groups.close()
        transactions.close()
        timer.close()
        pool.close()
        logs.close() if clean else logs.abandon()


def _load(topics: Topics, groups: GroupCoordinator, transactions: TransactionCoordinator) -> None:
    for name, load in ((OFFSETS_TOPIC, groups.load), (TRANSACTION_TOPIC, transactions.load)):
        known = topics.find(name)
        for log in known.partitions if known else ():
            load(log)


def _end(
    topics: Topics,
    groups: GroupCoordinator,
    where: TopicPartition,
    marker: TransactionMarker,
    version: int,
) -> None:
    if where.topic == OFFSETS_TOPIC:
        groups.end_transaction(where.partition, marker, version)
        return
    topic = topics.find(where.topic)
    assert topic is not None
    topic.partitions[where.partition].end_transaction(marker, 1_000, transaction_version=version)


def request(api: ApiKey, version: int, values: Message) -> bytes:
    """A request frame as a dispatcher takes it."""
    header = {
        "request_api_key": api,
        "request_api_version": version,
        "correlation_id": 77,
        "client_id": "test",
    }
    return request_schema(api, version).encode(header, values)[4:]


class WaitingReply:
    """Takes the one answer of a request, for a thread that waits for it."""

    def __init__(self) -> None:
        self._answer: queue.SimpleQueue[bytes | HangUp] = queue.SimpleQueue()

    def __call__(self, parts: Sequence[Part], close: str | None = None) -> None:
        """The response, or none."""
        self._answer.put(in_memory(parts) if close is None else HangUp(close))

    def wait(self, seconds: float = 30) -> bytes:
        """The response frame; empty when there is none. Raises ``HangUp``, and ``queue.Empty``."""
        answer = self._answer.get(timeout=seconds)
        if isinstance(answer, HangUp):
            raise answer
        return answer


def answer_of(
    node: Node, frame: bytes, handlers: Mapping[ApiKey, Handler] = HANDLERS
) -> bytes | None:
    """The response to a frame, once it is there; None for no response. Raises ``HangUp``."""
    reply = WaitingReply()
    Dispatcher(node, handlers).dispatch(frame, Session(), reply)
    return reply.wait() or None


def ask(node: Node, api: ApiKey, version: int, **values: Any) -> Any:
    """kio's response to a request, by way of bytes in both directions; None for no response."""
    answer = answer_of(node, request(api, version, values))
    if answer is None:
        return None
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    header, body = response_schema(api, version).decode(answer[4:])
    assert header.correlation_id == 77
    return body

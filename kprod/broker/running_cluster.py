"""The running parts of the embedded broker: those that all nodes share, and a server per node."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from kio.schema.errors import ErrorCode

from kprod.broker.dispatch import Dispatcher
from kprod.broker.groups.group_coordinator import GroupCoordinator
from kprod.broker.groups.offsets_topic import OFFSETS_TOPIC
from kprod.broker.handler_pool import HandlerPool
from kprod.broker.handlers import HANDLERS
from kprod.broker.log.log_directories import LogDirectories
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.network.listener import Listener
from kprod.broker.network.server import Server
from kprod.broker.node import Address, BrokerOptions, ClusterState, Node
from kprod.broker.purgatory import Purgatory, Timer
from kprod.broker.records.batch_writer import TransactionMarker
from kprod.broker.topics import Topics
from kprod.broker.transactions.transaction import ProducerIds
from kprod.broker.transactions.transaction_coordinator import TransactionCoordinator
from kprod.broker.transactions.transaction_topic import TRANSACTION_TOPIC
from kprod.errors import BrokerError, IllegalStateError
from kprod.records.record_batch import StoredRecord
from kprod.types import TopicPartition

_PRODUCER_IDS: Final = "producer-ids-checkpoint"
_OFFSETS_EXPIRY_CHECK: Final = 600.0
_IDS_EXPIRY_CHECK: Final = 3600.0
_MAINTENANCE: Final = 30.0
_END_OF_TIME: Final = 2**63 - 1


class RunningCluster:
    """The nodes of one process, which share their data directories.

    One thread at a time may start and stop nodes; any thread may move leaders.
    """

    def __init__(
        self, logs: LogDirectories, node_ids: Sequence[int], options: BrokerOptions
    ) -> None:
        self._options = options
        self._logs = logs
        self._timer = Timer(options.clock)
        self._maintaining = threading.Lock()
        self._pool = HandlerPool()
        self._controller = HandlerPool(1, name="controller")
        self.state = ClusterState(node_ids)
        self.topics = Topics(logs)
        self._purgatory = Purgatory(self._timer, self._pool.submit)
        self.groups = GroupCoordinator(
            replace(options.group_config, offsets_topic_partitions=self._count(OFFSETS_TOPIC)),
            self._offsets_log,
            self._timer,
            self._pool.submit,
            options.clock,
        )
        self.transactions = TransactionCoordinator(
            replace(
                options.transaction_config, state_topic_partitions=self._count(TRANSACTION_TOPIC)
            ),
            self._state_log,
            self._end_transaction,
            ProducerIds(logs.path / _PRODUCER_IDS),
            self._timer,
            self._pool.submit,
            options.clock,
        )
        self._servers: dict[int, Server] = {}
        for name, partitions in options.topics.items():
            self.topics.find_or_create(name, partitions)
        loaders = {OFFSETS_TOPIC: self.groups.load, TRANSACTION_TOPIC: self.transactions.load}
        for name, load in loaders.items():
            known = self.topics.find(name)
            for log in known.partitions if known else ():
                load(log)
        self._repeat(_OFFSETS_EXPIRY_CHECK, self.groups.expire_offsets)
        self._repeat(_IDS_EXPIRY_CHECK, self.transactions.expire_ids)
        self._repeat(_MAINTENANCE, self.maintain)

    def maintain(self) -> None:
        """Apply retention and compaction, flush what is due, and write checkpoints."""
        with self._maintaining:
            self._logs.maintain(self._options.clock.wall_ms())

    def _count(self, name: str) -> int:
        """Return the number of partitions of an internal topic, which the options do not change."""
        topic = self.topics.find(name)
        return self._options.of_new_topic(name)[0] if topic is None else len(topic.partitions)

    def _offsets_log(self, partition: int) -> PartitionLog:
        return self._internal(OFFSETS_TOPIC, partition)

    def _state_log(self, partition: int) -> PartitionLog:
        return self._internal(TRANSACTION_TOPIC, partition)

    def _internal(self, name: str, partition: int) -> PartitionLog:
        topic = self.topics.find_or_create(name, *self._options.of_new_topic(name))
        return topic.partitions[partition]

    def _end_transaction(
        self, where: TopicPartition, marker: TransactionMarker, transaction_version: int
    ) -> None:
        """Write a transaction's marker into a partition.

        Raises ``BrokerError`` 3 (unknown partition), 47 (old producer epoch), 52 (old coordinator)
        or 56 (disk failure).
        """
        log = self._log(where)
        if where.topic == OFFSETS_TOPIC:
            self.groups.end_transaction(where.partition, marker, transaction_version)
        else:
            now_ms = self._options.clock.wall_ms()
            log.end_transaction(marker, now_ms, transaction_version=transaction_version)
        self._purgatory.wake(where)

    def _log(self, where: TopicPartition) -> PartitionLog:
        topic = self.topics.find(where.topic)
        if topic is None or not 0 <= where.partition < len(topic.partitions):
            raise BrokerError(ErrorCode.unknown_topic_or_partition, str(where))
        return topic.partitions[where.partition]

    def _repeat(self, seconds: float, act: Callable[[], None]) -> None:
        """Call ``act`` in a handler's thread every ``seconds``."""

        def once() -> None:
            try:
                act()
            finally:
                self._timer.after(seconds, lambda: self._pool.submit(once))

        self._timer.after(seconds, lambda: self._pool.submit(once))

    def start_nodes(self, servers: Mapping[int, Server]) -> None:
        """Start nodes. ``servers`` maps their ids to servers that already listen."""
        self._pool.start()
        self._controller.start()
        with self._new_leaders():
            for node_id, server in servers.items():
                hosts = {each.name: _address(each) for each in server.listeners}
                self.state.node_started(node_id, hosts)
        for node_id, server in servers.items():
            self._serve(node_id, server)

    def _serve(self, node_id: int, server: Server) -> None:
        node = Node(
            node_id=node_id,
            options=self._options,
            state=self.state,
            cluster_id=self._logs.cluster_id,
            topics=self.topics,
            purgatory=self._purgatory,
            groups=self.groups,
            transactions=self.transactions,
            timer=self._timer,
            controller=self._controller.submit,
        )
        self._servers[node_id] = server
        server.start(Dispatcher(node, HANDLERS).dispatch, self._pool)

    def stop_node(self, node_id: int) -> None:
        """Disconnect a node's clients; other nodes lead its partitions, in a new leader epoch.

        Raises ``IllegalStateError`` unless the node is running.
        """
        server = self._servers.pop(node_id, None)
        if server is None:
            raise IllegalStateError(f"node {node_id} does not run")
        server.hang_up()
        with self._new_leaders():
            self.state.node_stopped(node_id)
        server.close(handlers_ended=False)

    def move_leader(self, where: TopicPartition, node_id: int) -> None:
        """Make a running node lead a partition.

        Raises ``BrokerError`` 3 (unknown partition) or 8 (the node is not running).
        """
        self._log(where)
        with self._new_leaders():
            self.state.move_leader(where, node_id)

    @contextmanager
    def _new_leaders(self) -> Iterator[None]:
        """Begin a new epoch for each partition whose leader changes in the ``with`` block."""
        before = self._leaders()
        yield
        for where, leader in self._leaders().items():
            if leader not in (before.get(where, leader), -1) and before[where] != -1:
                self._leader_changed(where)

    def records(
        self, name: str, count: int | None, timeout: float, *, committed: bool = False
    ) -> list[StoredRecord]:
        """Return the records of a topic. See ``EmbeddedBroker.records``."""
        topic = self.topics.find(name)
        if topic is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
        found: list[StoredRecord] = []
        enough = threading.Event()

        def attempt(last: bool) -> bool:
            logs = topic.partitions
            found[:] = [record for log in logs for record in log.records(committed=committed)]
            complete = last or count is None or len(found) >= count
            if complete:
                enough.set()
            return complete

        self._purgatory.watch([log.where for log in topic.partitions], timeout, attempt)
        enough.wait()
        return found

    def forget_producers(self) -> None:
        """Forget the producers in every partition, except those with an open transaction."""
        for log in self._all_logs():
            log.expire_producers(_END_OF_TIME)

    def fail_disk(self, error: OSError | None) -> None:
        """Let every append to an existing partition fail with this error; None ends the failure."""
        for log in self._all_logs():
            log.fail_with(error)

    def _all_logs(self) -> list[PartitionLog]:
        return [log for topic in self.topics.all() for log in topic.partitions]

    def _leaders(self) -> dict[TopicPartition, int]:
        """The leader of every partition; -1 if no node is running."""
        return {log.where: self.state.leader(log.where) for log in self._all_logs()}

    def _leader_changed(self, where: TopicPartition) -> None:
        """Begin a new leader epoch, and wake the requests that wait at the old leader."""
        try:
            self._log(where).begin_epoch()
        except BrokerError:
            return  # the topic was deleted meanwhile
        self._purgatory.wake(where)
        if where.topic == OFFSETS_TOPIC:
            self.groups.resign(ErrorCode.not_coordinator)

    def hang_up(self) -> None:
        """Answer waiting requests; end all connections and threads. Idempotent."""
        servers, self._servers = self._servers, {}
        for server in servers.values():
            server.hang_up()
        self.topics.close()
        self._controller.close()
        self.groups.close()
        self.transactions.close()
        self._purgatory.close()
        self._timer.close()
        self._pool.close()
        for server in servers.values():
            server.close()


def _address(listener: Listener) -> Address:
    is_any = listener.host in ("0.0.0.0", "::")
    return Address(socket.getfqdn() if is_any else listener.host, listener.port)

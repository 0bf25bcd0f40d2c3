"""A whole Kafka broker in this process."""

from __future__ import annotations

import ipaddress
import select
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from kprod.broker.client_metrics import ClientMetrics
from kprod.broker.faults import FaultPlan
from kprod.broker.groups.group import GroupConfig
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_directories import LogDirectories
from kprod.broker.network.listener import Listener
from kprod.broker.network.server import Server
from kprod.broker.node import BrokerOptions
from kprod.broker.records.record_batch import StoredRecord
from kprod.broker.running_cluster import RunningCluster
from kprod.broker.transactions.transaction import TransactionConfig
from kprod.clock import Clock, SystemClock
from kprod.config.addresses import MAX_PORT
from kprod.errors import ConfigError, IllegalStateError
from kprod.types import TopicPartition


class EmbeddedBroker:
    """A broker that stores records on disk, or several nodes of one.

    Use it as a context manager, or call ``start`` and ``stop``. It can be started again after a
    stop, on the same ports and with the same data. ``topics`` maps names to numbers of partitions
    and is created on start as far as it does not exist. Without a ``data_dir`` the data lie in a
    temporary directory that goes away with the ``with`` block, or with this object. ``log_dirs``
    are several directories in its place, over which the partitions are spread: a disk that fails
    takes the partitions of its directory along and nothing else.

    With ``nodes=3`` three nodes with the ids 1, 2 and 3 listen, on ports of their own, and lead a
    share of the partitions each. They share one log: a copy on every node that is never behind.
    ``stop_node``, ``start_node`` and ``move_leader`` are there to test what clients make of it.

    ``listeners`` stand in for ``host`` and ``port``, which make one that is open to all clients:
    ``kprod.broker.make_listener`` makes those with TLS and SASL. One that other machines can reach
    and that asks for nothing takes ``allow_remote=True``. ``start``, ``stop`` and ``kill`` are for
    one thread at a time.
    """

    def __init__(  # noqa: PLR0913
        self,
        data_dir: str | Path | None = None,
        *,
        log_dirs: Sequence[str | Path] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        listeners: Sequence[Listener] = (),
        nodes: int = 1,
        topics: Mapping[str, int] | None = None,
        default_partitions: int = 1,
        auto_create_topics: bool = True,
        allow_remote: bool = False,
        log_config: LogConfig | None = None,
        group_config: GroupConfig | None = None,
        transaction_config: TransactionConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Raises ``ConfigError`` for listeners and ports that cannot be, or let others in unasked,
        for directories given twice, and where the system has no epoll.

        Nodes after the first take the ports after ``port``, or free ones when that is 0.
        """
        if not hasattr(select, "epoll"):
            raise ConfigError(
                "the embedded broker needs epoll, which only Linux has: start it there, in a"
                " container for one, and give producers its address"
            )
        if nodes < 1:
            raise ConfigError(f"nodes={nodes}: a broker has at least one")
        chosen = list(listeners) or [Listener(host=host, port=port)]
        _check(chosen, nodes, allow_remote=allow_remote)
        self._listeners = {
            n + 1: [replace(each, port=each.port and each.port + n) for each in chosen]
            for n in range(nodes)
        }
        self._options = BrokerOptions(
            topics=dict(topics or {}),
            default_partitions=default_partitions,
            auto_create_topics=auto_create_topics,
            log_config=log_config or LogConfig(),
            group_config=group_config or GroupConfig(),
            transaction_config=transaction_config or TransactionConfig(),
            clock=clock or SystemClock(),
        )
        given = [Path(each) for each in (log_dirs or [data_dir] if data_dir else log_dirs)]
        if len(set(given)) < len(given) or (data_dir and log_dirs):
            raise ConfigError("data_dir or log_dirs, and each directory once")
        self.log_dirs = tuple(given) or (Path(tempfile.mkdtemp(prefix="kprod-broker-")),)
        self._forget_data = (
            None
            if given
            else weakref.finalize(self, shutil.rmtree, self.data_dir, ignore_errors=True)
        )
        self._logs: LogDirectories | None = None
        self._cluster: RunningCluster | None = None

    @property
    def data_dir(self) -> Path:
        """The first directory."""
        return self.log_dirs[0]

    @property
    def offline_log_dirs(self) -> dict[Path, OSError]:
        """The directories with a disk that failed since the start, and the error of each."""
        return {} if self._logs is None else self._logs.offline

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of all nodes, running or not."""
        return tuple(self._listeners)

    @property
    def port(self) -> int:
        """The TCP port of the first listener of the first node, known once started."""
        return next(iter(self._listeners.values()))[0].port

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the first listener, as clients want it; all nodes, with commas."""
        return next(iter(self.addresses.values()))

    @property
    def addresses(self) -> dict[str, str]:
        """The same by the name of each listener."""
        by_name: dict[str, list[str]] = {}
        for listeners in self._listeners.values():
            for each in listeners:
                by_name.setdefault(each.name, []).append(_address(each))
        return {name: ",".join(found) for name, found in by_name.items()}

    @property
    def running(self) -> bool:
        """Whether clients are served."""
        return self._cluster is not None

    def start(self) -> None:
        """Load the data, recovering after a crash, and listen.

        Raises ``StorageError`` when the data directory is in use or unreadable, ``OSError`` when
        a port is taken, ``IllegalStateError`` when already started.
        """
        if self.running:
            raise IllegalStateError("the broker is running")
        servers: dict[int, Server] = {}
        try:
            for node_id in self._listeners:
                servers[node_id] = self._listen(node_id)
            self._logs = LogDirectories(self.log_dirs, self._options.log_config)
            self._cluster = RunningCluster(self._logs, self.node_ids, self._options)
            self._cluster.start_nodes(servers)
        except BaseException:
            self.kill()
            for server in servers.values():
                server.close()
            raise

    def _listen(self, node_id: int) -> Server:
        server = Server(self._listeners[node_id], self._options.clock)
        self._listeners[node_id] = server.listeners  # with their ports, for when it starts again
        return server

    def stop_node(self, node_id: int) -> None:
        """Cut off a node's clients; the other nodes lead its partitions, in a new leader epoch.

        ``IllegalStateError`` unless it runs.
        """
        self._running_cluster().stop_node(node_id)

    def start_node(self, node_id: int) -> None:
        """Have a stopped node listen again, at its old port, and lead what is its share."""
        cluster = self._running_cluster()
        if node_id in cluster.state.running:
            raise IllegalStateError(f"node {node_id} is running")
        cluster.start_nodes({node_id: self._listen(node_id)})

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Have a running node lead a partition, in a new leader epoch. ``BrokerError`` 3 or 8."""
        self._running_cluster().move_leader(TopicPartition(topic, partition), node_id)

    def leader(self, topic: str, partition: int) -> int:
        """The id of the node that leads a partition; -1 while none runs."""
        return self._running_cluster().state.leader(TopicPartition(topic, partition))

    def create_topic(
        self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Make a topic, with settings of its own by Kafka's names.

        ``BrokerError``: 17 bad name, 36 exists, 37 number of partitions, 40 settings.
        """
        self._running_cluster().topics.create(name, partitions, settings)

    def records(
        self,
        topic: str,
        count: int | None = None,
        *,
        timeout: float = 10.0,
        committed: bool = False,
    ) -> list[StoredRecord]:
        """What is in a topic, partition after partition, without a client.

        ``committed``: what a consumer with ``isolation.level=read_committed`` is given. With
        ``count`` it waits until the topic has so many, at most ``timeout`` seconds; it may have
        fewer then. ``BrokerError`` 3 for an unknown topic.
        """
        return self._running_cluster().records(topic, count, timeout, committed=committed)

    def maintain(self) -> None:
        """Apply retention and compaction now, as happens every half minute anyway."""
        self._running_cluster().maintain()

    @property
    def faults(self) -> FaultPlan:
        """What goes wrong on request; it outlives a stop and a start."""
        return self._options.faults

    @property
    def client_metrics(self) -> ClientMetrics:
        """What clients are asked to tell of their metrics, and what they have told (KIP-714).

        Nothing until ``subscribe`` is called; clients see it with their next connection.
        """
        return self._options.client_metrics

    def forget_producers(self) -> None:
        """Have every partition lose its producer state, as Kafka does after a long silence."""
        self._running_cluster().forget_producers()

    def time_out_transactions(self) -> None:
        """Abort every open transaction now, as when its ``transaction.timeout.ms`` is over."""
        self._running_cluster().transactions.time_out_all()

    def set_transaction_version(self, version: int) -> None:
        """Finalize another level of ``transaction.version``, as an upgrade does, until a stop.

        Clients see it with their next ApiVersions. ``ConfigError``.
        """
        self._running_cluster().transactions.set_version(version)

    def fail_disk(self, error: OSError | None) -> None:
        """Have appends to the present topics fail with this error; None mends the disk."""
        self._running_cluster().fail_disk(error)

    def _running_cluster(self) -> RunningCluster:
        if self._cluster is None:
            raise IllegalStateError("the broker is not running")
        return self._cluster

    def stop(self) -> None:
        """End every connection, flush and close the logs cleanly. Idempotent."""
        self._end(LogDirectories.close)

    def kill(self) -> None:
        """Stop as a crash would: nothing is flushed, sealed or marked. Idempotent."""
        self._end(LogDirectories.abandon)

    def _end(self, let_go: Callable[[LogDirectories], None]) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.hang_up()
        logs, self._logs = self._logs, None
        if logs is not None:
            let_go(logs)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._forget_data is not None:
            self._forget_data()


def _check(listeners: Sequence[Listener], nodes: int, *, allow_remote: bool) -> None:
    if len({each.name for each in listeners}) < len(listeners):
        raise ConfigError("two listeners have the same name")
    for each in listeners:
        if nodes > 1 and each.path is not None:
            raise ConfigError("a Unix domain socket leads to one node")
        if not 0 <= each.port <= MAX_PORT - (nodes - 1 if each.port else 0):
            raise ConfigError(
                f"port={each.port}, nodes={nodes}: nodes after the first take the ports after it,"
                f" and ports end at {MAX_PORT}"
            )
        if not allow_remote and not each.is_guarded and not _is_loopback(each):
            raise ConfigError(
                f"host {each.host!r} lets other machines in, without any authentication; "
                "say allow_remote=True (--allow-remote) if that is meant"
            )


def _address(listener: Listener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{host}:{listener.port}"


def _is_loopback(listener: Listener) -> bool:
    try:
        return listener.path is not None or ipaddress.ip_address(listener.host).is_loopback
    except ValueError:
        return listener.host == "localhost"

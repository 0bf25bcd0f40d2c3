"""A complete Kafka broker in this process."""

from __future__ import annotations

import ipaddress
import os
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
from kprod.broker.log.log_directories import RECOVERY_THREADS, LogDirectories
from kprod.broker.network.listener import Listener
from kprod.broker.network.server import Server
from kprod.broker.node import BrokerOptions
from kprod.broker.running_cluster import RunningCluster
from kprod.broker.transactions.transaction import TransactionConfig
from kprod.clock import Clock, SystemClock
from kprod.config.addresses import MAX_PORT
from kprod.errors import ConfigError, IllegalStateError
from kprod.records.record_batch import StoredRecord
from kprod.types import TopicPartition


class EmbeddedBroker:
    """A broker for tests that stores records on disk, with one or more nodes.

    Use it as a context manager, or call ``start`` and ``stop``. After ``stop`` it can be started
    again, with the same ports and data. ``topics`` maps names to partition counts; topics that do
    not exist are created on start. Without a ``data_dir`` the data is in a temporary directory,
    which is removed at the end of the ``with`` block, or when this object is garbage-collected.
    With ``log_dirs``, the partitions are spread over several directories. If the disk of one
    directory fails, the partitions in the others remain available.

    With ``nodes=3``, three nodes with the ids 1, 2 and 3 listen on separate ports, and each leads
    some of the partitions. The nodes share the data, as if every replica were always in sync.
    ``stop_node``, ``start_node`` and ``move_leader`` let you test how a client reacts.

    ``host`` and ``port`` create a listener without TLS and SASL. For TLS and SASL, pass
    ``listeners`` instead, which ``kprod.broker.make_listener`` creates. A listener that other
    machines can reach needs ``allow_remote=True`` if it requires neither a login nor a client
    certificate. ``start``, ``stop`` and ``kill`` may be called by one thread at a time.
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
        recovery_threads: int = RECOVERY_THREADS,
        clock: Clock | None = None,
    ) -> None:
        """Prepare a broker; ``start`` starts it.

        If ``port`` is 0, each node gets a free port. Otherwise further nodes use the ports that
        follow ``port``. For each directory, ``recovery_threads`` threads load its partitions
        (Kafka: num.recovery.threads.per.data.dir).

        Raises ``ConfigError`` if an argument is invalid, if a listener needs ``allow_remote``, if a
        directory is given twice, or if both ``data_dir`` and ``log_dirs`` are given.
        """
        if nodes < 1:
            raise ConfigError(f"nodes={nodes}: a broker has at least one")
        if recovery_threads < 1:
            raise ConfigError(f"recovery_threads={recovery_threads}: there is at least one")
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
            recovery_threads=recovery_threads,
            clock=clock or SystemClock(),
        )
        given = [Path(each) for each in (log_dirs or [data_dir] if data_dir else log_dirs)]
        if len(set(given)) < len(given) or (data_dir and log_dirs):
            raise ConfigError("data_dir or log_dirs, and each directory once")
        self.log_dirs = tuple(given) or (Path(tempfile.mkdtemp(prefix="kprod-broker-")),)
        self._forget_data = (
            None if given else weakref.finalize(self, _remove, self.data_dir, os.getpid())
        )
        self._process = 0  # the process in which it was started
        self._logs: LogDirectories | None = None
        self._cluster: RunningCluster | None = None

    @property
    def data_dir(self) -> Path:
        """The first data directory."""
        return self.log_dirs[0]

    @property
    def offline_log_dirs(self) -> dict[Path, OSError]:
        """The data directories whose disk has failed since the start, with their errors."""
        return {} if self._logs is None else self._logs.offline

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of all nodes, running or not."""
        return tuple(self._listeners)

    @property
    def port(self) -> int:
        """The TCP port of the first node's first listener, known after ``start``."""
        return next(iter(self._listeners.values()))[0].port

    @property
    def bootstrap_servers(self) -> str:
        """The ``bootstrap.servers`` for clients: ``host:port`` of each node's first listener."""
        return next(iter(self.addresses.values()))

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses of each listener, by the listener's name.

        They are the ``host:port`` of the listener on each node, separated by commas.
        """
        by_name: dict[str, list[str]] = {}
        for listeners in self._listeners.values():
            for each in listeners:
                by_name.setdefault(each.name, []).append(_address(each))
        return {name: ",".join(found) for name, found in by_name.items()}

    @property
    def running(self) -> bool:
        """Whether the broker was started in this process and has not been stopped."""
        return self._cluster is not None and self._process == os.getpid()

    def start(self) -> None:
        """Load the data, recover it after a crash, and begin to serve clients.

        Raises ``StorageError`` if a data directory is in use or its content is unusable. Raises
        ``OSError`` if a port is in use or the first directory cannot be used. Raises
        ``IllegalStateError`` if the broker is running.
        """
        if self.running:
            raise IllegalStateError("the broker is running")
        self._cluster = self._logs = None  # drop those of a parent process
        self._process = os.getpid()
        servers: dict[int, Server] = {}
        try:
            for node_id in self._listeners:
                servers[node_id] = self._listen(node_id)
            self._logs = LogDirectories(
                self.log_dirs, self._options.log_config, self._options.recovery_threads
            )
            self._cluster = RunningCluster(self._logs, self.node_ids, self._options)
            self._cluster.start_nodes(servers)
        except BaseException:
            self.kill()
            for server in servers.values():
                server.close()
            raise

    def _listen(self, node_id: int) -> Server:
        server = Server(self._listeners[node_id], self._options.clock)
        self._listeners[node_id] = server.listeners  # with their ports, for a restart
        return server

    def stop_node(self, node_id: int) -> None:
        """Stop a node. The other nodes take over its partitions, in a new leader epoch.

        Raises ``IllegalStateError`` unless the node is running.
        """
        self._running_cluster().stop_node(node_id)

    def start_node(self, node_id: int) -> None:
        """Start a stopped node again, on its old port.

        The node leads its former partitions again, except those that ``move_leader`` has moved
        meanwhile. Raises ``IllegalStateError`` if the node is running.
        """
        cluster = self._running_cluster()
        if node_id in cluster.state.running:
            raise IllegalStateError(f"node {node_id} is running")
        cluster.start_nodes({node_id: self._listen(node_id)})

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make a running node lead a partition, in a new leader epoch.

        Raises ``BrokerError`` 3 (unknown partition) or 8 (the node is not running).
        """
        self._running_cluster().move_leader(TopicPartition(topic, partition), node_id)

    def leader(self, topic: str, partition: int) -> int:
        """The id of a partition's leader; -1 if no node is running."""
        return self._running_cluster().state.leader(TopicPartition(topic, partition))

    def create_topic(
        self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic. ``settings`` have Kafka's names, for example ``cleanup.policy``.

        Raises ``BrokerError`` 17 (invalid name), 36 (topic exists), 37 (number of partitions), 40
        (invalid setting), 44 (too few descriptors are left) or 56 (disk failure).
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
        """Return the records of a topic, one partition after the other, without a client.

        With ``committed``, return only those that a consumer with
        ``isolation.level=read_committed`` gets. With ``count``, wait at most ``timeout`` seconds
        until there are that many records; the result may have fewer or more. Raises ``BrokerError``
        3 for an unknown topic.
        """
        return self._running_cluster().records(topic, count, timeout, committed=committed)

    def maintain(self) -> None:
        """Apply retention and compaction now. The broker also does so every 30 seconds."""
        self._running_cluster().maintain()

    @property
    def faults(self) -> FaultPlan:
        """The faults to inject. They are kept when the broker is stopped and started again."""
        return self._options.faults

    @property
    def client_metrics(self) -> ClientMetrics:
        """The metrics that clients push (KIP-714).

        Call its ``subscribe`` to ask for them. Clients learn of that when they next connect.
        """
        return self._options.client_metrics

    def forget_producers(self) -> None:
        """Forget the producers in every partition, as Kafka forgets inactive producers.

        Producers with an open transaction are kept.
        """
        self._running_cluster().forget_producers()

    def time_out_transactions(self) -> None:
        """Abort every open transaction now, as if its ``transaction.timeout.ms`` had passed."""
        self._running_cluster().transactions.time_out_all()

    def set_transaction_version(self, version: int) -> None:
        """Set the level of the feature ``transaction.version`` until the broker stops.

        Like an upgrade of a cluster, this applies at once; clients see the level in their next
        ApiVersions response. Raises ``ConfigError`` for an unknown level.
        """
        self._running_cluster().transactions.set_version(version)

    def fail_disk(self, error: OSError | None) -> None:
        """Let every append to an existing partition fail with this error; None ends the failure."""
        self._running_cluster().fail_disk(error)

    def _running_cluster(self) -> RunningCluster:
        if self._cluster is None:
            raise IllegalStateError("the broker is not running")
        if not self.running:
            raise IllegalStateError(
                "the broker runs in the process that this one was forked from: call it there, or"
                " connect to it as a client, with bootstrap_servers"
            )
        return self._cluster

    def stop(self) -> None:
        """Close all connections, and flush and close the logs cleanly. Idempotent.

        Does nothing in a forked child: the parent's broker keeps running.
        """
        self._end(LogDirectories.close)

    def kill(self) -> None:
        """Stop as in a crash: without a flush, and without the mark of a clean shutdown.

        Idempotent. Does nothing in a forked child.
        """
        self._end(LogDirectories.abandon)

    def _end(self, let_go: Callable[[LogDirectories], None]) -> None:
        if self._process != os.getpid():
            return
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


def _remove(data: Path, process: int) -> None:
    """Remove a temporary directory. Does nothing in a fork of the process that created it."""
    if process == os.getpid():
        shutil.rmtree(data, ignore_errors=True)


def _check(listeners: Sequence[Listener], nodes: int, *, allow_remote: bool) -> None:
    if len({each.name for each in listeners}) < len(listeners):
        raise ConfigError("two listeners have the same name")
    for each in listeners:
        if nodes > 1 and each.path is not None:
            raise ConfigError("a Unix domain socket can serve one node only")
        if not 0 <= each.port <= MAX_PORT - (nodes - 1 if each.port else 0):
            raise ConfigError(
                f"port={each.port}, nodes={nodes}: nodes after the first use the ports after it,"
                f" and the highest port is {MAX_PORT}"
            )
        if not allow_remote and not each.is_guarded and not _is_loopback(each):
            raise ConfigError(
                f"host {each.host!r} accepts other machines without authentication; "
                "set allow_remote=True (--allow-remote) if that is intended"
            )


def _address(listener: Listener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{host}:{listener.port}"


def _is_loopback(listener: Listener) -> bool:
    try:
        return listener.path is not None or ipaddress.ip_address(listener.host).is_loopback
    except ValueError:
        return listener.host == "localhost"

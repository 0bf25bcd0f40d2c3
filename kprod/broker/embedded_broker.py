"""A whole Kafka broker in this process."""

from __future__ import annotations

import ipaddress
import shutil
import socket
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kprod.broker.connection import Connection
from kprod.broker.dispatch import Dispatcher
from kprod.broker.handlers import HANDLERS
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_directory import LogDirectory
from kprod.broker.node import Node
from kprod.broker.producer_ids import ProducerIds
from kprod.broker.purgatory import Purgatory
from kprod.broker.server import Server
from kprod.broker.topics import Topics
from kprod.clock import Clock, SystemClock
from kprod.errors import ConfigError, IllegalStateError

_MAX_REQUEST_BYTES: Final = 100 * 1024 * 1024
_PRODUCER_IDS: Final = "producer-ids-checkpoint"


class EmbeddedBroker:
    """A single node that stores records on disk. It is not a cluster.

    Use it as a context manager, or call ``start`` and ``stop``. It can be started again after a
    stop, on the same port and with the same data. ``topics`` maps names to numbers of partitions
    and is created on start as far as it does not exist. Without a ``data_dir`` the data lie in a
    temporary directory that goes away with the ``with`` block, or with this object.

    There is neither authentication nor encryption, so a ``host`` that other machines can reach
    takes ``allow_remote=True``. ``start``, ``stop`` and ``kill`` are for one thread at a time.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        topics: Mapping[str, int] | None = None,
        default_partitions: int = 1,
        auto_create_topics: bool = True,
        allow_remote: bool = False,
        log_config: LogConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Raises ``ConfigError`` for a host beyond this machine that was not allowed."""
        if not allow_remote and not _is_loopback(host):
            raise ConfigError(
                f"host {host!r} lets other machines in, without any authentication; "
                "say allow_remote=True if that is meant"
            )
        self._host = host
        self._port = port
        self._topics = dict(topics or {})
        self._default_partitions = default_partitions
        self._auto_create_topics = auto_create_topics
        self._log_config = log_config or LogConfig()
        self._clock = clock or SystemClock()
        self.data_dir = Path(data_dir or tempfile.mkdtemp(prefix="kprod-broker-"))
        self._forget_data = _remover(self, self.data_dir) if data_dir is None else None
        self._server: Server | None = None
        self._logs: LogDirectory | None = None
        self._purgatory: Purgatory | None = None

    @property
    def port(self) -> int:
        """The TCP port, known once started."""
        return self._port

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, as clients want it."""
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    @property
    def running(self) -> bool:
        """Whether clients are served."""
        return self._server is not None

    def start(self) -> None:
        """Load the data, recovering after a crash, and listen.

        Raises ``StorageError`` when the data directory is in use or unreadable, ``OSError`` when
        the port is taken, ``IllegalStateError`` when already started.
        """
        if self.running:
            raise IllegalStateError("the broker is running")
        server = Server(self._host, self._port)
        try:
            logs = LogDirectory(self.data_dir, self._log_config)
        except BaseException:
            server.stop()
            raise
        self._port = server.port
        self._logs = logs
        self._server = server
        try:
            self._open(server, logs)
        except BaseException:
            self.kill()
            raise

    def _open(self, server: Server, logs: LogDirectory) -> None:
        self._purgatory = Purgatory()
        node = Node(
            cluster_id=logs.cluster_id,
            host=self._advertised_host(),
            port=server.port,
            topics=Topics(logs),
            producer_ids=ProducerIds(self.data_dir / _PRODUCER_IDS),
            purgatory=self._purgatory,
            clock=self._clock,
            log_config=self._log_config,
            default_partitions=self._default_partitions,
            auto_create_topics=self._auto_create_topics,
        )
        for name, partitions in self._topics.items():
            node.topics.find_or_create(name, partitions)
        answer = Dispatcher(node, HANDLERS).answer

        def connect(client: socket.socket, peer: str) -> Connection:
            return Connection(client, peer, answer, _MAX_REQUEST_BYTES)

        server.start(connect)

    def _advertised_host(self) -> str:
        return socket.getfqdn() if self._host in ("0.0.0.0", "::") else self._host

    def stop(self) -> None:
        """End every connection, flush and close the logs cleanly. Idempotent."""
        self._hang_up()
        logs, self._logs = self._logs, None
        if logs is not None:
            logs.close()

    def kill(self) -> None:
        """Stop as a crash would: nothing is flushed, sealed or marked. Idempotent."""
        self._hang_up()
        logs, self._logs = self._logs, None
        if logs is not None:
            logs.abandon()

    def _hang_up(self) -> None:
        server, self._server = self._server, None
        if self._purgatory is not None:
            self._purgatory.close()
        if server is not None:
            server.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        if self._forget_data is not None:
            self._forget_data()


def _remover(owner: EmbeddedBroker, directory: Path) -> weakref.finalize[..., EmbeddedBroker]:
    return weakref.finalize(owner, shutil.rmtree, directory, ignore_errors=True)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""Three embedded brokers in one process, with commands for faults."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.support.certificates import Certificates
from tests.support.guarded_broker import guarded_broker

LOGIN_SECONDS = 2.0
NODES = 3


class Brokers:
    """Each method is a command, and returns when it is done."""

    def __init__(self, folder: str) -> None:
        self._stack = ExitStack()
        certificates = Certificates(Path(folder))
        self._guarded = self._stack.enter_context(
            guarded_broker(certificates, {}, lifetime=LOGIN_SECONDS, nodes=NODES)
        )
        self._broker = self._guarded.broker

    def end(self) -> None:
        self._stack.close()

    def options(self) -> dict[str, Any]:
        """A producer's options for a listener without security, and for one with mTLS and login."""
        return {
            "plain": self._guarded.options("plain", "none"),
            "guarded": self._guarded.options("mtls", "SCRAM-SHA-256"),
        }

    def crash(self) -> None:
        self._broker.kill()
        self._broker.start()

    def restart(self, node: int) -> None:
        """Restart a node; meanwhile the others lead its partitions."""
        self._broker.stop_node(node)
        self._broker.start_node(node)

    def move_leaders(self, topic: str, partitions: int) -> None:
        for partition in range(partitions):
            following = self._broker.leader(topic, partition) % NODES + 1
            self._broker.move_leader(topic, partition, following)

    def renew_certificates(self) -> None:
        """Issue new certificates, and restart each node, so that every connection uses them."""
        self._guarded.renew()
        for node in self._broker.node_ids:
            self.restart(node)

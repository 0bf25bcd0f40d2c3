"""Which nodes there are, which of them run, and who leads which partition."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from kprod.errors import BrokerError
from kprod.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Address:
    """Where clients reach a node by one of its listeners."""

    host: str
    port: int


@dataclass(slots=True)
class NodeState:
    """One node: its addresses by listener name, and whether it runs."""

    addresses: Mapping[str, Address] = field(default_factory=dict)
    running: bool = False


class ClusterState:
    """The part of a cluster that the controller would know. Thread-safe.

    The nodes of one process share one data directory: each partition has a copy "on every node",
    and is in sync on those that run. So a leader can be moved to any running node, and nothing is
    lost by it. Without a word to the contrary the leaders are spread over the nodes.
    """

    def __init__(self, node_ids: Sequence[int] = (1,)) -> None:
        self._lock = threading.Lock()  # guards the rest
        self._nodes = {node_id: NodeState() for node_id in node_ids}
        self._moved: dict[TopicPartition, int] = {}

    @property
    def node_ids(self) -> tuple[int, ...]:
        """All nodes, running or not."""
        return tuple(self._nodes)

    @property
    def running(self) -> tuple[int, ...]:
        """The nodes that run."""
        return tuple(node_id for node_id, node in self._nodes.items() if node.running)

    @property
    def controller(self) -> int:
        """The first node that runs; -1 for none."""
        return min(self.running, default=-1)

    def node_started(self, node_id: int, addresses: Mapping[str, Address]) -> None:
        """A node runs, at these addresses by listener name."""
        with self._lock:
            self._nodes[node_id] = NodeState(dict(addresses), running=True)

    def node_stopped(self, node_id: int) -> None:
        """A node does not run any more; its partitions have other leaders from now on."""
        with self._lock:
            self._nodes[node_id].running = False

    def address(self, node_id: int, listener: str) -> Address:
        """Where a node listens, by the listener the client came through if it has that one."""
        found = self._nodes[node_id].addresses
        return found.get(listener) or next(iter(found.values()), Address("", -1))

    def replicas(self, where: TopicPartition) -> tuple[int, ...]:
        """All nodes, the preferred leader first."""
        ids = self.node_ids
        first = (zlib.crc32(where.topic.encode()) + where.partition) % len(ids)
        return ids[first:] + ids[:first]

    def leader(self, where: TopicPartition) -> int:
        """The node a partition was moved to, if it runs, or the first replica that does; or -1."""
        running = self.running
        moved = self._moved.get(where)
        if moved in running and moved is not None:
            return moved
        return next((node_id for node_id in self.replicas(where) if node_id in running), -1)

    def move_leader(self, where: TopicPartition, node_id: int) -> None:
        """Have another node lead: ``BrokerError`` 8 unless it runs."""
        with self._lock:
            if node_id not in self.running:
                raise BrokerError(ErrorCode.broker_not_available, f"node {node_id} does not run")
            self._moved[where] = node_id

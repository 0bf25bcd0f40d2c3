"""Two brokers behind proxies, which can be restarted and whose coordinators can move."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kprod.broker import EmbeddedBroker, TransactionConfig
from tests.spark.exactly_once_kills.request_watch import RequestWatch, WatchedBroker
from tests.support.apache_kafka.broker import ApacheKafka, Guards
from tests.support.apache_kafka.class_archive import make_broker_archive
from tests.support.topic_admin import TopicAdmin

PARTITIONS = 2
PATIENCE = 300.0
"""Seconds that a broker may take to start on a busy machine."""
MARKERS_LATE_MS = 50
SETTLES = 0.5
"""Seconds that another node leads."""
MOVING = {
    "leader.imbalance.check.interval.seconds": 1,
    "leader.imbalance.per.broker.percentage": 0,
    "offsets.topic.replication.factor": 2,
    "transaction.state.log.replication.factor": 2,
}
"""A coordinator returns to its preferred node a second after its restart."""
COORDINATORS = {
    "__transaction_state": {"cleanup.policy": "compact", "compression.type": "uncompressed"},
    "__consumer_offsets": {"cleanup.policy": "compact", "compression.type": "producer"},
}


class _Proxied:
    """``bootstrap_servers`` are the proxies, which tasks use; ``direct`` are the brokers."""

    def __init__(self) -> None:
        self.watch = RequestWatch()
        self._stack = ExitStack()

    def _start_proxies(self, ports: list[int]) -> None:
        named: dict[int, int] = {}
        proxies = [WatchedBroker(self.watch, port, named) for port in ports]
        for proxy in proxies:
            self._stack.enter_context(proxy)
        named.update({proxy.upstream_port: proxy.port for proxy in proxies})
        self.bootstrap_servers = ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)
        self.direct = ",".join(f"127.0.0.1:{port}" for port in ports)

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class EmbeddedCluster(_Proxied):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._broker = EmbeddedBroker(
            folder, nodes=2, transaction_config=TransactionConfig(marker_delay_ms=MARKERS_LATE_MS)
        )

    def __enter__(self) -> Self:
        self._stack.enter_context(self._broker)
        addresses = self._broker.bootstrap_servers.split(",")
        self._start_proxies([int(address.rpartition(":")[2]) for address in addresses])
        return self

    def create(self, topic: str) -> None:
        self._broker.create_topic(topic, PARTITIONS)

    def restart(self) -> None:
        self._broker.kill()
        self._broker.start()

    def move_coordinators(self) -> None:
        """Restart the node that coordinates transactions and groups."""
        leader = max(1, self._broker.leader("__transaction_state", 0))
        self._broker.stop_node(leader)
        time.sleep(SETTLES)
        self._broker.start_node(leader)


class ApacheCluster(_Proxied):
    """Two processes. The second node is the coordinator, the first one the controller."""

    def __init__(self, folder: Path, version: str) -> None:
        super().__init__()
        make_broker_archive(version)
        guards = Guards({}, dict(MOVING), [])
        folder.mkdir(exist_ok=True)
        self._first = ApacheKafka(folder / "1", version, guards=guards, patience=PATIENCE)
        self._second = ApacheKafka(
            folder / "2", version, joins=self._first, guards=guards, patience=PATIENCE
        )
        self._nodes = (self._first, self._second)

    def __enter__(self) -> Self:
        for node in self._nodes:
            self._stack.enter_context(node)
        self._start_proxies([int(n.bootstrap_servers.rpartition(":")[2]) for n in self._nodes])
        self._admin = TopicAdmin(self.direct)
        self._admin.await_brokers(2)
        client = AdminClient({"bootstrap.servers": self.direct, "log_level": 2})
        wanted = [
            NewTopic(name, num_partitions=1, replica_assignment=[[2, 1]], config=config)
            for name, config in COORDINATORS.items()
        ]
        for created in client.create_topics(wanted, operation_timeout=30).values():
            created.result(30)
        for name in COORDINATORS:
            self._admin.await_in_sync(name, 2)
        return self

    def create(self, topic: str) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                self._admin.create(topic, PARTITIONS, replicas=2)
            except KafkaException:  # the controller has not heard of both nodes yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            else:
                return

    def restart(self) -> None:
        self._first.kill()
        self._first.start()

    def move_coordinators(self) -> None:
        self._second.kill()
        self._second.start()


Cluster = EmbeddedCluster | ApacheCluster


def a_cluster(kind: str, folder: Path) -> Cluster:
    """``kind`` is "embedded", or a version of Apache Kafka."""
    return EmbeddedCluster(folder) if kind == "embedded" else ApacheCluster(folder, kind)

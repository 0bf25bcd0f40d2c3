"""Faults of a cluster of three Apache Kafka nodes.

Nodes are killed and frozen, leaders elected, replicas reassigned, connections cut at any byte.
``KPROD_CAMPAIGN=long`` sends a million records; ``KPROD_CLUSTER_RECORDS`` overrides the number:
ten million take half an hour.
"""

from __future__ import annotations

import os
import random
import threading
import time
import warnings
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod_ext.futures import FutureRecordMetadata
from tests.support.apache_kafka.broker import ApacheKafka, Guards
from tests.support.apache_kafka.jars import NEWEST
from tests.support.committed_records import Stored, read_each
from tests.support.cutting_proxy import CutPlan, CuttingProxy
from tests.support.frozen import freeze, thaw
from tests.support.numbered_records import check_order, numbered
from tests.support.tier import CAMPAIGN
from tests.support.topic_admin import TopicAdmin

pytestmark = pytest.mark.full

with warnings.catch_warnings():  # kafka-python uses functions deprecated in 3.11
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, TopicPartition
    from kafka.errors import KafkaError

RECORDS = int(os.environ.get("KPROD_CLUSTER_RECORDS", "1000000" if CAMPAIGN else "50000"))
RATE = 10_000
"""Maximum records per second, so that every fault meets records in flight."""
SLOWDOWN = 20
"""Divisor of the rate after the last record, until all faults are over."""
SECONDS = 300 + RECORDS // 1_000
SEED = 32
NODES = (1, 2, 3)
TOPIC = "cluster"
PARTITIONS = 6
VALUE_BYTES = 100
MAX_UNREAD = 250_000
"""Maximum futures not read yet: many behind a dead or frozen node."""
SESSION_MS = 4_000
FROZEN_SECONDS = 6.0
"""Longer than the heartbeat timeout of the controller: leaders move to other nodes."""
PREFERRED = 0
ADMIN_SECONDS = 60.0
"""Time limit for retries of an admin request."""


class Cluster:
    """Three nodes, each behind a proxy that cuts connections, and their faults."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        plan = CutPlan(SEED, cuts=RECORDS // 10_000, most_up=2_000_000, most_down=20_000)
        self.proxies = [stack.enter_context(CuttingProxy(plan)) for _ in NODES]
        self._nodes: list[ApacheKafka] = []
        for node, proxy in zip(NODES, self.proxies, strict=True):
            broker = ApacheKafka(
                folder / str(node),
                NEWEST,
                advertised_port=proxy.port,
                joins=self._nodes[0] if self._nodes else None,
                node_id=node,
                guards=Guards({}, {"broker.session.timeout.ms": SESSION_MS}, []),
            )
            proxy.upstream_port = broker.front_port
            self._nodes.append(stack.enter_context(broker))
        self.servers = ",".join(node.bootstrap_servers for node in self._nodes)
        self.fault_counts: Counter[str] = Counter()
        self._dice = random.Random(SEED)
        self._admin = TopicAdmin(self.servers)
        self._admin.await_brokers(len(NODES))
        self._admin.create(TOPIC, PARTITIONS, replicas=len(NODES), min_insync_replicas=2)
        self._replicas = list(NODES)

    def cause_faults(self, enough: threading.Event) -> None:
        """Cause all kinds of faults until ``enough``, each at least once, with recovery."""
        kinds: dict[str, Callable[[], None]] = {
            "kills": self._kill,
            "freezes": self._freeze,
            "elections": self._elect,
            "reassignments": self._reassign,
        }
        while not (enough.is_set() and self.fault_counts):
            for name in self._dice.sample(list(kinds), len(kinds)):
                kinds[name]()
                self.fault_counts[name] += 1
                self._admin.await_in_sync(TOPIC, len(NODES))

    def _kill(self) -> None:
        node = self._dice.choice(self._nodes)
        node.kill()
        node.start()

    def _freeze(self) -> None:
        node = self._dice.choice(self._nodes)
        freeze(node.pid)
        time.sleep(FROZEN_SECONDS)
        thaw(node.pid)

    def _elect(self) -> None:
        """Elect the preferred leaders."""
        partitions = {TOPIC: list(range(PARTITIONS))}
        self._request(lambda admin: admin.elect_leaders(PREFERRED, partitions, raise_errors=False))

    def _reassign(self) -> None:
        """Remove the first replica of each partition, then add it as the last."""
        first, *others = self._replicas
        self._replicas = [*others, first]
        for replicas in (others, self._replicas):
            self._admin.await_in_sync(TOPIC, self._assign(replicas))

    def _assign(self, replicas: list[int]) -> int:
        """Assign these replicas to every partition; returns their number."""
        assignment = {TopicPartition(TOPIC, number): replicas for number in range(PARTITIONS)}
        refused = self._request(lambda admin: admin.alter_partition_reassignments(assignment))
        assert not any(refused.values()), refused
        while self._request(lambda admin: admin.list_partition_reassignments()):
            time.sleep(0.1)
        return len(replicas)

    def _request(self, call: Callable[[KafkaAdminClient], Any]) -> Any:
        """The response; retried while a restarted node is not known yet."""
        deadline = time.monotonic() + ADMIN_SECONDS
        while True:
            try:
                with closing(KafkaAdminClient(bootstrap_servers=self.servers)) as admin:
                    return call(admin)
            except KafkaError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)


@pytest.mark.timeout(SECONDS + 300)
def test_cluster_faults_neither_lose_nor_duplicate_nor_reorder_records(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack)
        enough = threading.Event()
        faults = threading.Thread(target=cluster.cause_faults, args=(enough,))
        faults.start()
        started = time.monotonic()
        try:
            offsets, retried = _produce(cluster, faults, enough)
        finally:
            enough.set()
            faults.join()
        seconds = time.monotonic() - started
        found = read_each(cluster.servers, TOPIC, PARTITIONS, seconds=SECONDS)
        check_order(_at_expected_offsets(found, offsets), len(offsets), PARTITIONS)
    cuts = sum(proxy.cuts for proxy in cluster.proxies)
    print(
        f"{len(offsets):,} records in {seconds:.0f} s, {dict(cluster.fault_counts)}, {cuts} cuts,"
        f" {retried:,.0f} records sent again; 0 lost, 0 duplicated, 0 out of order"
    )
    assert cuts > 0
    assert retried > 0, "no fault hit a batch"


def _produce(
    cluster: Cluster, faults: threading.Thread, enough: threading.Event
) -> tuple[array[int], float]:
    """Send until there are enough records and faults; returns offsets and retry count."""
    offsets = array("q")
    unread: deque[FutureRecordMetadata] = deque()
    servers = ",".join(f"127.0.0.1:{proxy.port}" for proxy in cluster.proxies)
    with KafkaProducer(
        bootstrap_servers=servers,
        batch_size=4_096,
        delivery_timeout_ms=SECONDS * 1000,
        max_block_ms=SECONDS * 1000,
    ) as producer:
        number, due, before = 0, 0.0, time.monotonic()
        while number < RECORDS or faults.is_alive():
            if number >= RECORDS:
                enough.set()
            assert enough.is_set() or faults.is_alive(), "the thread of faults has ended"
            now = time.monotonic()
            due += (now - before) * (RATE / SLOWDOWN if enough.is_set() else RATE)
            before = now
            due = min(due, number + RATE)  # no burst after a long wait
            while number < due:
                value = numbered(number, VALUE_BYTES)
                unread.append(producer.send(TOPIC, value, partition=number % PARTITIONS))
                number += 1
            while len(unread) > MAX_UNREAD or (unread and unread[0].is_done):
                offsets.append(unread.popleft().get(timeout=SECONDS).offset)
            time.sleep(0.005)
        producer.flush(timeout=SECONDS)
        offsets.extend(future.get(timeout=0).offset for future in unread)
        return offsets, producer.metrics()["producer-metrics"]["record-retry-total"]


def _at_expected_offsets(found: Iterable[Stored], offsets: array[int]) -> Iterator[Stored]:
    """The same records, each checked against the offset of its future, if known."""
    for record in found:
        assert offsets[int(record.value or b"-1")] in (-1, record.offset), record
        yield record

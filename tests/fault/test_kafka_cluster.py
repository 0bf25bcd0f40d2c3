"""Three Apache Kafka nodes, and everything that happens to a cluster: each record once, in order.

Nodes are killed and frozen, leaders elected, replicas reassigned, connections cut at any byte.
``KPROD_CAMPAIGN=long`` sends a million records; ``KPROD_CLUSTER_RECORDS`` says how many instead:
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

with warnings.catch_warnings():  # kafka-python uses what Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, TopicPartition
    from kafka.errors import KafkaError

RECORDS = int(os.environ.get("KPROD_CLUSTER_RECORDS", "1000000" if CAMPAIGN else "50000"))
RATE = 10_000
"""Records per second at most, so that every fault meets records under way."""
SLOWER = 20
"""By so much is the rate less once there were records enough, until the faults are over, too."""
SECONDS = 300 + RECORDS // 1_000
SEED = 32
NODES = (1, 2, 3)
TOPIC = "cluster"
PARTITIONS = 6
VALUE_BYTES = 100
UNSEEN = 250_000
"""Futures whose outcomes are not looked at yet: those behind a dead or frozen node are many."""
SESSION_MS = 4_000
FROZEN_SECONDS = 6.0
"""Longer than the controller waits for a heartbeat: others lead what the node led."""
PREFERRED = 0
ASKED_SECONDS = 60.0
"""So long is a question asked again which the admin client cannot bring to its node."""


class Cluster:
    """Three nodes, each behind a proxy that cuts connections; and what happens to them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        plan = CutPlan(SEED, cuts=RECORDS // 10_000, most_up=2_000_000, most_down=20_000)
        self.proxies = [stack.enter_context(CuttingProxy(plan)) for _ in NODES]
        self._nodes: list[ApacheKafka] = []
        for node, proxy in zip(NODES, self.proxies, strict=True):
            made = ApacheKafka(
                folder / str(node),
                NEWEST,
                told_port=proxy.port,
                joins=self._nodes[0] if self._nodes else None,
                node_id=node,
                guards=Guards({}, {"broker.session.timeout.ms": SESSION_MS}, []),
            )
            proxy.upstream_port = made.front_port
            self._nodes.append(stack.enter_context(made))
        self.servers = ",".join(node.bootstrap_servers for node in self._nodes)
        self.counted: Counter[str] = Counter()
        self._dice = random.Random(SEED)
        self._admin = TopicAdmin(self.servers)
        self._admin.await_brokers(len(NODES))
        self._admin.create(TOPIC, PARTITIONS, replicas=len(NODES), min_insync_replicas=2)
        self._replicas = list(NODES)

    def suffer(self, enough: threading.Event) -> None:
        """Faults of every kind in turns until then, each once at least; afterwards all is well."""
        kinds: dict[str, Callable[[], None]] = {
            "kills": self._kill,
            "freezes": self._freeze,
            "elections": self._elect,
            "reassignments": self._reassign,
        }
        while not (enough.is_set() and self.counted):
            for name in self._dice.sample(list(kinds), len(kinds)):
                kinds[name]()
                self.counted[name] += 1
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
        """Those that come first in each list of replicas lead again, where another does."""
        places = {TOPIC: list(range(PARTITIONS))}
        self._ask(lambda admin: admin.elect_leaders(PREFERRED, places, raise_errors=False))

    def _reassign(self) -> None:
        """The first replica of each partition is given up, and made anew as the last one."""
        first, *others = self._replicas
        self._replicas = [*others, first]
        for replicas in (others, self._replicas):
            self._admin.await_in_sync(TOPIC, self._assign(replicas))

    def _assign(self, replicas: list[int]) -> int:
        """Ask for these replicas of every partition; how many they are."""
        wanted = {TopicPartition(TOPIC, number): replicas for number in range(PARTITIONS)}
        refused = self._ask(lambda admin: admin.alter_partition_reassignments(wanted))
        assert not any(refused.values()), refused
        while self._ask(lambda admin: admin.list_partition_reassignments()):
            time.sleep(0.1)
        return len(replicas)

    def _ask(self, question: Callable[[KafkaAdminClient], Any]) -> Any:
        """The answer; asked again while a node that has just come back is not known as such."""
        deadline = time.monotonic() + ASKED_SECONDS
        while True:
            try:
                with closing(KafkaAdminClient(bootstrap_servers=self.servers)) as admin:
                    return question(admin)
            except KafkaError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)


@pytest.mark.timeout(SECONDS + 300)
def test_nothing_that_happens_to_a_cluster_costs_a_record(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack)
        enough = threading.Event()
        faults = threading.Thread(target=cluster.suffer, args=(enough,))
        faults.start()
        started = time.monotonic()
        try:
            offsets, retried = _produce(cluster, faults, enough)
        finally:
            enough.set()
            faults.join()
        seconds = time.monotonic() - started
        found = read_each(cluster.servers, TOPIC, PARTITIONS, seconds=SECONDS)
        check_order(_in_place(found, offsets), len(offsets), PARTITIONS)
    cuts = sum(proxy.cuts for proxy in cluster.proxies)
    print(
        f"{len(offsets):,} records in {seconds:.0f} s, {dict(cluster.counted)}, {cuts} cuts,"
        f" {retried:,.0f} records sent again; 0 lost, 0 doubled, 0 out of order"
    )
    assert cuts > 0
    assert retried > 0, "every fault missed every batch; the test proves nothing"


def _produce(
    cluster: Cluster, faults: threading.Thread, enough: threading.Event
) -> tuple[array[int], float]:
    """Send until there were records and faults enough; the offset of each, and the retries."""
    offsets = array("q")
    unseen: deque[FutureRecordMetadata] = deque()
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
            assert enough.is_set() or faults.is_alive(), "nothing happens to the cluster any more"
            now = time.monotonic()
            due += (now - before) * (RATE / SLOWER if enough.is_set() else RATE)
            before = now
            due = min(due, number + RATE)  # nothing is made up for after a long wait
            while number < due:
                value = numbered(number, VALUE_BYTES)
                unseen.append(producer.send(TOPIC, value, partition=number % PARTITIONS))
                number += 1
            while len(unseen) > UNSEEN or (unseen and unseen[0].is_done):
                offsets.append(unseen.popleft().get(timeout=SECONDS).offset)
            time.sleep(0.005)
        producer.flush(timeout=SECONDS)
        offsets.extend(future.get(timeout=0).offset for future in unseen)
        return offsets, producer.metrics()["producer-metrics"]["record-retry-total"]


def _in_place(found: Iterable[Stored], offsets: array[int]) -> Iterator[Stored]:
    """The same, each held against the offset that its future told, if it did."""
    for record in found:
        assert offsets[int(record.value or b"-1")] in (-1, record.offset), record
        yield record

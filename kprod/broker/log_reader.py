"""Read what a topic holds, over the network, from any Kafka: to check what was delivered.

Blocking and simple; every function takes the time it may need in seconds, and raises
``KprodTimeoutError`` after it, ``ConnectionLost`` when a broker cannot be reached,
``AuthenticationError`` when it does not know us and ``BrokerError`` for what a broker answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final

from kprod.broker.api_key import ApiKey
from kprod.broker.client_security import NO_SECURITY, ClientSecurity
from kprod.broker.cluster_client import ClusterClient, PartitionReader
from kprod.broker.record_batch import StoredRecord
from kprod.errors import BrokerError

__all__ = ["create_topic", "end_offsets", "read_topic"]

_DEFAULT_TIMEOUT: Final = 30.0


def read_topic(
    bootstrap_servers: str,
    topic: str,
    *,
    since: Mapping[int, int] | None = None,
    timeout: float = _DEFAULT_TIMEOUT,
    security: ClientSecurity = NO_SECURITY,
) -> Iterator[tuple[int, StoredRecord]]:
    """Partition and record, partition after partition, up to the end each one has at the start.

    ``since`` maps partitions to the offset to begin at, as ``end_offsets`` returns them; one that
    is not in it, or has lost what it had there, is read from its first record. Checks every batch's
    CRC and raises ``CorruptBatch`` when it is wrong. Markers of transactions are left out; records
    of aborted transactions are not.
    """
    with ClusterClient(bootstrap_servers, time.monotonic() + timeout, security) as cluster:
        spans = {}
        for number, leader in sorted(cluster.leaders(topic).items()):
            log = PartitionReader(cluster.client(leader), topic, number)
            spans[number] = log, max(log.start(), (since or {}).get(number, 0)), log.end()
        for number, (log, start, end) in spans.items():
            for record in log.read(start, end):
                yield number, record


def end_offsets(
    bootstrap_servers: str,
    topic: str,
    *,
    timeout: float = _DEFAULT_TIMEOUT,
    security: ClientSecurity = NO_SECURITY,
) -> dict[int, int]:
    """The offset the next record will get, for each partition."""
    with ClusterClient(bootstrap_servers, time.monotonic() + timeout, security) as cluster:
        return {
            number: PartitionReader(cluster.client(leader), topic, number).end()
            for number, leader in cluster.leaders(topic).items()
        }


def create_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int,
    *,
    timeout: float = _DEFAULT_TIMEOUT,
    security: ClientSecurity = NO_SECURITY,
) -> None:
    """Make a topic with one replica. ``BrokerError`` 36 when there is one of that name."""
    with ClusterClient(bootstrap_servers, time.monotonic() + timeout, security) as cluster:
        wanted = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        answer = cluster.controller().call(
            ApiKey.CREATE_TOPICS, {"topics": [wanted], "timeout": int(timeout * 1000)}
        )
        for result in answer.topics:
            if result.error_code:
                raise BrokerError(result.error_code, result.error_message or name)

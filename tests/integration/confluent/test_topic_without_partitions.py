"""A topic that has no partitions, as a broker says: records are refused, keys or not."""

from __future__ import annotations

import pytest

from kprod.confluent import KafkaException, Producer
from kprod.transport.memory import MemoryBackend
from tests.integration.confluent.test_producer import LONG, Reports
from tests.support.scripted_cluster import ScriptedCluster


@pytest.mark.parametrize("key", [None, b"key"])
def test_a_record_for_it_is_refused(key: bytes | None) -> None:
    cluster = ScriptedCluster(topics={"t": []}, errors={"t": 0})
    broker = cluster.add(1)
    reports = Reports()
    servers = {"bootstrap.servers": f"{broker.host}:{broker.port}"}
    transport = {"transport": lambda **_: MemoryBackend(cluster.listeners)}
    with Producer({**servers, **transport}) as producer:
        producer.produce("t", b"v", key, on_delivery=reports)  # it waits for its topic
        assert producer.flush(LONG) == 0
        assert reports.codes == ["_UNKNOWN_PARTITION"]
        # The report comes while the first record's queue is still there: for a moment, records
        # of the topic wait behind it, and are told by their reports, too.
        refused = False
        while not refused and producer.flush(LONG) == 0:
            try:
                producer.produce("t", b"v", key, on_delivery=reports)
            except KafkaException:
                refused = True
        assert refused
        assert set(reports.codes) == {"_UNKNOWN_PARTITION"}

"""Injected faults as a client over a socket sees them."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from kprod.admin import end_offsets
from kprod.broker import ApiKey, EmbeddedBroker, Fault
from tests.support.raw_batch import raw_batch
from tests.support.wire_client import WireClient

MOVED = ErrorCode.not_leader_or_follower
PRODUCE = {
    "acks": -1,
    "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": raw_batch([b"x"])}]}],
}


BROKER = {"topics": {"t": 1, "other": 1}}


def produced(client: WireClient) -> tuple[int, int]:
    client.send(ApiKey.PRODUCE, 9, PRODUCE)
    part = client.receive(ApiKey.PRODUCE, 9)[1].responses[0].partition_responses[0]
    return part.error_code, part.base_offset


def end(broker: EmbeddedBroker) -> int:
    return end_offsets(broker.bootstrap_servers, "t")[0]


@pytest.mark.parametrize("stored", [False, True])
def test_a_fault_can_return_an_error_instead_of_or_after_the_append(
    broker: EmbeddedBroker, stored: bool
) -> None:
    before = end(broker)
    fault = Fault(api=ApiKey.PRODUCE, topic="t", error=MOVED, after_append=stored)
    with broker.faults.active(fault), WireClient(broker.bootstrap_servers) as client:
        assert produced(client) == (MOVED, -1)
        assert end(broker) == before + stored
        assert produced(client) == (0, before + stored)
    assert fault.hits == 2


def test_a_fault_affects_only_matching_requests(broker: EmbeddedBroker) -> None:
    for fault in (
        Fault(topic="other", error=MOVED),
        Fault(api=ApiKey.FETCH, error=MOVED),
        Fault(client_id="somebody", error=MOVED),
        Fault(node_id=2, error=MOVED),
        Fault(api=ApiKey.PRODUCE, error=MOVED, after=1),
    ):
        broker.faults.add(fault)
    with WireClient(broker.bootstrap_servers) as client:
        assert [produced(client)[0] for _ in range(3)] == [0, MOVED, 0]


def test_a_fault_matches_topics_by_name_and_id_in_every_request(broker: EmbeddedBroker) -> None:
    fault = broker.faults.add(Fault(topic="t", error=MOVED, after=100))
    with WireClient(broker.bootstrap_servers) as client:
        client.send(ApiKey.METADATA, 12, {"topics": [{"name": "t"}]})
        topic_id = client.receive(ApiKey.METADATA, 12)[1].topics[0].topic_id
        for key, version, body in (
            (ApiKey.PRODUCE, 13, {"acks": -1, "topic_data": [{"topic_id": topic_id}]}),
            (ApiKey.FETCH, 13, {"topics": [{"topic_id": topic_id}]}),
            (ApiKey.OFFSET_FETCH, 8, {"groups": [{"topics": [{"name": "t"}]}]}),
            (ApiKey.DELETE_TOPICS, 5, {"topic_names": ["t"]}),
        ):
            hits = fault.hits
            client.send(key, version, body)
            client.receive(key, version)
            assert fault.hits == hits + 1, key


def test_faults_can_flip_a_bit_and_throttle_a_client(broker: EmbeddedBroker) -> None:
    broker.faults.add(Fault(api=ApiKey.METADATA, corrupt_at=4))
    broker.faults.add(Fault(api=ApiKey.PRODUCE, throttle_ms=70))
    with WireClient(broker.bootstrap_servers) as client:
        client.send(ApiKey.METADATA, 9, {"topics": None}, correlation_id=1)
        assert client.receive(ApiKey.METADATA, 9)[0] == 1 ^ 0x40000000
        client.send(ApiKey.PRODUCE, 9, PRODUCE)
        throttle_time = client.receive(ApiKey.PRODUCE, 9)[1].throttle_time
        assert throttle_time.total_seconds() == 0.07


def test_api_versions_can_be_limited(broker: EmbeddedBroker) -> None:
    broker.faults.limit_versions(ApiKey.PRODUCE, 3, 7)
    with WireClient(broker.bootstrap_servers) as client:
        client.send(ApiKey.API_VERSIONS, 0, {})
        ranges = client.receive(ApiKey.API_VERSIONS, 0)[1].api_keys
        assert [(k.min_version, k.max_version) for k in ranges if k.api_key == 0] == [(3, 7)]
        client.send(ApiKey.PRODUCE, 9, PRODUCE)
        assert client.is_closed_by_peer()


def test_the_disk_can_fail_and_recover(broker: EmbeddedBroker) -> None:
    with WireClient(broker.bootstrap_servers) as client:
        broker.fail_disk(OSError(28, "No space left on device"))
        assert produced(client)[0] is ErrorCode.kafka_storage_error
        broker.fail_disk(None)
        assert produced(client)[0] == 0

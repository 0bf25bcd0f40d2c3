"""What the embedded broker answers is what Apache Kafka answers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kprod.broker import ApiKey, EmbeddedBroker
from kprod.broker.protocol.api_key import VERSIONS
from kprod.broker.protocol.messages import Message
from tests.integration.conftest import SharedKafka
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.jars import NEWEST
from tests.support.apache_kafka.same_answers import answer, requests
from tests.support.topic_admin import TopicAdmin
from tests.support.wire_client import WireClient
from tests.unit.broker.asking_producer import check_answers

pytestmark = pytest.mark.full
LOADING = 14
"""Apache Kafka has no block of producer ids yet; ours always has."""


def shared_versions(bootstrap_servers: str) -> dict[ApiKey, range]:
    with WireClient(bootstrap_servers) as client:
        client.send(ApiKey.API_VERSIONS, 0, {})
        ranges = client.receive(ApiKey.API_VERSIONS, 0)[1].api_keys
    theirs = {found.api_key: found for found in ranges}
    return {
        api: range(
            max(span.accepted_from, theirs[api].min_version),
            min(span.highest, theirs[api].max_version) + 1,
        )
        for api, span in VERSIONS.items()
        if api in theirs
    }


def ask(bootstrap_servers: str, api: ApiKey, version: int, values: Message) -> Any:
    """A broker's answer, once it is not busy loading."""
    while True:
        with WireClient(bootstrap_servers) as client:
            found = answer(client, api, version, values)
        codes = [found.get("error_code"), *(c["error_code"] for c in found.get("coordinators", ()))]
        if not {LOADING, 15} & set(codes):
            return found
        time.sleep(0.1)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[str, str]]:
    kafka = ApacheKafka(tmp_path, NEWEST)
    with kafka, EmbeddedBroker(topics={"t": 1}, auto_create_topics=False) as broker:
        TopicAdmin(kafka.bootstrap_servers).create("t", 1)
        # Both make their offsets topic when a coordinator, or an offset, is asked for.
        ask(kafka.bootstrap_servers, ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": ["g"]})
        yield kafka.bootstrap_servers, broker.bootstrap_servers


def test_more_than_300_requests_get_the_same_answers(brokers: tuple[str, str]) -> None:
    versions = shared_versions(brokers[0])
    asked, different = 0, []
    for api, what, values in requests("t"):
        for version in versions.get(api, ()):
            asked += 1
            theirs, ours = (ask(address, api, version, values) for address in brokers)
            if theirs != ours:
                different.append((api.name, what, version, theirs, ours))
    assert not different, different
    assert asked > 300


TOPIC = "same-answers"
BUSY = re.compile("coordinator_(load_in|not_avail)|not_coordinator|concurrent_transactions")
"""The coordinator loads, or writes the markers of the last transaction."""


def test_every_step_of_a_producers_life_gets_the_same_answers(shared_kafka: SharedKafka) -> None:
    """``unit/broker/test_transactions.py`` asks the embedded broker."""
    kafka = shared_kafka(NEWEST)

    def ask(api: ApiKey, version: int, **values: Any) -> Any:
        with WireClient(kafka.bootstrap_servers) as client:
            client.send(api, version, values)
            return client.receive(api, version)[1]

    def patient(api: ApiKey, version: int, **values: Any) -> Any:
        while BUSY.search(repr(answer := ask(api, version, **values))):
            time.sleep(0.05)
        return answer

    TopicAdmin(kafka.bootstrap_servers).create(TOPIC, 1)
    for key_type, name in ((0, "g"), (0, "h"), (1, TOPIC)):
        patient(ApiKey.FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=[name])
    check_answers(ask, patient, TOPIC, TOPIC)
    for version, supported in ((3, []), (4, [(0, 2)])):
        answer = ask(
            ApiKey.API_VERSIONS, version, client_software_name="n", client_software_version="1"
        )
        name = "transaction.version"
        told = [f for f in answer.supported_features if f.name == name]
        assert [(f.min_version, f.max_version) for f in told] == supported
        assert [f.max_version_level for f in answer.finalized_features if f.name == name] == [2]

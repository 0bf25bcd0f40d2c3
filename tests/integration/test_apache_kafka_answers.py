"""The embedded broker answers requests as Apache Kafka does."""

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
"""Apache Kafka has no block of producer ids yet; the embedded broker always has."""


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
    """A broker's answer, once it has loaded."""
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
        # Both create their offsets topic at the first request for a coordinator or an offset.
        ask(kafka.bootstrap_servers, ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": ["g"]})
        yield kafka.bootstrap_servers, broker.bootstrap_servers


def test_the_embedded_broker_answers_as_apache_kafka_does(brokers: tuple[str, str]) -> None:
    versions = shared_versions(brokers[0])
    count, different = 0, []
    for api, case, values in requests("t"):
        for version in versions.get(api, ()):
            count += 1
            theirs, ours = (ask(address, api, version, values) for address in brokers)
            if theirs != ours:
                different.append((api.name, case, version, theirs, ours))
    assert not different, different
    assert count > 300


TOPIC = "same-answers"
BUSY = re.compile("coordinator_(load_in|not_avail)|not_coordinator|concurrent_transactions")
"""The coordinator is loading, or writes the markers of the last transaction."""


def test_apache_kafka_answers_as_the_embedded_broker_does(shared_kafka: SharedKafka) -> None:
    """``unit/broker/test_transactions.py`` checks the embedded broker."""
    kafka = shared_kafka(NEWEST)

    def ask(api: ApiKey, version: int, **values: Any) -> Any:
        with WireClient(kafka.bootstrap_servers) as client:
            client.send(api, version, values)
            return client.receive(api, version)[1]

    def ask_until_ready(api: ApiKey, version: int, **values: Any) -> Any:
        while BUSY.search(repr(answer := ask(api, version, **values))):
            time.sleep(0.05)
        return answer

    TopicAdmin(kafka.bootstrap_servers).create(TOPIC, 1)
    for key_type, name in ((0, "g"), (0, "h"), (1, TOPIC)):
        ask_until_ready(ApiKey.FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=[name])
    check_answers(ask, ask_until_ready, TOPIC, TOPIC)
    for version, supported in ((3, []), (4, [(0, 2)])):
        answer = ask(
            ApiKey.API_VERSIONS, version, client_software_name="n", client_software_version="1"
        )
        name = "transaction.version"
        features = [f for f in answer.supported_features if f.name == name]
        assert [(f.min_version, f.max_version) for f in features] == supported
        assert [f.max_version_level for f in answer.finalized_features if f.name == name] == [2]

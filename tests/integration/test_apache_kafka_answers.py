"""Request by request: what the embedded broker answers is what Apache Kafka answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kprod.broker import ApiKey, EmbeddedBroker
from kprod.broker.protocol.api_key import VERSIONS
from kprod.broker.protocol.messages import Message
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.jars import NEWEST
from tests.support.apache_kafka.same_answers import answer, requests
from tests.support.topic_admin import TopicAdmin
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.full
LOADING = 14
"""Apache Kafka has no block of producer ids yet; ours always has."""


def shared_versions(bootstrap_servers: str) -> dict[ApiKey, range]:
    """The versions of each API that both brokers speak."""
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

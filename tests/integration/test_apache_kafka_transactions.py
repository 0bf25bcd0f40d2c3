"""Transactions request by request: Apache Kafka answers what our coordinator has to."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from kprod.broker import ApiKey
from tests.integration.conftest import SharedKafka
from tests.support.apache_kafka.jars import NEWEST
from tests.support.topic_admin import TopicAdmin
from tests.support.wire_client import WireClient
from tests.unit.broker.asking_producer import check_answers

pytestmark = pytest.mark.full
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

"""What the confluent face takes as configuration, and the callbacks besides delivery reports."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kprod.broker import EmbeddedBroker
from kprod.broker.api_key import ApiKey
from kprod.broker.authentication import Authentication
from kprod.broker.faults import Fault
from kprod.broker.listener import Listener
from kprod.confluent import Producer, ThrottleEvent
from kprod.confluent.credentials import Credentials
from tests.support.ports import free_port
from tests.unit.confluent.test_producer import LONG, Reports


def test_none_is_for_an_option_that_is_not_set() -> None:
    heard: list[dict[str, Any]] = []
    options = {"bootstrap.servers": None, "statistics.interval.ms": 1}
    with Producer({**options, "stats_cb": lambda text: heard.append(json.loads(text))}) as producer:
        while not heard:
            producer.poll(LONG)
    assert heard[0]["brokers"] == {}


def test_options_of_topics_override_the_others() -> None:
    reports = Reports()
    of_topics = {"message.timeout.ms": 100}
    options = {"message.timeout.ms": 600_000, "default.topic.config": of_topics}
    with Producer({"bootstrap.servers": f"127.0.0.1:{free_port()}", **options}) as producer:
        producer.produce("t", "value", on_delivery=reports)
        assert producer.flush(LONG) == 0
    assert reports.codes == ["_MSG_TIMED_OUT"]


def test_poll_tells_of_a_broker_that_asks_for_fewer_requests() -> None:
    heard: list[ThrottleEvent] = []
    with EmbeddedBroker(topics={"t": 1}) as broker:
        broker.faults.add(Fault(api=ApiKey.PRODUCE, throttle_ms=20))
        options = {"bootstrap.servers": broker.bootstrap_servers, "throttle_cb": heard.append}
        with Producer(options) as producer:
            producer.produce("t", "value")
            while not heard:
                producer.poll(LONG)
        assert heard[0] == (broker.bootstrap_servers, heard[0].broker_id, 0.02)
        assert str(heard[0]).endswith(" throttled for 20 ms")


def test_credentials_can_be_replaced_and_are_never_shown() -> None:
    credentials = Credentials("user", "old")
    credentials.replace("user", "secret")
    assert credentials() == ("user", "secret")
    assert "secret" not in repr(credentials)
    with pytest.raises(TypeError):
        credentials.replace(None, "secret")


def test_a_login_uses_the_credentials_that_were_set_last() -> None:
    reports = Reports()
    listener = Listener(name="SASL", authentication=Authentication({"user": "new"}))
    with EmbeddedBroker(listeners=[listener], topics={"t": 1}) as broker:
        options = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "user",
            "sasl.password": "old",
        }
        with Producer(options) as producer:
            producer.set_sasl_credentials("user", "new")
            producer.produce("t", "value", on_delivery=reports)
            assert producer.flush(LONG) == 0
    assert reports.codes == [None]

"""Transactions by the calls of other clients, by asyncio, and as the documentation shows them."""

from __future__ import annotations

import itertools
import re
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kprod import KafkaProducer
from kprod.confluent import KafkaException
from kprod.confluent import Producer as ConfluentProducer
from kprod.kafka import KafkaProducer as KafkaPythonProducer
from kprod.kafka import errors
from tests.integration.conftest import SharedKafka
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.jars import NEWEST
from tests.support.committed_records import committed, group_offset
from tests.support.topic_admin import TopicAdmin

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, when it is imported
    from kafka.structs import OffsetAndMetadata, TopicPartition


PAGE = Path(__file__).parents[2] / "docs" / "transactions.md"
RECIPE = re.compile(r"^## Consume, transform, produce\n.*?^```py\n(.*?)^```", re.M | re.S)
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def kafka(shared_kafka: SharedKafka) -> ApacheKafka:
    return shared_kafka(NEWEST)


@pytest.fixture
def topic(kafka: ApacheKafka) -> str:
    name = f"faces-{next(numbers)}"
    TopicAdmin(kafka.bootstrap_servers).create(name, 1)
    return name


def seen(kafka: ApacheKafka, topic: str) -> list[bytes]:
    return committed(kafka.bootstrap_servers, topic, 1)


def test_a_program_of_kafka_python(kafka: ApacheKafka, topic: str) -> None:
    """What its own integration tests do with a transactional producer."""
    group = f"group-{topic}"
    with KafkaPythonProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=f"python-{topic}"
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in (b"msg1", b"msg2"):
            producer.send(topic, partition=0, value=value).get(60)
        producer.send_offsets_to_transaction(
            {TopicPartition(topic, 0): OffsetAndMetadata(9, "bad", 1)}, group
        )
        producer.abort_transaction()
        producer.begin_transaction()
        for value in (b"msg3", b"msg4"):
            producer.send(topic, partition=0, value=value).get(60)
        producer.send_offsets_to_transaction(
            {TopicPartition(topic, 0): OffsetAndMetadata(1, "metadata", 33)}, group
        )
        producer.commit_transaction()
        with pytest.raises(errors.IllegalStateError):
            producer.commit_transaction()
    assert seen(kafka, topic) == [b"msg3", b"msg4"]
    assert group_offset(kafka.bootstrap_servers, group, topic, 0) == 1


def test_a_program_of_confluent_kafka(kafka: ApacheKafka, topic: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "transactional.id": f"confluent-{topic}",
    }
    group = f"group-{topic}"
    with ConfluentProducer(settings) as producer:
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, b"lost")
        producer.abort_transaction(60)
        producer.begin_transaction()
        producer.produce(topic, b"kept")
        places = [confluent_kafka.TopicPartition(topic, 0, 3)]
        producer.send_offsets_to_transaction(places, group, 60)
        producer.commit_transaction(60)
        with pytest.raises(KafkaException) as caught:
            producer.commit_transaction(60)
        assert caught.value.args[0].name() == "_STATE"

        heir = ConfluentProducer(settings)
        heir.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, b"zombie")
        with pytest.raises(KafkaException) as caught:
            producer.commit_transaction(60)
        error = caught.value.args[0]
        if error.txn_requires_abort():  # the leader of the partition has told first
            with pytest.raises(KafkaException) as caught:
                producer.abort_transaction(60)
            error = caught.value.args[0]
        assert error.fatal()
        heir.close()
    assert seen(kafka, topic) == [b"kept"]
    assert group_offset(kafka.bootstrap_servers, group, topic, 0) == 3


def test_the_recipe_of_the_documentation(kafka: ApacheKafka) -> None:
    """Every line once, in a second run that takes over from a first that was broken off."""
    admin = TopicAdmin(kafka.bootstrap_servers)
    for name in ("lines", "upper-case-lines"):
        admin.create(name, 1)
    lines = [b"line %d" % number for number in range(300)]
    with KafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as source:
        source.send_many("lines", lines)
    found = RECIPE.search(PAGE.read_text())
    assert found is not None, "the recipe has gone"
    broken = found[1].replace("upper(), key", "nothing_of_the_kind(), key")

    def more_to_do() -> bool:
        done = committed(kafka.bootstrap_servers, "upper-case-lines", 1)
        return len(done) < len(lines)

    surroundings = {"BROKERS": kafka.bootstrap_servers, "more_to_do": more_to_do}
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        run(broken, surroundings)
    run(found[1], surroundings)
    done = committed(kafka.bootstrap_servers, "upper-case-lines", 1)
    assert done == [line.upper() for line in lines]
    assert group_offset(kafka.bootstrap_servers, "upper-case", "lines", 0) == len(lines)


def run(code: str, surroundings: dict[str, Any]) -> None:
    """As a program of its own would: at its end, however that comes, consumer and producer go."""
    names = dict(surroundings)
    try:
        exec(compile(code, "recipe", "exec"), names)
    finally:
        with suppress(RuntimeError):  # it is closed already
            names["consumer"].close()
        names["producer"].close()

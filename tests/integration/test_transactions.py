"""Transactions on Apache Kafka by both protocols: 4.3 adds partitions itself, 3.9 does not."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kprod import GroupMetadata, KafkaProducer
from kprod.errors import ProducerFencedError, TransactionAbortableError, TransactionAbortedError
from kprod.types import NextStep
from tests.integration.conftest import SharedKafka
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.jars import NEWEST, OLDER_TOO
from tests.support.committed_records import committed, group_offset
from tests.support.topic_admin import TopicAdmin

PARTITIONS = 3
SECONDS = 60.0
"""Time limit of a call; generous for a busy machine."""
PAGE = Path(__file__).parents[2] / "docs" / "transactions.md"
RECIPE = re.compile(r"^## Consume, transform, produce\n.*?^```py\n(.*?)^```", re.M | re.S)
numbers = itertools.count(1)

Make = Callable[..., KafkaProducer]


@pytest.fixture(scope="module", params=[NEWEST, OLDER_TOO])
def kafka(request: pytest.FixtureRequest, shared_kafka: SharedKafka) -> ApacheKafka:
    return shared_kafka(request.param)


@pytest.fixture
def topic(kafka: ApacheKafka) -> str:
    name = f"topic-{next(numbers)}"
    TopicAdmin(kafka.bootstrap_servers).create(name, PARTITIONS)
    return name


@pytest.fixture
def make(kafka: ApacheKafka) -> Iterator[Make]:
    made: list[KafkaProducer] = []

    def producer(name: str = "", **options: Any) -> KafkaProducer:
        options = {"transactional_id": name or f"tx-{next(numbers)}", **options}
        made.append(
            KafkaProducer(
                bootstrap_servers=kafka.bootstrap_servers,
                max_block_ms=int(SECONDS * 1000),
                **options,
            )
        )
        return made[-1]

    yield producer
    for each in made:
        each.close(5)


def fill(producer: KafkaProducer, topic: str, text: str, count: int = 30) -> list[bytes]:
    """Records for every partition; their values, sorted."""
    values = [b"%s-%02d" % (text.encode(), number) for number in range(count)]
    for number, value in enumerate(values):
        producer.send(topic, value, partition=number % PARTITIONS)
    return values


def visible(kafka: ApacheKafka, topic: str) -> list[bytes]:
    return sorted(committed(kafka.bootstrap_servers, topic, PARTITIONS))


def test_only_committed_records_are_visible(kafka: ApacheKafka, topic: str, make: Make) -> None:
    producer = make()
    producer.init_transactions()
    expected = []
    for number in range(6):
        producer.begin_transaction()
        values = fill(producer, topic, f"t{number}")
        if number % 3 == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            expected += values
    assert visible(kafka, topic) == sorted(expected)


def test_a_second_producer_fences_the_first(kafka: ApacheKafka, topic: str, make: Make) -> None:
    first, second = make("shared"), make("shared")
    first.init_transactions()
    first.begin_transaction()
    fill(first, topic, "zombie")
    first.flush()
    second.init_transactions()
    with second.transaction():
        values = fill(second, topic, "successor")
    with pytest.raises(ProducerFencedError) as caught:
        first.commit_transaction()
    assert caught.value.next_step is NextStep.START_AGAIN
    for call in (first.begin_transaction, first.commit_transaction, first.abort_transaction):
        with pytest.raises(ProducerFencedError):
            call()
    with pytest.raises(ProducerFencedError):
        first.send(topic, b"no more")
    assert visible(kafka, topic) == values


@pytest.mark.parametrize("call", ["commit", "offsets"])
def test_an_expired_transaction_is_never_committed(
    kafka: ApacheKafka, topic: str, make: Make, call: str
) -> None:
    """Protocol 2 recovers by an abort; in protocol 1 it looks like fencing."""
    producer, group = make(transaction_timeout_ms=500), f"group-{next(numbers)}"
    producer.init_transactions()
    producer.begin_transaction()
    fill(producer, topic, "late")
    producer.flush()
    # It returns once the coordinator has aborted the transaction.
    assert committed(kafka.bootstrap_servers, topic, PARTITIONS) == []
    calls: dict[str, Callable[[], object]] = {
        "commit": producer.commit_transaction,
        "offsets": lambda: producer.send_offsets_to_transaction({(topic, 0): 5}, group),
    }
    with pytest.raises((TransactionAbortableError, ProducerFencedError)) as caught:
        calls[call]()
    if kafka.version == NEWEST:
        assert caught.value.next_step is NextStep.ABORT
        producer.abort_transaction()
    else:
        assert caught.value.next_step is NextStep.START_AGAIN
        producer = make()
    with producer.transaction() as transaction:
        values = fill(producer, topic, "next")
        transaction.send_offsets({(topic, 0): 7}, group)
    assert visible(kafka, topic) == values
    assert group_offset(kafka.bootstrap_servers, group, topic, 0) == 7


def test_queued_records_of_an_aborted_transaction_are_not_sent(
    kafka: ApacheKafka, topic: str, make: Make
) -> None:
    producer = make(linger_ms=60_000, delivery_timeout_ms=120_000)
    producer.init_transactions()
    producer.begin_transaction()
    futures = [producer.send(topic, b"%d" % number) for number in range(10)]
    producer.abort_transaction()
    assert {type(future.exception) for future in futures} == {TransactionAbortedError}
    raw = committed(kafka.bootstrap_servers, topic, PARTITIONS, isolation="read_uncommitted")
    assert raw == []


def test_offsets_are_committed_with_the_records(kafka: ApacheKafka, topic: str, make: Make) -> None:
    producer = make()
    group = f"group-{next(numbers)}"
    with producer.transaction() as transaction:
        fill(producer, topic, "first")
        transaction.send_offsets({(topic, 0): 5, (topic, 2): 7}, group)
    with suppress(ZeroDivisionError), producer.transaction() as transaction:
        transaction.send_offsets({(topic, 0): 9}, GroupMetadata(group))
        raise ZeroDivisionError
    assert group_offset(kafka.bootstrap_servers, group, topic, 0) == 5
    assert group_offset(kafka.bootstrap_servers, group, topic, 2) == 7
    with producer.transaction() as transaction:
        transaction.send_offsets({(topic, 0): 8}, group)
    assert group_offset(kafka.bootstrap_servers, group, topic, 0) == 8


def test_an_expelled_member_cannot_commit_offsets(
    kafka: ApacheKafka, topic: str, make: Make
) -> None:
    producer = make()
    producer.init_transactions()
    producer.begin_transaction()
    fill(producer, topic, "expelled")
    member = GroupMetadata("some-group", generation_id=17, member_id="nobody")
    with pytest.raises(TransactionAbortableError, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"):
        producer.send_offsets_to_transaction({(topic, 0): 1}, member)
    producer.abort_transaction()
    assert visible(kafka, topic) == []
    with producer.transaction():
        values = fill(producer, topic, "next")
    assert visible(kafka, topic) == values


def test_the_recipe_of_the_documentation(shared_kafka: SharedKafka) -> None:
    """Every line once, although the first run is interrupted and a second takes over."""
    servers = shared_kafka(NEWEST).bootstrap_servers
    for name in ("lines", "upper-case-lines"):
        TopicAdmin(servers).create(name, 1)
    lines = [b"line %d" % number for number in range(300)]
    with KafkaProducer(bootstrap_servers=servers) as source:
        source.send_many("lines", lines)
    found = RECIPE.search(PAGE.read_text())
    assert found is not None, "the recipe is missing"
    broken = found[1].replace("upper(), key", "no_such_method(), key")

    def more_to_do() -> bool:
        done = committed(servers, "upper-case-lines", 1)
        return len(done) < len(lines)

    globals_ = {"BROKERS": servers, "more_to_do": more_to_do}
    with pytest.raises(AttributeError, match="no_such_method"):
        run(broken, globals_)
    run(found[1], globals_)
    done = committed(servers, "upper-case-lines", 1)
    assert done == [line.upper() for line in lines]
    assert group_offset(servers, "upper-case", "lines", 0) == len(lines)


def run(code: str, globals_: dict[str, Any]) -> None:
    """Run it as a program would: consumer and producer are closed in any case."""
    names = dict(globals_)
    try:
        exec(compile(code, "recipe", "exec"), names)
    finally:
        with suppress(RuntimeError):  # it is closed already
            names["consumer"].close()
        names["producer"].close()

"""A producer that crosses into another process connects anew there and leaves the old one alone."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from collections.abc import Callable

import pytest

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.errors import IllegalStateError
from kprod_ext.futures import FutureRecordMetadata
from tests.support.judge import read_back


def _get(queued: FutureRecordMetadata) -> None:
    queued.get()  # an outcome would never come, and a limit is not needed to hear of that


def _await(queued: FutureRecordMetadata) -> None:
    async def wait() -> None:
        await queued

    asyncio.run(asyncio.wait_for(wait(), 5))


@pytest.mark.parametrize("wait", [_get, _await])
def test_a_child_that_waits_for_a_record_of_the_parent_does_not_send_it(
    wait: Callable[[FutureRecordMetadata], None],
) -> None:
    """It would write to the parent's connection, as the parent does at the same time."""
    with (
        EmbeddedBroker(topics={"forked": 1}) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=500) as producer,
    ):
        for _ in range(5):  # by now the sender rests, and who waits does its work
            producer.send("forked", b"alone").get(timeout=20)
        queued = producer.send("forked", b"queued by the parent")
        child = os.fork()
        if child == 0:
            os._exit(_wait_as_child(wait, queued))
        _, status = os.waitpid(child, 0)
        assert queued.get(timeout=20).offset == 5

    assert os.waitstatus_to_exitcode(status) == 0


def _wait_as_child(
    wait: Callable[[FutureRecordMetadata], None], queued: FutureRecordMetadata
) -> int:
    try:
        wait(queued)
    except IllegalStateError as error:
        return 0 if "only the parent hears of the outcome" in str(error) else 2
    except TimeoutError:
        return 3
    return 1


class SlowToStart:
    """A partitioner during whose start in a child another thread of the child sends."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] | None = None

    @property
    def choose(self) -> Callable[..., int]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return lambda _topic, _key: 0

    def appended(self, *_: object) -> None:
        """Nothing to remember."""


def test_threads_of_a_child_send_when_all_of_it_has_started() -> None:
    partitioner = SlowToStart()
    with (
        EmbeddedBroker(topics={"forked": 1}) as broker,
        KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, partitioner=partitioner
        ) as producer,
    ):
        producer.send("forked", b"parent").get(timeout=20)
        child = os.fork()
        if child == 0:
            os._exit(_send_in_two_threads(producer, partitioner))
        _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0


def _send_in_two_threads(producer: KafkaProducer, partitioner: SlowToStart) -> int:
    queued: list[FutureRecordMetadata] = []
    other = threading.Thread(target=lambda: queued.append(producer.send("forked", b"other")))

    def meanwhile() -> None:
        other.start()
        other.join(0.3)  # it waits

    partitioner.meanwhile = meanwhile
    try:
        producer.send("forked", b"child").get(timeout=20)
        other.join(20)
        queued[0].get(timeout=20)
        return 0 if producer.close(timeout=20).delivered == 2 else 2
    except BaseException:
        return 1


def test_an_unpickled_producer_delivers() -> None:
    with (
        EmbeddedBroker(topics={"pickled": 1}) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id="original") as producer,
    ):
        producer.send("pickled", b"first").get(timeout=20)
        with pickle.loads(pickle.dumps(producer)) as copy:
            assert copy.config.client_id == "original"
            copy.send("pickled", b"second").get(timeout=20)
        producer.send("pickled", b"third").get(timeout=20)
        found = [record.value for record in read_back(broker.bootstrap_servers, "pickled", 1)]

    assert found == [b"first", b"second", b"third"]

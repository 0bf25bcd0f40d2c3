"""Callers wait for a topic, and get it or an error with its cause."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from kprod.clock import ExponentialBackoff, SystemClock
from kprod.cluster.metadata import Metadata
from kprod.cluster.snapshot import LeaderHint
from kprod.errors import (
    BrokerError,
    ConnectionLost,
    KprodError,
    KprodTimeoutError,
    PartitionError,
    ProducerClosedError,
)
from kprod.types import TopicPartition
from kprod.wire.control import MetadataReply, TopicReply
from tests.support.interruption import Interrupted, interruptible, repeat_until_interrupted
from tests.unit.cluster.replies import reply, topic

LONG = 30.0


def new_metadata() -> Metadata:
    return Metadata(
        clock=SystemClock(), max_age=300, max_idle=300, backoff=ExponentialBackoff(0.0, 0.0)
    )


@pytest.fixture
def metadata() -> Metadata:
    return new_metadata()


class AnsweringSender:
    """The sender: answers each request that is due with the next of ``replies``."""

    def __init__(self, metadata: Metadata, *replies: MetadataReply | KprodError) -> None:
        self.metadata = metadata
        self.requested: list[list[str]] = []
        self._replies = list(replies)

    def wake(self) -> None:
        """Called by the waiting thread, to wake the sender."""
        while self._replies and self.metadata.due(1.0) == 0:
            self.requested.append(self.metadata.wanted(1.0))
            answer = self._replies.pop(0)
            if isinstance(answer, KprodError):
                self.metadata.failed(answer, 1.0)
            else:
                self.metadata.answered(answer, 1.0)


def test_a_partition_beyond_the_known_count_is_requested_once(metadata: Metadata) -> None:
    metadata.answered(reply(topic("t", [1, 1])), 0.0)
    sender = AnsweringSender(metadata, reply(topic("t", [1, 1, 1])))
    assert len(metadata.await_topic("t", LONG, sender.wake, partition=2)) == 3
    assert len(sender.requested) == 1


@pytest.mark.parametrize("known", [[], [topic("t", [1, 1])]])
def test_a_partition_that_does_not_exist_is_refused_after_one_answer(
    metadata: Metadata, known: list[TopicReply]
) -> None:
    metadata.answered(reply(*known), 0.0)
    sender = AnsweringSender(metadata, reply(topic("t", [1, 1])))
    with pytest.raises(PartitionError, match=r"'t' has no partition 2: it has 2 partitions \(0 to"):
        metadata.await_topic("t", LONG, sender.wake, partition=2)


def test_metadata_of_other_topics_does_not_end_the_wait_for_a_partition(metadata: Metadata) -> None:
    metadata.answered(reply(topic("t")), 0.0)
    sender = AnsweringSender(metadata, reply(topic("other")), reply(topic("t", [1, 1])))
    assert len(metadata.await_topic("t", LONG, sender.wake, partition=1)) == 2


def test_a_leader_change_does_not_end_the_wait_for_a_partition() -> None:
    hints = {TopicPartition("t", 0): LeaderHint(2, 5)}
    changes: tuple[Callable[[Metadata], None], ...] = (
        lambda metadata: metadata.take_leader_hints(hints),
        Metadata.rebootstrap,
    )
    for change in changes:
        metadata = new_metadata()
        metadata.answered(reply(topic("t", [1, 2])), 0.0)
        metadata.used({"t": 0.0})
        metadata.check(metadata.search("other", None))
        assert metadata.wanted(1.0) == ["other"]  # in flight while the caller begins to wait
        search = metadata.search("t", 2)
        metadata.check(search)
        change(metadata)
        metadata.answered(reply(topic("other")), 1.0)
        assert metadata.check(search)[0] is None
        assert metadata.wanted(2.0) == ["other", "t"]
        metadata.answered(reply(topic("t", [1, 2, 3]), topic("other")), 2.0)
        found = metadata.check(search)[0]
        assert found is not None
        assert len(found) == 3


def test_the_cluster_is_requested_without_topics(metadata: Metadata) -> None:
    sender = AnsweringSender(metadata, reply())
    assert set(metadata.await_cluster(LONG, sender.wake).brokers) == {1, 2, 3}
    assert sender.requested == [[]]


def test_the_timeout_for_an_unreachable_cluster_has_its_cause(metadata: Metadata) -> None:
    lost = ConnectionLost("broker-1:9092: Connection refused")
    metadata.connection_failed("broker 1", lost)
    with pytest.raises(KprodTimeoutError, match="within 0 s: broker-1:9092: Connection refu") as it:
        metadata.await_cluster(0, no_answer)
    assert it.value.__cause__ is lost


def test_a_refused_topic_is_requested_again_by_the_next_caller(metadata: Metadata) -> None:
    sender = AnsweringSender(metadata, reply(topic("t", error=29)), reply(topic("t")))
    with pytest.raises(BrokerError):
        metadata.await_topic("t", LONG, sender.wake)
    assert metadata.await_topic("t", LONG, sender.wake).name == "t"


def no_answer() -> None:
    """A wake-up without an answer."""


def timeout_of(metadata: Metadata, partition: int | None = None) -> KprodTimeoutError:
    with pytest.raises(KprodTimeoutError) as caught:
        metadata.await_topic("t", 0.02, no_answer, partition)
    return caught.value


def test_a_timeout_names_the_latest_connection_failures(metadata: Metadata) -> None:
    refused, unknown = (
        ConnectionLost("broker 1: refused"),
        ConnectionLost("broker 2: cannot resolve"),
    )
    metadata.connection_failed("broker 1", ConnectionLost("broker 1: no response"))
    metadata.connection_failed("broker 2", unknown)
    metadata.connection_failed("broker 1", refused)
    error = timeout_of(metadata)
    assert str(error).endswith(": broker 1: refused; broker 2: cannot resolve")
    assert error.__cause__ is refused
    for number in range(100):
        metadata.connection_failed(f"{number}", ConnectionLost(f"{number}: refused"))
    assert str(timeout_of(metadata)).endswith("; 95: refused; and 45 more")


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (3, "UNKNOWN_TOPIC_OR_PARTITION .*it does not exist.*allow_auto_create_topics"),
        (5, "LEADER_NOT_AVAILABLE .*no leader yet"),
    ],
)
def test_a_timeout_explains_the_error_code(metadata: Metadata, code: int, meaning: str) -> None:
    metadata.answered(reply(topic("t", error=code)), 0.0)
    error = timeout_of(metadata)
    assert re.search(f"topic 't' within 0.02 s: the cluster answers {meaning}", str(error))
    assert isinstance(error.__cause__, BrokerError)


@pytest.mark.parametrize(
    ("code", "meaning"), [(17, "do not allow this name"), (29, "may not describe or create it")]
)
def test_a_permanent_refusal_is_raised_at_once_with_an_explanation(
    metadata: Metadata, code: int, meaning: str
) -> None:
    sender = AnsweringSender(metadata, reply(topic("t", error=code)))
    with pytest.raises(BrokerError, match=f"topic 't'.*{meaning}") as caught:
        metadata.await_topic("t", LONG, sender.wake)
    assert caught.value.code == code


def test_a_call_that_does_not_wait_still_requests_the_topic(metadata: Metadata) -> None:
    sender = AnsweringSender(metadata, reply(topic("t")))
    later: list[Callable[[], None]] = []
    with pytest.raises(KprodTimeoutError):
        metadata.await_topic("t", 0, lambda: later.append(sender.wake))
    assert len(later) == 1, "the sender was not woken"
    later[0]()
    assert metadata.await_topic("t", 0, sender.wake).name == "t"


def test_one_answer_serves_all_callers_waiting_for_a_topic(metadata: Metadata) -> None:
    woken: list[None] = []

    def wait() -> int:
        return len(metadata.await_topic("t", LONG, lambda: woken.append(None)))

    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(wait) for _ in range(4)]
        while metadata.due(1.0) != 0 or not woken:
            threading.Event().wait(0.001)
        assert metadata.wanted(1.0) == ["t"]
        metadata.answered(reply(topic("t", [1, 1, 1])), 1.0)
        assert [waiting.result(LONG) for waiting in results] == [3] * 4


def test_close_ends_every_wait(metadata: Metadata) -> None:
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(metadata.await_topic, "t", LONG, begun.set)
        assert begun.wait(LONG)
        metadata.close()
        with pytest.raises(ProducerClosedError):
            waiting.result(LONG)


def test_the_sender_is_woken_again_after_an_interrupted_wait(metadata: Metadata) -> None:

    def interrupted() -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        metadata.await_topic("t", LONG, interrupted)
    sender = AnsweringSender(metadata, reply(topic("t")))
    assert metadata.await_topic("t", LONG, sender.wake).name == "t"


def test_an_interruption_at_any_moment_of_a_wait_releases_the_lock() -> None:
    def try_briefly(metadata: Metadata) -> None:
        with suppress(KprodTimeoutError):
            metadata.await_topic("t", 1e-6, no_answer)

    with interruptible():
        for number in range(500):
            metadata = new_metadata()
            repeat_until_interrupted(partial(try_briefly, metadata), 0.0002 + number * 3e-7)
            answerer = threading.Thread(
                target=metadata.answered, args=(reply(topic("t")), 1.0), daemon=True
            )
            answerer.start()
            answerer.join(LONG)
            assert not answerer.is_alive(), "an interrupted wait still holds the lock"

"""What a transactional producer is told of a group's offsets: the last word, no open one."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.errors import KprodTimeoutError, TransactionError
from kprod.transactional.two_phase_commit import TwoPhaseCommit
from kprod.types import TopicPartition
from tests.integration.conftest import SharedKafka
from tests.support.apache_kafka.jars import NEWEST, OLDER_TOO
from tests.support.topic_admin import TopicAdmin

PLACE = TopicPartition("kept", 0)


class Kept:
    """An offset with a note."""

    def __init__(self, offset: int, metadata: str) -> None:
        self.offset = offset
        self.metadata = metadata


@pytest.fixture(scope="module", params=["embedded", NEWEST, OLDER_TOO])
def servers(request: pytest.FixtureRequest, shared_kafka: SharedKafka) -> Iterator[str]:
    if request.param == "embedded":
        with EmbeddedBroker() as embedded:
            TopicAdmin(embedded.bootstrap_servers).create("kept", 1)
            yield embedded.bootstrap_servers
    else:
        kafka = shared_kafka(request.param)
        TopicAdmin(kafka.bootstrap_servers).create("kept", 1)
        yield kafka.bootstrap_servers


def make(servers: str, name: str) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=servers, transactional_id=name, max_block_ms=60_000)


def test_an_open_transaction_is_waited_for(servers: str) -> None:
    with make(servers, "writes") as writes, make(servers, "asks") as asks:
        assert TwoPhaseCommit(asks).committed_offsets("group", [PLACE])[PLACE].offset == -1
        note = "{" + "n" * 3_000 + "}"
        with writes.transaction():
            writes.send_offsets_to_transaction({PLACE: Kept(5, note)}, "group")
        found = TwoPhaseCommit(asks).committed_offsets("group", [PLACE])[PLACE]
        assert (found.offset, found.metadata) == (5, note.encode())
        answers: list[int] = []
        asked = threading.Event()

        def ask() -> None:
            asked.set()
            answers.append(TwoPhaseCommit(asks).committed_offsets("group", [PLACE])[PLACE].offset)

        with writes.transaction():
            writes.send_offsets_to_transaction({PLACE: Kept(6, "")}, "group")
            with pytest.raises(KprodTimeoutError, match="'group'"):
                TwoPhaseCommit(asks).committed_offsets("group", [PLACE], timeout=0.3)
            unstable = TwoPhaseCommit(asks).committed_offsets("group", [PLACE], wait=False)
            assert unstable[PLACE].offset == -1
            waiting = threading.Thread(target=ask)
            waiting.start()
            asked.wait()
        waiting.join()
        assert answers == [6]


def test_a_producer_that_was_fenced_may_ask(servers: str) -> None:
    with make(servers, "same") as fenced, make(servers, "same") as heir:
        fenced.init_transactions()
        with heir.transaction():
            heir.send_offsets_to_transaction({PLACE: 9}, "another")
        fenced.begin_transaction()
        fenced.send("kept", b"too late")
        with pytest.raises(TransactionError):
            fenced.commit_transaction()
        assert TwoPhaseCommit(fenced).committed_offsets("another", [PLACE])[PLACE].offset == 9

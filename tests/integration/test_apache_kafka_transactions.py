"""Transactions request by request: our coordinator answers what Apache Kafka's does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kprod.broker import ApiKey, EmbeddedBroker
from tests.integration.conftest import SharedKafka
from tests.support.apache_kafka.jars import NEWEST
from tests.support.raw_batch import raw_batch
from tests.support.topic_admin import TopicAdmin
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.full
TOPIC, NAME = "same-answers", "same-answers"
BUSY = {14, 15, 16, 51}
"""The coordinator loads, or writes the markers of the last transaction."""


class Asker:
    """A producer of one transactional id, who asks again while the broker is busy."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._address = bootstrap_servers
        self._settled(self._coordinator, lambda found: int(found.error_code))
        self.producer_id = -1

    def _ask(self, api: ApiKey, version: int, **values: Any) -> Any:
        with WireClient(self._address) as client:
            client.send(api, version, values)
            return client.receive(api, version)[1]

    def _settled(self, act: Callable[[], Any], code: Callable[[Any], int]) -> Any:
        while code(answer := act()) in BUSY:
            time.sleep(0.05)
        return answer

    def _coordinator(self) -> Any:
        asked = {"key_type": 1, "coordinator_keys": [NAME]}
        return self._ask(ApiKey.FIND_COORDINATOR, 4, **asked).coordinators[0]

    def init_once(self, version: int = 4, **changes: Any) -> Any:
        """InitProducerId: code and epoch."""
        values = {"transactional_id": NAME, "transaction_timeout": 60_000}
        values |= {"producer_id": -1, "producer_epoch": -1, **changes}
        answer = self._ask(ApiKey.INIT_PRODUCER_ID, version, **values)
        if not answer.error_code:
            self.producer_id = answer.producer_id
        return int(answer.error_code), answer.producer_epoch

    def init(self, **changes: Any) -> Any:
        """The same, until the last transaction has ended."""
        return self._settled(lambda: self.init_once(**changes), lambda found: int(found[0]))

    def send(self, epoch: int, sequence: int, version: int = 12, name: str | None = NAME) -> int:
        """Produce."""
        now = int(time.time() * 1000)
        records = raw_batch(
            attributes=0x10,
            producer_id=self.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            base_timestamp=now,
            max_timestamp=now,
        )
        topics = [{"name": TOPIC, "partition_data": [{"index": 0, "records": records}]}]
        values = {"acks": -1, "timeout": 5_000, "transactional_id": name, "topic_data": topics}

        def once() -> int:
            answer = self._ask(ApiKey.PRODUCE, version, **values)
            return int(answer.responses[0].partition_responses[0].error_code)

        return int(self._settled(once, int))

    def add(self, epoch: int, version: int = 3, wrong: int = 0, name: str = NAME) -> int:
        """AddPartitionsToTxn."""
        values = {
            "v3_and_below_transactional_id": name,
            "v3_and_below_producer_id": self.producer_id + wrong,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        }

        def once() -> int:
            answer = self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, **values)
            (topic,) = answer.results_by_topic_v3_and_below
            return int(topic.results_by_partition[0].partition_error_code)

        return int(self._settled(once, int))

    def end(self, epoch: int, committed: bool, version: int = 5) -> Any:
        """EndTxn: code and the next epoch."""
        values = {"transactional_id": NAME, "producer_id": self.producer_id}
        values |= {"producer_epoch": epoch, "committed": committed}

        def once() -> Any:
            answer = self._ask(ApiKey.END_TXN, version, **values)
            return int(answer.error_code), getattr(answer, "producer_epoch", None)

        return self._settled(once, lambda found: int(found[0]))

    def features(self, version: int) -> Any:
        """Supported and finalized versions of transactions."""
        software = {"client_software_name": "n", "client_software_version": "1"}
        answer = self._ask(ApiKey.API_VERSIONS, version, **software)
        name = "transaction.version"
        return (
            [(f.min_version, f.max_version) for f in answer.supported_features if f.name == name],
            [f.max_version_level for f in answer.finalized_features if f.name == name],
        )


def story(asker: Asker) -> Iterator[tuple[str, Any]]:
    """What happens, and what the broker says to it; epochs as numbers from 0 on."""
    yield "first", asker.init()
    yield "time-out", asker.init(transaction_timeout=10**9)
    yield "no name", asker.init(transactional_id="")
    yield "half an identity", asker.init(producer_id=5)
    yield "again", asker.init()
    yield "nothing to commit", asker.end(1, True)
    yield "nothing to abort", asker.end(1, False)
    yield "next", asker.init()
    yield "nothing to commit, version 1", asker.end(3, True, 4)
    yield "nothing to abort, version 1", asker.end(3, False, 4)
    yield "sent", asker.send(3, 0)
    yield "committed", asker.end(3, True)
    yield "committed again", asker.end(3, True)
    yield "then aborted", asker.end(3, False)
    yield "old epoch", asker.send(3, 1)
    yield "new epoch", asker.send(4, 0)
    yield "the next producer", asker.init_once()
    yield "once more", asker.init()
    yield "zombie ends", (asker.end(4, True), asker.end(4, True, 1))
    yield "zombie adds", (asker.add(4), asker.add(4, 1))
    present = {"producer_id": asker.producer_id, "producer_epoch": 4}
    yield "zombie begins", (asker.init(**present), asker.init(version=3, **present))
    yield "zombie sends", asker.send(4, 1)
    yield "not announced", (asker.send(6, 0, 11), asker.send(6, 0, 10))
    yield "not its id", (asker.add(6, wrong=77), asker.add(6, name="another"))
    yield "announced", (asker.add(6), asker.send(6, 0, 11))
    yield "without a name", asker.send(6, 1, 11, None)
    yield "by version 1", asker.end(6, True, 4)
    yield "features", (asker.features(3), asker.features(4))


def test_every_step_of_a_producers_life_gets_the_same_answers(shared_kafka: SharedKafka) -> None:
    kafka = shared_kafka(NEWEST)
    with EmbeddedBroker(topics={TOPIC: 1}) as broker:
        TopicAdmin(kafka.bootstrap_servers).create(TOPIC, 1)
        ours = list(story(Asker(broker.bootstrap_servers)))
        theirs = list(story(Asker(kafka.bootstrap_servers)))
    assert ours == theirs

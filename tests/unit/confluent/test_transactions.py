"""The transactional calls of ``kprod.confluent``"""

from __future__ import annotations

from functools import partial

import pytest
from confluent_kafka import TopicPartition

from kprod.confluent import KafkaException, Producer
from tests.support.ports import free_port


def test_without_a_transactional_id_transactions_are_not_configured() -> None:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{free_port()}"})
    for call in (
        producer.init_transactions,
        producer.begin_transaction,
        partial(producer.send_offsets_to_transaction, [TopicPartition("t", 0, 1)], "g"),
        producer.commit_transaction,
        producer.abort_transaction,
    ):
        with pytest.raises(KafkaException) as caught:
            call()
        assert caught.value.args[0].name() == "_NOT_CONFIGURED"
    assert producer.close()

"""Time spent in the calls of transactions, under the names that Java has for it (KIP-761)."""

from __future__ import annotations

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker

CALLS = ("init", "begin", "send-offsets", "commit", "abort")


def times(producer: KafkaProducer) -> dict[str, float]:
    metrics = producer.metrics()["producer-metrics"]
    return {call: metrics[f"txn-{call}-time-ns-total"] for call in CALLS}


def test_each_call_adds_to_its_own_time() -> None:
    with (
        EmbeddedBroker(topics={"t": 1}) as broker,
        KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="tx"
        ) as producer,
    ):
        assert set(times(producer).values()) == {0.0}
        producer.init_transactions()
        after_init = times(producer)
        producer.begin_transaction()
        producer.send_offsets_to_transaction({("t", 0): 1}, "group")
        producer.abort_transaction()
        after_abort = times(producer)
        with producer.transaction():
            producer.send("t", b"v")
        after_commit = times(producer)
    assert [call for call in CALLS if after_init[call]] == ["init"]
    assert [call for call in CALLS if not after_abort[call]] == ["commit"]
    assert all(after_commit.values())
    assert after_commit["send-offsets"] == after_abort["send-offsets"]

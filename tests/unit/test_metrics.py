"""Counters under Kafka's names."""

from __future__ import annotations

from kprod.metrics import ProducerMetrics


def test_a_producer_that_did_nothing_has_zeros_everywhere() -> None:
    assert set(ProducerMetrics().by_name().values()) == {0}


def test_what_was_acknowledged_is_counted_in_records_batches_and_bytes() -> None:
    metrics = ProducerMetrics()
    metrics.acknowledged(10, 1000)
    metrics.acknowledged(20, 3000)
    named = metrics.by_name()
    assert (named["record-send-total"], named["batch-total"]) == (30, 2)
    assert (named["byte-total"], named["batch-size-avg"]) == (4000, 2000)


def test_latencies_are_told_in_milliseconds() -> None:
    metrics = ProducerMetrics()
    for seconds in (0.1, 0.3):
        metrics.request_done(seconds)
    named = metrics.by_name()
    assert (named["request-total"], named["request-latency-avg"]) == (2, 200)
    assert named["request-latency-max"] == 300

"""What a producer counts, under Kafka's own metric names.

Counters are changed once per batch or per request, never per record, and only by the sender's
thread; reading them from any thread gives a recent value.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ProducerMetrics:
    """Totals since the producer was made. Written by the sender's thread only."""

    records_sent: int = 0
    """Records acknowledged (with acks=0: written to the socket)."""
    records_failed: int = 0
    records_retried: int = 0
    bytes_sent: int = 0
    """Bytes of acknowledged batches, as they went over the wire."""
    batches_sent: int = 0
    batches_split: int = 0
    requests_sent: int = 0
    request_latency_seconds: float = 0.0
    request_latency_max: float = 0.0
    connections_made: int = 0
    connections_lost: int = 0

    def acknowledged(self, records: int, nbytes: int) -> None:
        """One batch was acknowledged."""
        self.batches_sent += 1
        self.records_sent += records
        self.bytes_sent += nbytes

    def request_done(self, seconds: float) -> None:
        """One produce request was answered after ``seconds``."""
        self.requests_sent += 1
        self.request_latency_seconds += seconds
        self.request_latency_max = max(self.request_latency_max, seconds)

    def by_name(self) -> dict[str, float]:
        """The counters under the names of Kafka's ``producer-metrics`` group."""
        answered = max(self.requests_sent, 1)
        batches = max(self.batches_sent, 1)
        return {
            "record-send-total": self.records_sent,
            "record-error-total": self.records_failed,
            "record-retry-total": self.records_retried,
            "byte-total": self.bytes_sent,
            "batch-total": self.batches_sent,
            "batch-split-total": self.batches_split,
            "batch-size-avg": self.bytes_sent / batches,
            "request-total": self.requests_sent,
            "request-latency-avg": 1000 * self.request_latency_seconds / answered,
            "request-latency-max": 1000 * self.request_latency_max,
            "connection-creation-total": self.connections_made,
            "connection-close-total": self.connections_lost,
        }

"""What the sender's thread counts, once per batch or request: the compiled part of the metrics."""

from __future__ import annotations

from kprod.metrics.counters import Batch, BatchCounters, NodeCounters, ProducerCounters


class SenderCounters(ProducerCounters):
    """The counters of a producer, of its topics and of its brokers.

    Thread: the sender's only, but for reading, which gives a recent value from any thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.topics: dict[str, BatchCounters] = {}
        self.nodes: dict[int, NodeCounters] = {}

    def acknowledged(
        self,
        topic_name: str,
        records: int,
        nbytes: int,
        uncompressed: int,
        largest: int,
        queued: float,
    ) -> None:
        """A batch was acknowledged that had waited ``queued`` seconds before its last attempt.

        It took ``nbytes`` on the wire; its records took ``uncompressed`` bytes before compression,
        the largest of them ``largest``.
        """
        topic = self.topic(topic_name)
        topic.records_sent += records
        topic.batches_sent += 1
        topic.bytes_sent += nbytes
        topic.uncompressed_bytes += uncompressed
        self.records_sent += records
        self.queued_seconds += queued
        self.queued_max = max(self.queued_max, queued)
        self.batch_size_max = max(self.batch_size_max, nbytes)
        self.record_size_max = max(self.record_size_max, largest)

    def failed(self, batch: Batch) -> None:
        """The records of a batch ended in an error."""
        topic = self.topic(batch.tp[0])
        topic.records_failed += batch.record_count
        self.records_failed += batch.record_count

    def retried(self, batch: Batch) -> None:
        """A batch will be sent once more."""
        topic = self.topic(batch.tp[0])
        topic.records_retried += batch.record_count
        self.records_retried += batch.record_count

    def answered(self, node_id: int, seconds: float, throttle_ms: int) -> None:
        """A produce request was answered after ``seconds``; the broker throttles us."""
        self.answers += 1
        self.latency_seconds += seconds
        self.latency_max = max(self.latency_max, seconds)
        self.node(node_id).answered(seconds)
        if throttle_ms:
            self.throttle_ms += throttle_ms
            self.throttle_ms_max = max(self.throttle_ms_max, throttle_ms)

    def topic(self, name: str) -> BatchCounters:
        """The counters of one topic."""
        counters = self.topics.get(name)
        if counters is None:
            counters = self.topics[name] = BatchCounters()
        return counters

    def node(self, node_id: int) -> NodeCounters:
        """The counters of one broker; bootstrap addresses have ids -1, -2, ..."""
        counters = self.nodes.get(node_id)
        if counters is None:
            counters = self.nodes[node_id] = NodeCounters()
        return counters

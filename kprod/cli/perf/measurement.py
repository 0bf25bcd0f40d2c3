"""Sends a workload and measures its cost and duration."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from kprod.cli.figures import CostMeter, cores, percentiles, producer_options
from kprod.cli.perf.workload import CALLS, Chunk, Workload
from kprod.errors import KprodError
from kprod.types import DeliveryReport
from kprod.version import VERSION

BUSY = 0.9
"""Share of one core, or of all, above which the CPU is considered used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The figures of one run. ``records`` is the number of acknowledged records.

    Rates and costs refer to acknowledged records. ``latency_ms`` has percentiles, in milliseconds,
    of ``latency_samples`` records. A latency is the time from the call to the outcome. At a given
    rate, this time begins when the call was due. ``payload_bytes`` are the bytes of values.
    ``batch_bytes`` is the average size of a batch on the wire. ``request_latency_ms`` is an average
    since the producer was made. ``first_error`` is the first error among the sampled records.

    Other fields are the circumstances: ``rate`` (requested records per second, None for as many as
    possible), ``call`` and ``options`` as text, ``cores`` of this process, and the CPU time of the
    embedded broker during the run (None for another cluster).
    """

    records: int
    failed: int
    first_error: str | None
    pending: int
    interrupted: bool
    payload_bytes: int
    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    latency_ms: dict[str, float]
    latency_samples: int
    batches: int
    batch_bytes: float
    requests: int
    request_latency_ms: float
    retries: int
    rate: float | None
    call: str
    options: str
    version: str
    cores: int
    broker_cpu_seconds: float | None

    @property
    def records_per_second(self) -> float:
        """Acknowledged records per second, from the first call to the last outcome."""
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def megabytes_per_second(self) -> float:
        """Millions of bytes of values per second."""
        return self.payload_bytes / self.seconds / 1e6 if self.seconds else 0.0

    @property
    def cpu_us_per_record(self) -> float:
        """Microseconds of CPU time, of all threads of the process, per acknowledged record."""
        return 1e6 * self.cpu_seconds / self.records if self.records else 0.0

    @property
    def records_per_batch(self) -> float:
        """The average number of acknowledged records in a batch."""
        return self.records / self.batches if self.batches else 0.0

    @property
    def limited_by(self) -> str:
        """The resource that limited the rate, as text."""
        seconds = self.seconds or 1e-9
        own = self.cpu_seconds / seconds
        broker = (self.broker_cpu_seconds or 0.0) / seconds
        if self.rate is not None and self.records_per_second >= BUSY * self.rate:
            return "the requested rate"
        if broker >= BUSY:
            return "the embedded broker, which is written in Python and uses one core at most"
        if self.broker_cpu_seconds is not None and own + broker >= BUSY * self.cores:
            return f"{self.cores} cores, shared by producer and embedded broker"
        if own >= BUSY:
            return "the calling thread: one core"
        return "waiting for the cluster, the network or the disk"

    def as_json(self) -> dict[str, Any]:
        """Every figure by name, including those that are derived from others."""
        return asdict(self) | {
            "records_per_second": self.records_per_second,
            "megabytes_per_second": self.megabytes_per_second,
            "cpu_us_per_record": self.cpu_us_per_record,
            "records_per_batch": self.records_per_batch,
            "limited_by": self.limited_by,
        }


Progress = Callable[[int], object]
"""Called after every chunk with the number of records queued so far."""

COUNTED = ("record-send-total", "batch-total", "byte-total", "request-total", "record-retry-total")


class Measurement:
    """One run of a workload with a producer of its own. For one thread only.

    Before the run, ``warm_up`` records are sent to open connections, and to fetch metadata and the
    producer id. These records are not counted. The clock runs from the first counted record to the
    last outcome.
    """

    def __init__(
        self,
        producer: Any,
        workload: Workload,
        call: str,
        warm_up: int = 0,
        broker_cpu: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Send the warm-up records. Raises KprodError if they cannot be delivered.

        ``broker_cpu`` returns the CPU seconds of a broker that shares this machine's cores.
        """
        self._producer = producer
        self._workload = workload
        self._call_name = call
        self._most, bind = CALLS[call]
        self._send_rest = bind(producer, workload)
        self._broker_cpu = broker_cpu
        self._latencies: list[float] = []
        self._first_error: str | None = None
        self._warm_up(warm_up)
        self._before = producer.flush()
        self._counted_before = self._counters()
        self._broker_cpu_before = broker_cpu()
        self._meter = CostMeter()

    def run(self, progress: Progress) -> Measured:
        """Send everything and wait for the last outcome. Raises the KprodErrors of sending.

        After any exception, ``so_far`` returns the figures up to then.
        """
        started = time.perf_counter()
        rate, queued = self._workload.rate, 0
        for chunk in self._workload.chunks(self._most):
            asked = time.perf_counter()
            if rate is not None:
                # A record that is sent late has waited since it was due.
                asked = started + queued / rate
                time.sleep(max(0.0, asked - time.perf_counter()))
            self._send(chunk, asked)
            queued += len(chunk.values)
            progress(queued)
        return self._result(self._producer.flush(), interrupted=False)

    def so_far(self, timeout: float) -> Measured:
        """Close the producer, waiting at most ``timeout`` seconds; return the figures so far."""
        return self._result(self._producer.close(timeout), interrupted=True)

    def _warm_up(self, records: int) -> None:
        first = Workload(
            topic=self._workload.topic,
            records=records,
            values=self._workload.values,
            keys=self._workload.keys,
        )
        self._producer.partitions_for(first.topic)
        for chunk in first.chunks(self._most):
            self._send_watched(chunk, self._note_error)

    def _send(self, chunk: Chunk, asked: float) -> None:
        def on_outcome(outcome: object) -> None:
            self._latencies.append(time.perf_counter() - asked)
            self._note_error(outcome)

        self._send_watched(chunk, on_outcome)

    def _send_watched(self, chunk: Chunk, on_outcome: Callable[[object], object]) -> None:
        """Queue all records. ``on_outcome`` gets the first record's result or KprodError.

        The first record is always sent with ``send``, so that its latency means the same for every
        call. It still goes into one batch with the others.
        """
        key = None if chunk.keys is None else chunk.keys[0]
        self._producer.send(self._workload.topic, chunk.values[0], key).add_both(on_outcome)
        if len(chunk.values) > 1:
            self._send_rest(chunk)

    def _note_error(self, outcome: object) -> None:
        if isinstance(outcome, KprodError) and self._first_error is None:
            self._first_error = str(outcome)

    def _counters(self) -> dict[str, float]:
        counters: dict[str, float] = self._producer.metrics()["producer-metrics"]
        return counters

    def _result(self, report: DeliveryReport, *, interrupted: bool) -> Measured:
        cost, broker_cpu = self._meter.read(), self._broker_cost()
        counters = self._counters()
        counted = {name: counters[name] - self._counted_before[name] for name in COUNTED}
        records = report.delivered - self._before.delivered
        batches = int(counted["batch-total"])
        latencies = list(self._latencies)
        return Measured(
            records=records,
            failed=report.failed - self._before.failed,
            first_error=self._first_error,
            pending=report.pending,
            interrupted=interrupted,
            payload_bytes=self._workload.payload_bytes(records),
            seconds=cost.seconds,
            cpu_seconds=cost.cpu_seconds,
            peak_rss_bytes=cost.peak_rss_bytes,
            latency_ms=percentiles(latencies),
            latency_samples=len(latencies),
            batches=batches,
            batch_bytes=counted["byte-total"] / max(batches, 1),
            requests=int(counted["request-total"]),
            request_latency_ms=counters["request-latency-avg"],
            retries=int(counted["record-retry-total"]),
            rate=self._workload.rate,
            call=self._call_name,
            options=producer_options(self._producer.config),
            version=VERSION,
            cores=cores(),
            broker_cpu_seconds=broker_cpu,
        )

    def _broker_cost(self) -> float | None:
        now, before = self._broker_cpu(), self._broker_cpu_before
        return None if now is None or before is None else now - before

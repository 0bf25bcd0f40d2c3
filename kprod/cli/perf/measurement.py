"""Sends a workload, and keeps the account of what it cost and how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kprod.cli.circumstances import cores, producer_options
from kprod.cli.perf.calls import CALLS
from kprod.cli.perf.latencies import percentiles
from kprod.cli.perf.measured import Measured
from kprod.cli.perf.process_cost import CostMeter
from kprod.cli.perf.workload import Chunk, Workload
from kprod.errors import KprodError
from kprod.types import DeliveryReport
from kprod.version import VERSION

Progress = Callable[[int], object]
"""Told how many records were queued so far, about every chunk."""

COUNTED = ("record-send-total", "batch-total", "byte-total", "request-total", "record-retry-total")


class Measurement:
    """One run of a workload on a producer nobody else uses. Thread: one.

    ``warm_up`` records go first, and are no part of any figure: they bring connections, metadata
    and the producer's identity. The clock runs from the first record to the last outcome.
    """

    def __init__(
        self,
        producer: Any,
        workload: Workload,
        call: str,
        warm_up: int = 0,
        broker_cpu: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Sends what warms up. Raises KprodError when it cannot be delivered.

        ``broker_cpu`` tells the CPU seconds of a broker that shares this machine's cores.
        """
        self._producer = producer
        self._workload = workload
        self._call_name = call
        self._call = CALLS[call](producer, workload)
        self._broker_cpu = broker_cpu
        self._latencies: list[float] = []
        self._first_error: str | None = None
        self._warm_up(warm_up)
        self._before = producer.flush()
        self._counted_before = self._counters()
        self._broker_cpu_before = broker_cpu()
        self._meter = CostMeter()

    def run(self, progress: Progress) -> Measured:
        """Send everything and wait for the last outcome. Raises KprodError when sending does.

        After an exception, of whatever kind, ``so_far`` tells what was reached.
        """
        started = time.perf_counter()
        rate, queued = self._workload.rate, 0
        for chunk in self._workload.chunks(self._call.most):
            asked = time.perf_counter()
            if rate is not None:
                # What was late already when it was sent has waited since it was due.
                asked = started + queued / rate
                time.sleep(max(0.0, asked - time.perf_counter()))
            self._send(chunk, asked)
            queued += len(chunk.values)
            progress(queued)
        return self._result(self._producer.flush(), interrupted=False)

    def so_far(self, timeout: float) -> Measured:
        """Close the producer, waiting ``timeout`` seconds at most; return what was reached."""
        return self._result(self._producer.close(timeout), interrupted=True)

    def _warm_up(self, records: int) -> None:
        first = Workload(
            topic=self._workload.topic,
            records=records,
            values=self._workload.values,
            keys=self._workload.keys,
        )
        self._producer.partitions_for(first.topic)
        for chunk in first.chunks(self._call.most):
            self._call.send(chunk, self._note_error)

    def _send(self, chunk: Chunk, asked: float) -> None:
        def told(outcome: object) -> None:
            self._latencies.append(time.perf_counter() - asked)
            self._note_error(outcome)

        self._call.send(chunk, told)

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

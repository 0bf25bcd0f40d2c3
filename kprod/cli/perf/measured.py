"""What a measurement found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Figures of one run. ``records`` were acknowledged; rates and costs are about those.

    ``latency_ms`` has milliseconds by percentile, from the call (or, at a given rate, from when it
    was due) to the outcome, of ``latency_samples`` records. ``payload_bytes`` are bytes of values,
    ``batch_bytes`` those of an average batch on the wire. ``request_latency_ms`` is an average
    since the producer was made. ``first_error`` is the first seen among the records watched.

    What it depends on: ``rate`` (records a second that were asked for, None for all that will go),
    ``call`` and ``options`` in words, ``cores`` of this process, and the CPU time of the
    embedded broker meanwhile, None for another cluster.
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
        """Acknowledged records a second, from the first call to the last outcome."""
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def megabytes_per_second(self) -> float:
        """10^6 bytes of values a second."""
        return self.payload_bytes / self.seconds / 1e6 if self.seconds else 0.0

    @property
    def cpu_us_per_record(self) -> float:
        """Microseconds of CPU time, of all threads of the process, per acknowledged record."""
        return 1e6 * self.cpu_seconds / self.records if self.records else 0.0

    @property
    def records_per_batch(self) -> float:
        """Acknowledged records per acknowledged batch."""
        return self.records / self.batches if self.batches else 0.0

    def as_json(self) -> dict[str, Any]:
        """Every figure by name, the derived ones too."""
        return asdict(self) | {
            "records_per_second": self.records_per_second,
            "megabytes_per_second": self.megabytes_per_second,
            "cpu_us_per_record": self.cpu_us_per_record,
            "records_per_batch": self.records_per_batch,
        }

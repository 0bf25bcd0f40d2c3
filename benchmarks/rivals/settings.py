"""What every client is told, as far as it can be told."""

from __future__ import annotations

from dataclasses import dataclass

TOPIC = "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Idempotent and acks=all wherever the client can; the rest as given here.

    With ``defaults`` a client is told none of this, nor linger and size of batches: only where the
    brokers are, and, where a client limits the records of its queue, that there may be so many.

    ``compression`` is a codec or "none", ``level`` its level, None for the client's default.
    ``buffer_memory`` None leaves each client its own default. ``records`` is how many there will be
    without an outcome at the same time, at most: librdkafka refuses more than it was told.
    ``cafile`` asks for TLS, and tells whom to trust.
    """

    bootstrap_servers: str
    records: int
    defaults: bool = False
    linger_ms: int = 5
    batch_size: int = 131_072
    buffer_memory: int | None = None
    compression: str = "none"
    level: int | None = None
    cafile: str | None = None

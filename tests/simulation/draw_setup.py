"""Draws the parameters of a seed's run."""

from __future__ import annotations

import random
from typing import Any

from tests.simulation.setup import Setup

FOR_EVER_MS = 120_000


def draw_setup(rng: random.Random, *, gentle: bool) -> Setup:
    fields: dict[str, Any] = {}
    for part in (_cluster, _options, _safety):
        fields |= part(rng)
    fields |= _patience(rng, fields["linger_ms"], gentle=gentle)
    fields |= _wires(rng, hasty=fields["request_timeout_ms"] < 1000)
    # From another generator: the other choices of known seeds must stay the same.
    fields["growth"] = random.Random(repr(fields)).choice((1, 2, 3, 3))
    return Setup(**fields)


def _cluster(rng: random.Random) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "nodes": rng.choice((1, 2, 3)),
        "partitions": rng.choice(((1,), (2,), (3,), (1, 2), (2, 3))),
        "replication": rng.choice((0.0, 0.002, 0.05)),
        "metadata_lag": rng.choice((0.0, 0.0, 0.2, 1.0)),
        "produce_version": rng.choice((13, 13, 13, 13, 13, 12, 10, 9, 7, 3)),
        "metadata_version": rng.choice((13, 13, 13, 13, 12, 9, 8, 5, 4)),
        "handshake_version": rng.choice((4, 4, 4, 3, 2, 0)),
        "leader_hints": rng.random() < 0.5,
        "duplicate_code": 46 if rng.random() < 0.1 else 0,
        "max_batch_bytes": rng.choice((300, 500)) if rng.random() < 0.1 else 1 << 20,
        "append_time": rng.random() < 0.1,
        "first_epoch": rng.choice((32766, 32767)) if rng.random() < 0.1 else 0,
    }
    # With leader hints the client needs metadata with leader epochs, to know which is newer.
    drawn["leader_hints"] &= drawn["metadata_version"] >= 7
    return drawn


def _wires(rng: random.Random, *, hasty: bool) -> dict[str, Any]:
    """No small window in a slow network: each one costs a round trip."""
    latency = rng.choice((0.0005, 0.002, 0.01, 0.01 if hasty else 0.1))
    wide = 1 << 20
    return {
        "latency": latency,
        "window": rng.choice((wide, wide, 700, 150)) if latency < 0.01 else wide,
        "lost_on_close": rng.choice((0.0, 0.0, 0.5, 1.0)),
    }


def _options(rng: random.Random) -> dict[str, Any]:
    batch_size = rng.choice((150, 300, 600, 2000))
    compression = rng.choice(("gzip", "lz4", "zstd", "snappy")) if rng.random() < 0.1 else None
    return {
        "linger_ms": rng.choice((0, 5, 50)),
        "batch_size": batch_size,
        "buffer_memory": rng.choice((60_000, 60_000, 6 * batch_size + 1000)),
        "compression": compression,
        "compiled_send": rng.random() < 0.8,
        "metadata_max_age_ms": rng.choice((300_000, 300_000, 1000)),
        "metadata_max_idle_ms": 5000 if rng.random() < 0.05 else 300_000,
        "connections_max_idle_ms": 200 if rng.random() < 0.1 else 540_000,
    }


def _safety(rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.85:
        return {"max_in_flight": rng.choice((1, 2, 5, 5, 5))}
    return {
        "idempotent": False,
        "acks": rng.choice((-1, -1, 1, 0)),
        "max_in_flight": rng.choice((1, 1, 5)),
    }


def _patience(rng: random.Random, linger_ms: int, *, gentle: bool) -> dict[str, Any]:
    request_timeout_ms = rng.choice((300, 800, 1500))
    spare = rng.choice((10, 500, 3000))
    retries = rng.choice((1, 3)) if not gentle and rng.random() < 0.1 else 2**31 - 1
    return {
        "retries": retries,
        "request_timeout_ms": request_timeout_ms,
        "delivery_timeout_ms": FOR_EVER_MS if gentle else request_timeout_ms + linger_ms + spare,
        "max_block_ms": FOR_EVER_MS if gentle else rng.choice((500, 4000)),
        "retry_backoff_ms": rng.choice((10, 100)),
        "retry_backoff_max_ms": rng.choice((100, 1000)),
        "reconnect_backoff_ms": rng.choice((20, 50)),
        "reconnect_backoff_max_ms": rng.choice((100, 1000)),
    }


class Dice:
    """All random choices of a seed, from one generator."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.gentle = self.rng.random() < 0.4
        self.setup: Setup = draw_setup(self.rng, gentle=self.gentle)
        self.length = self.rng.choice((0.1, 0.5, 2.0, 6.0))
        self.busy: list[float] = []  # when records are sent

    def when(self) -> float:
        return round(self.rng.uniform(0.0, self.length), 4)

    def when_busy(self) -> float:
        """Often when requests are in flight."""
        if not self.busy or self.chance(0.4):
            return self.when()
        step = self.setup.linger_ms / 1000 + 3 * self.setup.latency + self.setup.replication
        return round(self.rng.choice(self.busy) + step * self.rng.uniform(0.0, 2.0), 4)

    def span(self) -> float:
        """A duration, from very short to longer than a request may take."""
        timeout = self.setup.request_timeout_ms / 1000
        return round(self.rng.choice((0.01, 0.1, 0.5 * timeout, 1.2 * timeout, 3 * timeout)), 4)

    def node(self) -> int:
        return self.rng.randrange(self.setup.nodes)

    def topic(self) -> int:
        return self.rng.randrange(len(self.setup.partitions))

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

"""The parameters of one run: the cluster, the network and the producer's options."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, repr=False)
class Setup:
    """Times of the simulation are in seconds, the producer's options in milliseconds."""

    # The cluster
    nodes: int = 1
    partitions: tuple[int, ...] = (2,)  # of topic 0, 1, ...
    replication: float = 0.002  # until the leader's records are committed
    metadata_lag: float = 0.0  # until every broker knows of a change
    produce_version: int = 13
    metadata_version: int = 13
    handshake_version: int = 4
    leader_hints: bool = True
    duplicate_code: int = 0  # of a repeated batch: 0, or 46 by old brokers
    max_batch_bytes: int = 1 << 20
    append_time: bool = False
    first_epoch: int = 0
    # The wires
    latency: float = 0.001
    service: float = 0.0005  # from reading a request to carrying it out
    window: int = 1 << 20  # bytes in flight until the sender's socket is full
    lost_on_close: float = 0.0  # how often bytes in flight are lost on close
    mean_bytes: int = 0  # mean number of bytes until a connection breaks; 0: never
    rate: int = 0  # bytes a second to brokers, over all connections; 0: unlimited
    # The producer
    idempotent: bool = True
    acks: int = -1
    max_in_flight: int = 5
    retries: int = 2**31 - 1
    linger_ms: int = 5
    batch_size: int = 600
    growth: int = 1  # a batch that cannot leave grows to this many times its size
    buffer_memory: int = 60_000
    compression: str | None = None
    compiled_send: bool = True
    request_timeout_ms: int = 1500
    delivery_timeout_ms: int = 6000
    max_block_ms: int = 4000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1000
    metadata_max_age_ms: int = 300_000
    metadata_max_idle_ms: int = 300_000
    connections_max_idle_ms: int = 540_000

    def __repr__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {field.name: field.default for field in fields(self)}
        changed = [f"{name}={value!r}" for name, value in values.items() if value != plain[name]]
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def is_poor(self) -> bool:
        return bool(self.mean_bytes or self.rate)

    @property
    def max_request_size(self) -> int:
        return max(self.batch_size * max(3, self.growth), 2000)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(f"topic-{number}" for number in range(len(self.partitions)))

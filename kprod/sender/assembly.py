"""Assembly of a sender: every part receives values, none the configuration."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from kprod.buffer.accumulator import RecordAccumulator
from kprod.buffer.callbacks import Callbacks
from kprod.buffer.compression import CODEC_IDS, compressor
from kprod.buffer.queue_settings import QueueSettings
from kprod.clock import Clock, ExponentialBackoff
from kprod.cluster.metadata import Metadata, MetadataListener
from kprod.config import ProducerConfig
from kprod.config.topic_options import TopicOptions
from kprod.metrics import ProducerMetrics
from kprod.security.composition import mechanism_of, open_network, steps_of
from kprod.sender.coordination import Coordination
from kprod.sender.leadership import SenderLeadership
from kprod.sender.link import LinkSettings
from kprod.sender.login import LoginSettings
from kprod.sender.loop import IdentitySource, Sender
from kprod.sender.network import Network
from kprod.sender.outcomes import Outcomes
from kprod.sender.process import refuse_green_threads
from kprod.sender.rounds.identity import IdentityRound
from kprod.sender.rounds.metadata import MetadataRound
from kprod.sender.rounds.produce import LoadWatcher, ProduceRound, ProduceSettings
from kprod.sender.rounds.telemetry import Telemetry, TelemetryRound
from kprod.sender.rounds.transaction import TransactionRound
from kprod.sender.sequences import ProducerIdentity, Sequences
from kprod.sender.telemetry_payload import TelemetryPayload
from kprod.sender.transactions import Transactions
from kprod.sender.trouble_log import UnreadFailures
from kprod.wire.versions import ApiKey, ApiVersions
from kprod_ext import BufferPool, RecordClock

VersionsWatcher: TypeAlias = Callable[[ApiVersions], None]

RENEWED_AT = (0.85, 0.95)
"""Between which parts of its lifetime a login is repeated (Kafka: the same)."""


def assemble(
    config: ProducerConfig,
    metrics: ProducerMetrics,
    clock: Clock,
    rng: random.Random | None = None,
    load_watcher: LoadWatcher | None = None,
    callbacks: Callbacks | None = None,
    record_clock: RecordClock | None = None,
) -> Sender:
    """A sender that is ready for its first turn. Opens a backend, connects to nothing yet.

    Raises IllegalStateError on green threads.

    ``rng`` makes every random choice; with one of its own a run can be repeated. ``load_watcher``
    is told in every turn how much waits for each partition. ``callbacks`` runs those of the
    futures; None: the turns of the sender do. ``record_clock`` stamps records;
    None: one that asks ``clock``.
    """
    refuse_green_threads()
    rng = rng or random.Random()
    retry_backoff = _backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
    metadata = Metadata(
        clock=clock,
        max_age=config.metadata_max_age_ms / 1000,
        max_idle=config.metadata_max_idle_ms / 1000,
        backoff=retry_backoff,
    )
    transactions = _transactions(config)
    telemetry = Telemetry(rng.uniform) if config.enable_metrics_push else None
    watchers = [part.told for part in (transactions, telemetry) if part is not None]
    network = _network(config, metrics, clock, metadata, rng, watchers)
    leadership = SenderLeadership(network, clock)
    metadata.subscribe(MetadataListener(wanted=leadership.wake))
    told = (leadership, callbacks, record_clock)
    accumulator = _accumulator(config, metrics, retry_backoff, clock, *told, transactions)
    identity = ProducerIdentity()
    coordination = None
    if transactions is not None:
        coordination = Coordination(transactions, identity, lambda: outcomes.drained)
    sequences = _sequences(config, identity, coordination)
    outcomes = _outcomes(config, accumulator, metadata, sequences, metrics, network, clock)
    parts = (accumulator, metadata, network, sequences, outcomes, _produce_settings(config))
    identity_round: IdentitySource = IdentityRound(sequences, network, retry_backoff)
    if transactions is not None and coordination is not None:
        others = (identity, accumulator, outcomes, metadata, network, retry_backoff)
        identity_round = TransactionRound(transactions, coordination, *others)
    metrics.look_up(partial(_gauges, metrics, accumulator, metadata, network))
    return Sender(
        accumulator,
        metadata,
        network,
        _metadata_round(config, metadata, network),
        identity_round,
        ProduceRound(*parts, load_watcher),
        clock,
        leadership,
        transactions,
        _telemetry_round(config, telemetry, network, metrics, clock),
    )


def _gauges(
    metrics: ProducerMetrics,
    accumulator: RecordAccumulator,
    metadata: Metadata,
    network: Network,
    now: float,
) -> dict[str, float]:
    """The metrics that nothing counts, by name. Any thread."""
    pool = accumulator.pool
    return {
        "buffer-total-bytes": pool.total,
        "buffer-available-bytes": pool.available,
        "waiting-threads": pool.waiting,
        "bufferpool-wait-time-ns-total": 1e9 * pool.waited,
        "requests-in-flight": network.in_flight,
        "connection-count": metrics.connections,
        "metadata-age": metadata.age(now),
    }


def _telemetry_round(
    config: ProducerConfig,
    telemetry: Telemetry | None,
    network: Network,
    metrics: ProducerMetrics,
    clock: Clock,
) -> TelemetryRound | None:
    if telemetry is None:
        return None
    named = config.transactional_id
    resource = {} if named is None else {"transactional_id": named}
    payload = TelemetryPayload(clock.wall_ms() * 1_000_000, resource)
    return TelemetryRound(telemetry, payload, network, metrics.groups, clock)


def _outcomes(
    config: ProducerConfig,
    accumulator: RecordAccumulator,
    metadata: Metadata,
    sequences: Sequences,
    metrics: ProducerMetrics,
    network: Network,
    clock: Clock,
) -> Outcomes:
    return Outcomes(
        accumulator,
        metadata,
        sequences,
        metrics,
        retries=config.retries,
        delivery_timeout=config.delivery_timeout_ms / 1000,
        trouble_with=network.trouble,
        troubles=network.troubles,
        unread=UnreadFailures(config.client_id, clock.monotonic),
    )


def _network(
    config: ProducerConfig,
    metrics: ProducerMetrics,
    clock: Clock,
    metadata: Metadata,
    rng: random.Random,
    watchers: Sequence[VersionsWatcher],
) -> Network:
    return Network(
        open_network(config),
        config.bootstrap_servers,
        _link_settings(config, rng, watchers),
        metrics,
        clock,
        metadata.connection_failed,
        rng,
        goes_back=config.metadata_recovery_strategy == "rebootstrap",
    )


def _produce_settings(config: ProducerConfig) -> ProduceSettings:
    return ProduceSettings(
        config.request_timeout_ms,
        config.delivery_timeout_ms / 1000,
        config.max_request_size,
        config.max_in_flight_requests_per_connection,
    )


def _metadata_round(config: ProducerConfig, metadata: Metadata, network: Network) -> MetadataRound:
    rebootstraps = config.metadata_recovery_strategy == "rebootstrap"
    after = config.metadata_recovery_rebootstrap_trigger_ms / 1000
    return MetadataRound(
        metadata,
        network,
        allow_auto_create=config.allow_auto_create_topics,
        rebootstrap_after=after if rebootstraps else float("inf"),
    )


def _accumulator(
    config: ProducerConfig,
    metrics: ProducerMetrics,
    retry_backoff: ExponentialBackoff,
    clock: Clock,
    leadership: SenderLeadership,
    callbacks: Callbacks | None,
    record_clock: RecordClock | None,
    transactions: Transactions | None,
) -> RecordAccumulator:
    return RecordAccumulator(
        BufferPool(config.buffer_memory, config.batch_size),
        clock=clock,
        batch_size=config.batch_size,
        batch_max_size=config.batch_max_size,
        settings=_settings_by_topic(config),
        retry_backoff=retry_backoff,
        wake=leadership.wake,
        look_within=leadership.look_within,
        wait=leadership.wait,
        callbacks=callbacks,
        record_clock=record_clock,
        exhausted=metrics.found_no_room,
        refusal=None if transactions is None else transactions.refusal,
    )


def _sequences(
    config: ProducerConfig, identity: ProducerIdentity, transaction: Coordination | None
) -> Sequences:
    return Sequences(
        idempotent=config.enable_idempotence,
        max_in_flight=config.max_in_flight_requests_per_connection,
        identity=identity,
        transaction=transaction,
    )


def _settings_by_topic(config: ProducerConfig) -> Callable[[str], QueueSettings]:
    usual = _queue_settings(config)
    own = {options.topic: _queue_settings(options) for options in config.topic_options}
    return lambda topic: own.get(topic, usual)


def _queue_settings(options: ProducerConfig | TopicOptions) -> QueueSettings:
    codec = options.compression_type or "none"
    return QueueSettings(
        linger=options.linger_ms / 1000,
        acks=options.acks,
        codec=CODEC_IDS[codec],
        compress=compressor(codec, options.compression_level),
    )


def _transactions(config: ProducerConfig) -> Transactions | None:
    if config.transactional_id is None:
        return None
    return Transactions(config.transactional_id, config.transaction_timeout_ms)


def _link_settings(
    config: ProducerConfig, rng: random.Random, watchers: Sequence[VersionsWatcher]
) -> LinkSettings:
    return LinkSettings(
        client_id=config.client_id,
        max_in_flight=config.max_in_flight_requests_per_connection,
        max_frame_bytes=config.receive_message_max_bytes,
        request_timeout=config.request_timeout_ms / 1000,
        setup=_backoff(
            config.socket_connection_setup_timeout_ms,
            config.socket_connection_setup_timeout_max_ms,
            rng,
        ),
        idle_timeout=config.connections_max_idle_ms / 1000,
        reconnect=_backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, rng),
        needed=_needed(config),
        login=_login(config, rng),
        on_versions=_all_of(watchers),
    )


def _all_of(watchers: Sequence[VersionsWatcher]) -> VersionsWatcher | None:
    def tell(versions: ApiVersions) -> None:
        for watcher in watchers:
            watcher(versions)

    return tell if watchers else None


def _login(config: ProducerConfig, rng: random.Random) -> Callable[[str], LoginSettings] | None:
    mechanism = mechanism_of(config)
    if mechanism is None:
        return None
    part = partial(rng.uniform, *RENEWED_AT)
    steps = steps_of(mechanism)
    return lambda host: LoginSettings(mechanism.name, partial(steps, host), part)


def _needed(config: ProducerConfig) -> tuple[ApiKey, ...]:
    identity = (ApiKey.INIT_PRODUCER_ID,) if config.enable_idempotence else ()
    return (ApiKey.METADATA, ApiKey.PRODUCE, *identity)


def _backoff(initial_ms: float, maximum_ms: float, rng: random.Random) -> ExponentialBackoff:
    return ExponentialBackoff(initial_ms / 1000, maximum_ms / 1000, rng)

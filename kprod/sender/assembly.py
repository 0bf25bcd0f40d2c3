"""Assembly of a sender: every part receives values, none the configuration."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from kprod.buffer.accumulator import QueueSettings, RecordAccumulator
from kprod.buffer.callbacks import Callbacks
from kprod.buffer.compression import CODEC_IDS, compressor
from kprod.clock import Clock, ExponentialBackoff
from kprod.cluster.metadata import Metadata, MetadataListener
from kprod.config import ProducerConfig
from kprod.config.topic_options import TopicOptions
from kprod.metrics import ProducerMetrics
from kprod.security.composition import mechanism_of, open_network, steps_of
from kprod.sender.connection_log import UnreadFailures
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
from kprod.sender.rounds.produce import LoadWatcher, ProduceRound
from kprod.sender.rounds.telemetry import Telemetry, TelemetryPayload, TelemetryRound
from kprod.sender.rounds.transaction import TransactionRound
from kprod.sender.sequences import ProducerIdentity, Sequences
from kprod.sender.transactions import Transactions
from kprod.wire.versions import ApiKey, ApiVersions
from kprod_ext import BufferPool, RecordClock

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
    parts = _Parts(config, metrics, clock, rng or random.Random(), callbacks, record_clock)
    return Sender(
        parts.accumulator,
        parts.metadata,
        parts.network,
        parts.metadata_round(),
        parts.identity_round(),
        parts.produce_round(load_watcher),
        clock,
        parts.leadership,
        parts.transactions,
        parts.telemetry_round(),
    )


class _Parts:
    """The parts that the rounds of a sender share, each made of those before it."""

    def __init__(
        self,
        config: ProducerConfig,
        metrics: ProducerMetrics,
        clock: Clock,
        rng: random.Random,
        callbacks: Callbacks | None,
        record_clock: RecordClock | None,
    ) -> None:
        self._config, self._metrics, self._clock, self._rng = config, metrics, clock, rng
        self._retry_backoff = self._backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._goes_back = config.metadata_recovery_strategy == "rebootstrap"
        self._telemetry = Telemetry(rng.uniform) if config.enable_metrics_push else None
        self.transactions: Transactions | None = None
        if config.transactional_id is not None:
            timeout_ms = config.transaction_timeout_ms
            self.transactions = Transactions(config.transactional_id, timeout_ms)
        self.metadata = Metadata(
            clock=clock,
            max_age=config.metadata_max_age_ms / 1000,
            max_idle=config.metadata_max_idle_ms / 1000,
            backoff=self._retry_backoff,
        )
        self.network = self._network()
        self.leadership = SenderLeadership(self.network, clock)
        self.metadata.subscribe(MetadataListener(wanted=self.leadership.wake))
        self.accumulator = self._accumulator(callbacks, record_clock)
        self._identity = ProducerIdentity()
        self._coordination: Coordination | None = None
        if self.transactions is not None:
            drained = partial(_drained, self)
            self._coordination = Coordination(self.transactions, self._identity, drained)
        self._sequences = Sequences(
            idempotent=config.enable_idempotence,
            max_in_flight=config.max_in_flight_requests_per_connection,
            identity=self._identity,
            transaction=self._coordination,
        )
        self.outcomes = self._outcomes()
        metrics.look_up(partial(_gauges, metrics, self.accumulator, self.metadata, self.network))

    def _backoff(self, initial_ms: float, maximum_ms: float) -> ExponentialBackoff:
        return ExponentialBackoff(initial_ms / 1000, maximum_ms / 1000, self._rng)

    # The rounds -----------------------------------------------------------------------------------

    def metadata_round(self) -> MetadataRound:
        after = self._config.metadata_recovery_rebootstrap_trigger_ms / 1000
        return MetadataRound(
            self.metadata,
            self.network,
            allow_auto_create=self._config.allow_auto_create_topics,
            busy_topics=self.outcomes.busy_topics,
            rebootstrap_after=after if self._goes_back else float("inf"),
        )

    def identity_round(self) -> IdentitySource:
        if self.transactions is None or self._coordination is None:
            return IdentityRound(self._sequences, self.network, self._retry_backoff)
        return TransactionRound(
            self.transactions,
            self._coordination,
            self._identity,
            self.accumulator,
            self.outcomes,
            self.metadata,
            self.network,
            self._retry_backoff,
        )

    def produce_round(self, load_watcher: LoadWatcher | None) -> ProduceRound:
        return ProduceRound(
            self.accumulator,
            self.metadata,
            self.network,
            self._sequences,
            self.outcomes,
            request_timeout_ms=self._config.request_timeout_ms,
            delivery_timeout=self._config.delivery_timeout_ms / 1000,
            max_request_size=self._config.max_request_size,
            max_in_flight=self._config.max_in_flight_requests_per_connection,
            load_watcher=load_watcher,
        )

    def telemetry_round(self) -> TelemetryRound | None:
        if self._telemetry is None:
            return None
        named = self._config.transactional_id
        resource = {} if named is None else {"transactional_id": named}
        payload = TelemetryPayload(self._clock.wall_ms() * 1_000_000, resource)
        measure = self._metrics.groups
        return TelemetryRound(self._telemetry, payload, self.network, measure, self._clock)

    # What they share ------------------------------------------------------------------------------

    def _network(self) -> Network:
        config = self._config
        return Network(
            open_network(config),
            config.bootstrap_servers,
            self._link_settings(),
            self._metrics,
            self._clock,
            self.metadata.connection_failed,
            self._rng,
            goes_back=self._goes_back,
        )

    def _link_settings(self) -> LinkSettings:
        config = self._config
        identity = (ApiKey.INIT_PRODUCER_ID,) if config.enable_idempotence else ()
        return LinkSettings(
            client_id=config.client_id,
            max_in_flight=config.max_in_flight_requests_per_connection,
            max_frame_bytes=config.receive_message_max_bytes,
            request_timeout=config.request_timeout_ms / 1000,
            setup=self._backoff(
                config.socket_connection_setup_timeout_ms,
                config.socket_connection_setup_timeout_max_ms,
            ),
            idle_timeout=config.connections_max_idle_ms / 1000,
            reconnect=self._backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
            needed=(ApiKey.METADATA, ApiKey.PRODUCE, *identity),
            login=self._login(),
            on_versions=self._learn_versions,
        )

    def _learn_versions(self, versions: ApiVersions) -> None:
        if self.transactions is not None:
            self.transactions.told(versions)
        if self._telemetry is not None:
            self._telemetry.told(versions)

    def _login(self) -> Callable[[str], LoginSettings] | None:
        mechanism = mechanism_of(self._config)
        if mechanism is None:
            return None
        part = partial(self._rng.uniform, *RENEWED_AT)
        steps = steps_of(mechanism)
        return lambda host: LoginSettings(mechanism.name, partial(steps, host), part)

    def _accumulator(
        self, callbacks: Callbacks | None, record_clock: RecordClock | None
    ) -> RecordAccumulator:
        config, transactions = self._config, self.transactions
        usual = _queue_settings(config)
        own = {options.topic: _queue_settings(options) for options in config.topic_options}
        return RecordAccumulator(
            BufferPool(config.buffer_memory, config.batch_size),
            clock=self._clock,
            batch_size=config.batch_size,
            batch_max_size=config.batch_max_size,
            settings=lambda topic: own.get(topic, usual),
            retry_backoff=self._retry_backoff,
            wake=self.leadership.wake,
            look_within=self.leadership.look_within,
            wait=self.leadership.wait,
            callbacks=callbacks,
            record_clock=record_clock,
            exhausted=self._metrics.found_no_room,
            refusal=None if transactions is None else transactions.refusal,
        )

    def _outcomes(self) -> Outcomes:
        return Outcomes(
            self.accumulator,
            self.metadata,
            self._sequences,
            self._metrics,
            retries=self._config.retries,
            delivery_timeout=self._config.delivery_timeout_ms / 1000,
            trouble_with=self.network.trouble,
            log=self.network.log,
            unread=UnreadFailures(self._config.client_id, self._clock.monotonic),
        )


def _drained(parts: _Parts) -> bool:
    return parts.outcomes.drained


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


def _queue_settings(options: ProducerConfig | TopicOptions) -> QueueSettings:
    codec = options.compression_type or "none"
    return QueueSettings(
        linger=options.linger_ms / 1000,
        acks=options.acks,
        codec=CODEC_IDS[codec],
        compress=compressor(codec, options.compression_level),
    )

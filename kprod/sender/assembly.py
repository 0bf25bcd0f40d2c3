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
from kprod.sender.broker import BrokerSettings
from kprod.sender.connection_log import UnobservedFailures
from kprod.sender.coordination import Coordination
from kprod.sender.deadlines import Deadlines
from kprod.sender.login import LoginSettings
from kprod.sender.loop import Sender
from kprod.sender.loop_owner import LoopOwner
from kprod.sender.metadata import MetadataRequests
from kprod.sender.network import Network
from kprod.sender.outcomes import Outcomes
from kprod.sender.partitions import PartitionSet, Window
from kprod.sender.process import refuse_green_threads
from kprod.sender.produce import LoadWatcher, ProduceRequests
from kprod.sender.producer_id import ProducerIdRequests
from kprod.sender.telemetry import Telemetry, TelemetryPayload
from kprod.sender.transactions import Transactions
from kprod.wire.control import KPROD
from kprod.wire.versions import ApiKey, ApiVersions
from kprod_ext import BufferPool, RecordClock

RENEWED_AT = (0.85, 0.95)
"""Between which parts of its lifetime a login is repeated (Kafka: the same)."""
SLOW = 0.25
"""Of ``request_timeout_ms``: twice as many bytes still arrive when the network becomes half as fast
as it was when an answer took that long."""


def assemble(
    config: ProducerConfig,
    metrics: ProducerMetrics,
    clock: Clock,
    rng: random.Random | None = None,
    load_watcher: LoadWatcher | None = None,
    callbacks: Callbacks | None = None,
    record_clock: RecordClock | None = None,
) -> Sender:
    """A sender that is ready to run. Opens a backend, connects to nothing yet.

    Raises IllegalStateError on green threads.

    ``rng`` makes every random choice; with one of its own a run can be repeated. ``load_watcher``
    is notified of queues and of brokers that are full. ``callbacks`` runs those of the futures;
    None: the sender does. ``record_clock`` stamps records;
    None: one that asks ``clock``.
    """
    refuse_green_threads()
    parts = _Parts(config, metrics, clock, rng or random.Random(), callbacks, record_clock)
    return Sender(
        parts.outcomes,
        parts.network,
        parts.metadata_requests(),
        parts.produce_requests(load_watcher),
        clock,
        parts.loop_owner,
        transactions=parts.transactions,
        telemetry=parts.telemetry,
    )


def broker_settings(
    config: ProducerConfig,
    rng: random.Random,
    *,
    needed: tuple[ApiKey, ...],
    on_versions: Callable[[ApiVersions], None] | None = None,
) -> BrokerSettings:
    """The settings of connections, of a producer or another client. See ``BrokerSettings``."""
    return BrokerSettings(
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
        needed=needed,
        login=_login(config, rng),
        on_versions=on_versions,
        software=(
            config.client_software_name or KPROD[0],
            config.client_software_version or KPROD[1],
        ),
    )


def _login(config: ProducerConfig, rng: random.Random) -> Callable[[str], LoginSettings] | None:
    mechanism = mechanism_of(config)
    if mechanism is None:
        return None
    part = partial(rng.uniform, *RENEWED_AT)
    steps = steps_of(mechanism)
    return lambda host: LoginSettings(mechanism.name, partial(steps, host), part)


def _backoff(initial_ms: float, maximum_ms: float, rng: random.Random) -> ExponentialBackoff:
    return ExponentialBackoff(initial_ms / 1000, maximum_ms / 1000, rng)


class _Parts:
    """The parts of a sender, each made of those before it."""

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
        self._retry_backoff = _backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._goes_back = config.metadata_recovery_strategy == "rebootstrap"
        self.deadlines = Deadlines()
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
        self.loop_owner = LoopOwner(self.network, clock)
        self.metadata.subscribe(MetadataListener(wanted=self.loop_owner.wake))
        self.accumulator = self._accumulator(callbacks, record_clock)
        self.partitions = PartitionSet(
            self.accumulator,
            self.deadlines,
            idempotent=config.enable_idempotence,
            max_in_flight=config.max_in_flight_requests_per_connection,
            delivery_timeout=config.delivery_timeout_ms / 1000,
            retry_backoff=self._retry_backoff,
            new_window=self._new_window,
        )
        self.outcomes = self._outcomes()
        self._ask_for_identity()
        self.telemetry = self._telemetry() if config.enable_metrics_push else None
        metrics.look_up(partial(_gauges, metrics, self.accumulator, self.metadata, self.network))

    def _new_window(self) -> Window:
        config = self._config
        most = config.max_in_flight_requests_per_connection * config.max_request_size
        return Window(config.batch_size, most, config.request_timeout_ms / 1000 * SLOW)

    # Who sends requests ---------------------------------------------------------------------------

    def metadata_requests(self) -> MetadataRequests:
        after = self._config.metadata_recovery_rebootstrap_trigger_ms / 1000
        return MetadataRequests(
            self.metadata,
            self.network,
            self.deadlines,
            allow_auto_create=self._config.allow_auto_create_topics,
            busy_topics=self.outcomes.busy_topics,
            rebootstrap_after=after if self._goes_back else float("inf"),
        )

    def _ask_for_identity(self) -> None:
        parts = self.network, self.deadlines, self._retry_backoff
        if self.transactions is None:
            ProducerIdRequests(self.partitions, *parts)
        else:
            Coordination(self.transactions, self.outcomes, self.metadata, *parts)

    def produce_requests(self, load_watcher: LoadWatcher | None) -> ProduceRequests:
        if load_watcher is not None:
            load_watcher.watch(self.partitions)
        return ProduceRequests(
            self.outcomes,
            self.network,
            request_timeout_ms=self._config.request_timeout_ms,
            max_request_size=self._config.max_request_size,
            load_watcher=load_watcher,
        )

    def _telemetry(self) -> Telemetry:
        named = self._config.transactional_id
        resource = {} if named is None else {"transactional_id": named}
        payload = TelemetryPayload(self._clock.wall_ms() * 1_000_000, resource)
        measure = self._metrics.groups
        return Telemetry(
            payload, self.network, self.deadlines, measure, self._clock, self._rng.uniform
        )

    # What they share ------------------------------------------------------------------------------

    def _network(self) -> Network:
        config = self._config
        identity = (ApiKey.INIT_PRODUCER_ID,) if config.enable_idempotence else ()
        needed = (ApiKey.METADATA, ApiKey.PRODUCE, *identity)
        return Network(
            open_network(config),
            config.bootstrap_servers,
            broker_settings(config, self._rng, needed=needed, on_versions=self._learn_versions),
            self._metrics,
            self._clock,
            self.metadata.connection_failed,
            self._rng,
            goes_back=self._goes_back,
            deadlines=self.deadlines,
        )

    def _learn_versions(self, versions: ApiVersions) -> None:
        if self.transactions is not None:
            self.transactions.on_api_versions(versions)
        if self.telemetry is not None:
            self.telemetry.on_api_versions(versions)

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
            wake=self.loop_owner.wake,
            look_within=self.loop_owner.look_within,
            wait=self.loop_owner.wait,
            callbacks=callbacks,
            record_clock=record_clock,
            exhausted=self._metrics.found_no_room,
            refusal=None if transactions is None else transactions.refusal,
        )

    def _outcomes(self) -> Outcomes:
        return Outcomes(
            self.accumulator,
            self.metadata,
            self.partitions,
            self._metrics,
            retries=self._config.retries,
            delivery_timeout=self._config.delivery_timeout_ms / 1000,
            trouble_with=self.network.trouble,
            log=self.network.log,
            unread=UnobservedFailures(self._config.client_id, self._clock.monotonic),
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


def _queue_settings(options: ProducerConfig | TopicOptions) -> QueueSettings:
    codec = options.compression_type or "none"
    return QueueSettings(
        linger=options.linger_ms / 1000,
        acks=options.acks,
        codec=CODEC_IDS[codec],
        compress=compressor(codec, options.compression_level),
    )

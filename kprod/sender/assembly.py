"""Assembly of a sender. Its parts receive single values instead of the configuration."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
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
from kprod.sender.connection import BrokerSettings
from kprod.sender.coordination import Coordination
from kprod.sender.login import LoginSettings
from kprod.sender.loop import LoopOwner, Sender
from kprod.sender.network import Network
from kprod.sender.partitions import PartitionSet
from kprod.sender.requests import MetadataRequests, ProducerIdRequests
from kprod.sender.transactions import Transactions
from kprod.wire.control import KPROD
from kprod.wire.versions import ApiKey
from kprod_ext import BufferPool, RecordClock

RENEWED_AT = (0.85, 0.95)
"""A login is repeated after a part of its lifetime that lies between these two, as in Kafka."""
SLOW = 0.25
"""Part of ``request_timeout_ms`` after which an answer counts as slow. A request of twice the size
would then still be answered in time if the network became half as fast."""


def assemble(
    config: ProducerConfig,
    metrics: ProducerMetrics,
    clock: Clock,
    rng: random.Random | None = None,
    nodes_wait: Callable[[Collection[int], float], None] | None = None,
    callbacks: Callbacks | None = None,
    record_clock: RecordClock | None = None,
) -> Sender:
    """Make a sender that is ready to run. It opens a backend, but no connection yet.

    ``rng`` makes every random choice: a run with the same seed can be repeated. ``nodes_wait``: see
    ``PartitionSet``. ``callbacks`` runs the callbacks of futures; None: the sender runs them.
    ``record_clock`` gives records their timestamps; None: ``clock`` does.
    """
    rng = rng or random.Random()
    retry_backoff = _backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
    metadata = Metadata(
        clock=clock,
        max_age=config.metadata_max_age_ms / 1000,
        max_idle=config.metadata_max_idle_ms / 1000,
        backoff=retry_backoff,
    )
    identity = (ApiKey.INIT_PRODUCER_ID,) if config.enable_idempotence else ()
    needed = (ApiKey.METADATA, ApiKey.PRODUCE, *identity)
    network = Network(
        open_network(config),
        config.bootstrap_servers,
        broker_settings(config, rng, needed=needed),
        metrics,
        clock,
        metadata.connection_failed,
        rng,
        goes_back=config.metadata_recovery_strategy == "rebootstrap",
    )
    loop_owner = LoopOwner(network)
    metadata.subscribe(MetadataListener(wanted=loop_owner.wake, forgotten=metrics.forget))
    transactions: Transactions | None = None
    if config.transactional_id is not None:
        transactions = Transactions(config.transactional_id, config.transaction_timeout_ms)
        network.settings.learners.append(transactions.on_api_versions)
    accumulator = RecordAccumulator(
        BufferPool(config.buffer_memory, config.batch_size),
        clock=clock,
        batch_size=config.batch_size,
        batch_max_size=config.batch_max_size,
        settings=_settings_by_topic(config),
        wake=loop_owner.wake,
        wake_within=loop_owner.wake_within,
        wait=loop_owner.wait,
        callbacks=callbacks,
        record_clock=record_clock,
        exhausted=metrics.found_no_room,
        refusal=None if transactions is None else transactions.refusal,
    )
    partitions = PartitionSet(
        accumulator,
        metadata,
        network,
        metrics,
        idempotent=config.enable_idempotence,
        max_in_flight=config.max_in_flight_requests_per_connection,
        delivery_timeout=config.delivery_timeout_ms / 1000,
        retries=config.retries,
        retry_backoff=retry_backoff,
        request_timeout_ms=config.request_timeout_ms,
        max_request_size=config.max_request_size,
        nodes_wait=nodes_wait,
    )
    if transactions is None:
        ProducerIdRequests(partitions)
    else:
        Coordination(transactions, partitions)

    def gauges(now: float) -> dict[str, float]:
        """The metrics that are measured when they are read, by name. Any thread."""
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

    metrics.look_up(gauges)
    return Sender(
        partitions,
        MetadataRequests(
            partitions,
            allow_auto_create=config.allow_auto_create_topics,
            rebootstrap_after=config.metadata_recovery_rebootstrap_trigger_ms / 1000,
        ),
        loop_owner,
        transactions=transactions,
    )


def broker_settings(
    config: ProducerConfig, rng: random.Random, *, needed: tuple[ApiKey, ...]
) -> BrokerSettings:
    """The settings of the connections of a producer or of another client."""
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
        software=(
            config.client_software_name or KPROD[0],
            config.client_software_version or KPROD[1],
        ),
        window=(
            config.batch_size,
            config.max_in_flight_requests_per_connection * config.max_request_size,
            config.request_timeout_ms / 1000 * SLOW,
        ),
    )


def _login(config: ProducerConfig, rng: random.Random) -> LoginSettings | None:
    mechanism = mechanism_of(config)
    if mechanism is None:
        return None
    return LoginSettings(mechanism.name, steps_of(mechanism), partial(rng.uniform, *RENEWED_AT))


def _backoff(initial_ms: float, maximum_ms: float, rng: random.Random) -> ExponentialBackoff:
    return ExponentialBackoff(initial_ms / 1000, maximum_ms / 1000, rng)


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

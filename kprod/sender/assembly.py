"""Puts a sender together: every part receives values, none the configuration."""

from __future__ import annotations

import random
from collections.abc import Callable

from kprod.backoff import ExponentialBackoff
from kprod.buffer.accumulator import RecordAccumulator
from kprod.buffer.callbacks import Callbacks
from kprod.buffer.compression import CODEC_IDS, compressor
from kprod.buffer.queue_settings import QueueSettings
from kprod.clock import Clock
from kprod.cluster.metadata import Metadata
from kprod.config import ProducerConfig
from kprod.config.topic_options import TopicOptions
from kprod.metrics import ProducerMetrics
from kprod.sender.baton import Baton
from kprod.sender.link import LinkSettings
from kprod.sender.load_watcher import LoadWatcher
from kprod.sender.loop import Sender
from kprod.sender.network import Network
from kprod.sender.outcomes import Outcomes
from kprod.sender.rounds.identity import IdentityRound
from kprod.sender.rounds.metadata import MetadataRound
from kprod.sender.rounds.produce import ProduceRound, ProduceSettings
from kprod.sender.sequences import Sequences
from kprod.transport.base import Backend, open_backend
from kprod_ext import BufferPool


def assemble(
    config: ProducerConfig,
    metrics: ProducerMetrics,
    clock: Clock,
    rng: random.Random | None = None,
    load_watcher: LoadWatcher | None = None,
    callbacks: Callbacks | None = None,
) -> Sender:
    """A sender that is ready for its first turn. Opens a backend, connects to nothing yet.

    ``rng`` makes every random choice; with one of its own a run can be repeated. ``load_watcher``
    is told in every turn how much waits for each partition. ``callbacks`` runs those of the
    futures; None: whoever drives the sender does, in its turn.
    """
    rng = rng or random.Random()
    retry_backoff = _backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
    metadata = Metadata(
        clock=clock,
        max_age=config.metadata_max_age_ms / 1000,
        max_idle=config.metadata_max_idle_ms / 1000,
        backoff=retry_backoff,
    )
    network = _network(config, metrics, clock, metadata, rng)
    baton = Baton(network, clock)
    accumulator = _accumulator(config, retry_backoff, clock, baton, callbacks)
    sequences = _sequences(config)
    delivery_timeout = config.delivery_timeout_ms / 1000
    outcomes = Outcomes(
        accumulator,
        metadata,
        sequences,
        metrics,
        retries=config.retries,
        delivery_timeout=delivery_timeout,
        trouble_with=network.trouble,
    )
    settings = ProduceSettings(
        request_timeout_ms=config.request_timeout_ms,
        delivery_timeout=delivery_timeout,
        max_request_size=config.max_request_size,
    )
    return Sender(
        accumulator,
        metadata,
        network,
        _metadata_round(config, metadata, network),
        IdentityRound(sequences, network, retry_backoff),
        ProduceRound(accumulator, metadata, network, sequences, outcomes, settings, load_watcher),
        clock,
        baton,
    )


def _network(
    config: ProducerConfig,
    metrics: ProducerMetrics,
    clock: Clock,
    metadata: Metadata,
    rng: random.Random,
) -> Network:
    return Network(
        _backend(config),
        config.bootstrap_servers,
        _link_settings(config, rng),
        metrics,
        clock,
        metadata.connection_failed,
        rng,
        goes_back=config.metadata_recovery_strategy == "rebootstrap",
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
    retry_backoff: ExponentialBackoff,
    clock: Clock,
    baton: Baton,
    callbacks: Callbacks | None,
) -> RecordAccumulator:
    return RecordAccumulator(
        BufferPool(config.buffer_memory, config.batch_size),
        clock=clock,
        batch_size=config.batch_size,
        settings=_settings_by_topic(config),
        retry_backoff=retry_backoff,
        wake=baton.wake,
        wait=baton.wait,
        callbacks=callbacks,
    )


def _sequences(config: ProducerConfig) -> Sequences:
    return Sequences(
        idempotent=config.enable_idempotence,
        max_in_flight=config.max_in_flight_requests_per_connection,
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


def _backend(config: ProducerConfig) -> Backend:
    if config.transport != "tcp":
        return open_backend(config.transport)
    return open_backend(
        "tcp",
        send_buffer_bytes=config.send_buffer_bytes,
        receive_buffer_bytes=config.receive_buffer_bytes,
        busy_poll=config.busy_poll_us / 1e6,
    )


def _link_settings(config: ProducerConfig, rng: random.Random) -> LinkSettings:
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
    )


def _backoff(initial_ms: float, maximum_ms: float, rng: random.Random) -> ExponentialBackoff:
    return ExponentialBackoff(initial_ms / 1000, maximum_ms / 1000, rng)

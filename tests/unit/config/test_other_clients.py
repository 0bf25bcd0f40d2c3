"""Whatever another Kafka client calls an option, kprod knows what to say about it."""

from __future__ import annotations

import pytest

from kprod.config import ProducerConfig
from kprod.errors import ConfigError

JAVA = """
    acks auto.include.jmx.reporter batch.size bootstrap.servers buffer.memory client.dns.lookup
    client.id compression.gzip.level compression.lz4.level compression.type
    compression.zstd.level config.providers connections.max.idle.ms delivery.timeout.ms
    enable.idempotence enable.metrics.push interceptor.classes key.serializer linger.ms
    max.block.ms max.in.flight.requests.per.connection max.request.size metadata.max.age.ms
    metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
    partitioner.class partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms
    reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    sasl.jaas.config security.protocol security.providers send.buffer.bytes
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.key.password
    transaction.timeout.ms transaction.two.phase.commit.enable transactional.id value.serializer
"""

LIBRDKAFKA = """
    acks allow.auto.create.topics api.version.fallback.ms api.version.request
    api.version.request.timeout.ms background_event_cb batch.num.messages batch.size
    bootstrap.servers broker.address.family broker.address.ttl broker.version.fallback
    builtin.features client.dns.lookup client.id client.rack closesocket_cb compression.codec
    compression.level compression.type connect_cb connections.max.idle.ms debug
    default.topic.config default_topic_conf delivery.report.only.error delivery.timeout.ms dr_cb
    dr_msg_cb enable.gapless.guarantee enable.idempotence enable.metrics.push enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification enabled_events
    error_cb group.id interceptors internal.termination.signal key.serializer linger.ms
    log.connection.close log.queue log.thread.name log_cb log_level logger max.in.flight
    max.in.flight.requests.per.connection message.copy.max.bytes message.max.bytes
    message.send.max.retries message.timeout.ms metadata.broker.list metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy msg_order_cmp oauth_cb
    oauthbearer_token_refresh_cb on_delivery opaque open_cb partitioner partitioner_cb
    plugin.library.paths produce.offset.report queue.buffering.backpressure.threshold
    queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms
    queuing.strategy receive.message.max.bytes reconnect.backoff.jitter.ms
    reconnect.backoff.max.ms reconnect.backoff.ms request.required.acks request.timeout.ms
    resolve_cb retries retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.mechanism
    sasl.mechanisms sasl.password sasl.username security.protocol socket.blocking.max.ms
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails
    socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    socket_cb ssl.ca.location ssl.cipher.suites ssl.key.pem ssl_engine statistics.interval.ms
    stats.interval.ms stats_cb sticky.partitioning.linger.ms test.mock.broker.rtt
    test.mock.num.brokers throttle_cb topic.blacklist topic.metadata.propagation.max.ms
    topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse transaction.timeout.ms
    transactional.id value.serializer
"""


@pytest.mark.parametrize("names", [JAVA, LIBRDKAFKA])
def test_the_options_of_other_clients_are_known(names: str) -> None:
    for name in names.split():
        problem = ""
        try:
            ProducerConfig.from_options({name: object()})
        except ConfigError as error:
            problem = str(error)
        assert "unknown option" not in problem

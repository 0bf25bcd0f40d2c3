"""Options of other Kafka clients that kprod does not have: refused with advice, or ignored."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_TLS = "TLS is configured with ssl_cafile, ssl_certfile, ssl_keyfile, ssl_password, or ssl_context"
_SASL = "logins are configured with sasl_mechanism and the options it needs"
_LEVEL = "set compression_level"
_CALLBACKS = "add callbacks to the future that send() returns"
_MESSAGES = "kprod limits bytes, not messages: set {}"

_EVENTS = "futures and interceptors report outcomes, the logger kprod everything else"
_STATISTICS = "call metrics() instead"
_HOOKS = "set transport= to replace how kprod reaches brokers"
_CONSUMER = "kprod only produces"
_MOCK = "start a kprod.broker.EmbeddedBroker"

UNAVAILABLE_FAMILIES = {"ssl_": _TLS, "sasl_": _SASL}

UNAVAILABLE = {
    "compression_gzip_level": _LEVEL,
    "compression_lz4_level": _LEVEL,
    "compression_zstd_level": _LEVEL,
    "queue_buffering_max_kbytes": "set buffer_memory, in bytes",
    "queue_buffering_max_messages": _MESSAGES.format("buffer_memory"),
    "batch_num_messages": _MESSAGES.format("batch_size"),
    "socket_timeout_ms": "set request_timeout_ms",
    "on_delivery": _CALLBACKS,
    "dr_cb": _CALLBACKS,
    "dr_msg_cb": _CALLBACKS,
    "delivery_report_only_error": _CALLBACKS,
    "error_cb": _EVENTS,
    "throttle_cb": _EVENTS,
    "log_cb": _EVENTS,
    "background_event_cb": _EVENTS,
    "enabled_events": _EVENTS,
    "logger": _EVENTS,
    "stats_cb": _STATISTICS,
    "statistics_interval_ms": _STATISTICS,
    "stats_interval_ms": _STATISTICS,
    "socket_cb": _HOOKS,
    "connect_cb": _HOOKS,
    "closesocket_cb": _HOOKS,
    "resolve_cb": _HOOKS,
    "plugin_library_paths": "set interceptors",
    "partitioner_cb": "set partitioner",
    "default_topic_config": "set topic_options, or the options themselves",
    "default_topic_conf": "set topic_options, or the options themselves",
    "state_change_callback": _EVENTS,
    "oauthbearer_token_refresh_cb": "set sasl_oauth_token_provider",
    "enable_sasl_oauthbearer_unsecure_jwt": "set sasl_oauth_token_provider",
    "group_id": _CONSUMER,
    "test_mock_num_brokers": _MOCK,
    "test_mock_broker_rtt": _MOCK,
    "transaction_two_phase_commit_enable": "two-phase commit is not available",
    "enable_gapless_guarantee": "a record that fails does not stop those after it",
    "bootstrap_topics_filter": "metadata is requested for the topics in use only",
}

_NEGOTIATED = "the versions of requests are negotiated with each broker"
_CONNECT_TIME = "set max_block_ms or socket_connection_setup_timeout_ms"
_OWN_METRICS = "metrics() is always available"
_OWN_LOOP = "kprod has its own network loop; set transport= to replace it"
_SOCKET = "sockets have TCP_NODELAY and SO_KEEPALIVE; set send_buffer_bytes, receive_buffer_bytes"
_LIBRDKAFKA = "it tunes the internals of librdkafka"
_LOGGING = "set the level of the logger kprod"
_METADATA = "metadata is requested when it is needed, and retried after retry_backoff_ms"
_LOOP = "await uses the running loop"
_TLS_VERSION = "TLS 1.2 or 1.3 is negotiated with each broker; set ssl_minimum_version"
_FILE_TYPE = "the type of a file is detected from its content"
_TICKETS = "tickets come from the ticket cache, or from the key tab in KRB5_CLIENT_KTNAME"
_JVM = "it concerns the Java virtual machine only"

_IGNORED = {
    "api_version": _NEGOTIATED,
    "api_version_request": _NEGOTIATED,
    "broker_version_fallback": _NEGOTIATED,
    "api_version_auto_timeout_ms": _CONNECT_TIME,
    "api_version_request_timeout_ms": _CONNECT_TIME,
    "bootstrap_timeout_ms": _CONNECT_TIME,
    "default_api_timeout_ms": "set max_block_ms",
    "client_dns_lookup": "every address of a name is tried",  # but see unavailable()
    "metrics_enabled": _OWN_METRICS,
    "metric_reporters": _OWN_METRICS,
    "metrics_recording_level": _OWN_METRICS,
    "selector": _OWN_LOOP,
    "kafka_client": _OWN_LOOP,
    "net": _OWN_LOOP,
    "sock_chunk_bytes": _OWN_LOOP,
    "sock_chunk_buffer_count": _OWN_LOOP,
    "socket_options": _SOCKET,
    "socket_nagle_disable": _SOCKET,
    "socket_keepalive_enable": _SOCKET,
    "sticky_partitioning_linger_ms": "records without a key change partition when a batch is full",
    "message_copy_max_bytes": _LIBRDKAFKA,
    "builtin_features": _LIBRDKAFKA,
    "socket_blocking_max_ms": _LIBRDKAFKA,
    "socket_max_fails": _LIBRDKAFKA,
    "enable_random_seed": _LIBRDKAFKA,
    "opaque": _LIBRDKAFKA,
    "open_cb": _LIBRDKAFKA,
    "internal_termination_signal": _LIBRDKAFKA,
    "queue_buffering_backpressure_threshold": _LIBRDKAFKA,
    "queuing_strategy": _LIBRDKAFKA,
    "msg_order_cmp": _LIBRDKAFKA,
    "api_version_fallback_ms": _NEGOTIATED,
    "wakeup_timeout_ms": _OWN_LOOP,
    "loop": _LOOP,
    "log_queue": _LOGGING,
    "log_level": _LOGGING,
    "log_thread_name": _LOGGING,
    "log_connection_close": _LOGGING,
    "debug": _LOGGING,
    "topic_metadata_refresh_fast_interval_ms": _METADATA,
    "topic_metadata_refresh_fast_cnt": _METADATA,
    "topic_metadata_refresh_sparse": _METADATA,
    "topic_metadata_propagation_max_ms": "set max_block_ms",
    "topic_blacklist": "metadata is requested for the topics in use only",
    "broker_address_ttl": "names are resolved for every connection",
    "broker_address_family": "every address of a name is tried",
    "reconnect_backoff_jitter_ms": "pauses vary by 20 %",
    "produce_offset_report": "every result has its offset",
    "client_rack": "a producer always sends to the leaders",
    "metric_group_prefix": "the groups of metrics() have Kafka's names",
    "auto_include_jmx_reporter": _JVM,
    "security_providers": _JVM,
    "ssl_provider": _JVM,
    "ssl_keymanager_algorithm": _JVM,
    "ssl_trustmanager_algorithm": _JVM,
    "ssl_secure_random_implementation": _JVM,
    "ssl_protocol": _TLS_VERSION,
    "ssl_keystore_type": _FILE_TYPE,
    "ssl_truststore_type": _FILE_TYPE,
    "sasl_kerberos_kinit_cmd": _TICKETS,
    "sasl_kerberos_min_time_before_relogin": _TICKETS,
    "sasl_kerberos_ticket_renew_window_factor": _TICKETS,
    "sasl_kerberos_ticket_renew_jitter": _TICKETS,
    "sasl_login_callback_handler_class": "set sasl_oauth_token_provider",
    "sasl_client_callback_handler_class": _JVM,
    "sasl_oauthbearer_method": "set sasl_oauthbearer_token_endpoint_url to fetch tokens",
    "config_providers": _JVM,
}

IGNORED: Mapping[str, str] = MappingProxyType(_IGNORED)
"""Options accepted without effect: the name, and what applies or what to set instead."""


_NOT_USED: Mapping[str, Any] = MappingProxyType(
    {
        "transaction_two_phase_commit_enable": False,
        "delivery_report_only_error": False,
        "enable_gapless_guarantee": False,
        "statistics_interval_ms": 0,
        "stats_interval_ms": 0,
        "test_mock_num_brokers": 0,
    }
)
"""Values with which options of other clients have no effect; many are their defaults."""


def not_used(name: str, value: Any) -> bool:
    """Whether an option of another client has a value with which it has no effect."""
    # None means "not set"; it is also kafka-python's default for most options.
    nothing = _NOT_USED.get(name)
    return value is None or (type(value) is type(nothing) and bool(value == nothing))


_CANONICAL = "resolve_canonical_bootstrap_servers_only"


def unavailable(name: str, value: Any = None) -> str | None:
    """Why another client's option cannot be honoured; None for any other name."""
    if name == "client_dns_lookup" and str(value).lower() == _CANONICAL:
        return "canonical names are not looked up: put them into bootstrap_servers"
    if name in IGNORED:
        return None
    for family, reason in UNAVAILABLE_FAMILIES.items():
        if name.startswith(family):
            return reason
    return UNAVAILABLE.get(name)

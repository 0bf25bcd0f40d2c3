"""Options other Kafka clients have and kprod has not: some would be missed, some may be ignored."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_SECURITY = "TLS and SASL are not available in this version of kprod"
_TRANSACTIONS = "transactions are not available in this version of kprod"
_PROXY = "proxies are not available in this version of kprod"
_LEVEL = "set compression_level"
_CALLBACKS = "add callbacks to the future that send() returns"
_MESSAGES = "kprod bounds bytes, not messages: set {}"

UNAVAILABLE_FAMILIES = {"ssl_": _SECURITY, "sasl_": _SECURITY, "transaction": _TRANSACTIONS}

UNAVAILABLE = {
    "enable_ssl_certificate_verification": _SECURITY,
    "oauth_cb": _SECURITY,
    "proxy_url": _PROXY,
    "socks5_proxy": _PROXY,
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
    "enable_gapless_guarantee": "a record that fails does not stop those after it",
    "bootstrap_topics_filter": "metadata is asked for the topics in use only",
}

_NEGOTIATED = "the versions of requests are agreed on with each broker"
_CONNECT_TIME = "set max_block_ms or socket_connection_setup_timeout_ms"
_OWN_METRICS = "metrics() is always available and never reported elsewhere"
_OWN_LOOP = "the network loop is kprod's own; set transport= to replace it"
_SOCKET = "sockets have TCP_NODELAY and SO_KEEPALIVE; set send_buffer_bytes, receive_buffer_bytes"
_JVM = "it concerns the Java virtual machine only"

_IGNORED = {
    "api_version": _NEGOTIATED,
    "api_version_request": _NEGOTIATED,
    "broker_version_fallback": _NEGOTIATED,
    "api_version_auto_timeout_ms": _CONNECT_TIME,
    "api_version_request_timeout_ms": _CONNECT_TIME,
    "bootstrap_timeout_ms": _CONNECT_TIME,
    "default_api_timeout_ms": "set max_block_ms",
    "client_dns_lookup": "every address of a name is tried",
    "metrics_enabled": _OWN_METRICS,
    "metric_reporters": _OWN_METRICS,
    "metrics_recording_level": _OWN_METRICS,
    "enable_metrics_push": _OWN_METRICS,
    "selector": _OWN_LOOP,
    "kafka_client": _OWN_LOOP,
    "net": _OWN_LOOP,
    "sock_chunk_bytes": _OWN_LOOP,
    "sock_chunk_buffer_count": _OWN_LOOP,
    "socket_options": _SOCKET,
    "socket_nagle_disable": _SOCKET,
    "socket_keepalive_enable": _SOCKET,
    "sticky_partitioning_linger_ms": "records without a key change partition when a batch is full",
    "security_providers": _JVM,
    "config_providers": _JVM,
}

IGNORED: Mapping[str, str] = MappingProxyType(_IGNORED)
"""Accepted without effect: name, and what holds (or what to set) instead."""


def unavailable(name: str) -> str | None:
    """Why an option of another client cannot be honoured; None for any other name."""
    for family, reason in UNAVAILABLE_FAMILIES.items():
        if name.startswith(family):
            return reason
    return UNAVAILABLE.get(name)

"""How librdkafka reads options: any value as text, names with aliases, some for consumers only"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from kprod.config.kinds import MAX_INT32
from kprod.config.secret import Secret, exposed
from kprod.config.table import OPTIONS

_log = logging.getLogger("kprod.config")

_NAMES: Mapping[str, str] = {
    spelling.replace(".", "_"): option.name
    for option in OPTIONS.values()
    for spelling in option.spellings
    if spelling != "oauth_cb"  # it is called in another way: see OAuthTokens
}
_TRUE, _FALSE = ("true", "t", "1"), ("false", "f", "0")
_TOPICS = "default_topic_config"

OF_CONSUMERS = frozenset(
    {"auto_commit_enable", "auto_commit_interval_ms", "auto_offset_reset", "check_crcs"}
    | {"consume_callback_max_messages", "coordinator_query_interval_ms", "enable_auto_commit"}
    | {"enable_auto_offset_store", "enable_partition_eof", "fetch_error_backoff_ms"}
    | {"fetch_max_bytes", "fetch_message_max_bytes", "fetch_min_bytes", "fetch_queue_backoff_ms"}
    | {"fetch_wait_max_ms", "group_id", "group_instance_id", "group_protocol"}
    | {"group_protocol_type", "group_remote_assignor", "heartbeat_interval_ms", "isolation_level"}
    | {"max_partition_fetch_bytes", "max_poll_interval_ms", "max_poll_records"}
    | {"offset_store_method", "offset_store_path", "offset_store_sync_interval_ms"}
    | {"partition_assignment_strategy", "queued_max_messages_kbytes", "queued_min_messages"}
    | {"session_timeout_ms", "share_acknowledgement_mode"}
)
"""Programs share one configuration among their clients: a producer of librdkafka lets these be."""

_IGNORED: Mapping[str, str] = {
    "batch_num_messages": "kprod bounds the bytes of a batch: set batch.size",
    "enabled_events": "librdkafka's bindings set it",
    "sasl_oauthbearer_sub_claim_name": "brokers read the name in a token themselves",
}
_DEFAULTS: Mapping[str, str] = {
    "enable_sasl_oauthbearer_unsecure_jwt": "false",
    "sasl_oauthbearer_grant_type": "client_credentials",
    "sasl_oauthbearer_metadata_authentication_type": "none",
}
"""Values of options that kprod does not have, with which they ask for nothing."""

_NEVER = {("metadata_max_age_ms", -1), ("connections_max_idle_ms", 0)}


def by_name(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Options by kprod's names where it has them; those of topics override the rest.

    None is for what is not set.
    """
    named: dict[str, Any] = {}
    for spelled, value in conf.items():
        plain = str(spelled).replace(".", "_")
        if value is not None:
            named[_NAMES.get(plain, plain)] = value
    of_topics = named.pop(_TOPICS, None)
    return {**named, **by_name(of_topics)} if of_topics else named


def used(given: Mapping[str, Any]) -> dict[str, Any]:
    """Without the options that librdkafka takes from a producer and makes no use of."""
    protocol = str(given.get("security_protocol", "plaintext")).upper()
    kept = {}
    for name, value in given.items():
        if not protocol.startswith("SASL") and _of_logins(name):
            _log.warning("option %s is ignored: security.protocol has no SASL", name)
        elif not protocol.endswith("SSL") and _of_tls(name):
            _log.warning("option %s is ignored: security.protocol has no SSL", name)
        elif name in OF_CONSUMERS:
            _log.debug("option %s is ignored: it is one of consumers", name)
        elif name in _IGNORED:
            _log.info("option %s is ignored: %s", name, _IGNORED[name])
        elif str(exposed(value)).lower() != _DEFAULTS.get(name):
            kept[name] = value
    return kept


def _of_logins(name: str) -> bool:
    return name.startswith(("sasl_", "enable_sasl_"))


def _of_tls(name: str) -> bool:
    return name.startswith("ssl_") or name == "enable_ssl_certificate_verification"


def as_kind(name: str, value: Any) -> Any:
    """A value as the option of kprod's takes it: librdkafka takes numbers as text, and back."""
    kind = OPTIONS[name].kind.type_name if name in OPTIONS else ""
    if kind == "bool" and str(value).lower() in (*_TRUE, *_FALSE):
        return str(value).lower() in _TRUE
    if kind.startswith("int"):
        number = _number(value)
        return MAX_INT32 if (name, number) in _NEVER else number
    plain = exposed(value)
    if kind.startswith("str") and isinstance(plain, int | float) and not isinstance(plain, bool):
        return Secret(str(plain), name) if isinstance(value, Secret) else str(plain)
    return value


def _number(value: Any) -> Any:
    text = str(value).strip()
    return int(text) if text.lstrip("-").isdecimal() else value

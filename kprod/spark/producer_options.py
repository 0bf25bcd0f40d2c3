"""The producer options of a Spark job: checked on the driver, shipped to the executors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import cloudpickle  # what Spark itself ships functions with

from kprod.config import OPTIONS, ProducerConfig
from kprod.errors import ConfigError
from kprod.security import FromEnvironment, FromFile
from kprod.security.composition import mechanism_of, tls_contexts
from kprod.spark.java_properties import java_properties

if TYPE_CHECKING:
    from kprod.broker.client_security import ClientSecurity


ELSEWHERE = re.compile(r"\$\{(env|file):([^}]+)\}")


def resolved(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, and in their texts what the placeholders stand for. In the worker only.

    ``${env:NAME}`` is an environment variable of the worker, ``${file:PATH}`` the text of a file
    there, ``${file:PATH:KEY}`` the value of ``KEY`` in a properties file (as with Kafka's
    FileConfigProvider, KIP-297). Raises ConfigError, naming the place and never what is in it.
    """
    return {
        name: ELSEWHERE.sub(_found, value) if isinstance(value, str) else value
        for name, value in options.items()
    }


def has_placeholder(value: Any) -> bool:
    """Whether a part of ``value`` is written elsewhere."""
    return isinstance(value, str) and ELSEWHERE.search(value) is not None


def _found(match: re.Match[str]) -> str:
    kind, where = match.groups()
    if kind == "env":
        return FromEnvironment(where)()
    path, colon, key = where.rpartition(":")
    return _property(path, key) if colon else FromFile(where)()


def _property(path: str, key: str) -> str:
    text = FromFile(path)()
    try:
        found = java_properties(text)
    except ValueError as error:
        raise ConfigError(f"{path!r} is no properties file: {error}") from None
    if key not in found:
        raise ConfigError(f"there is no {key!r} in {path!r}")
    return found[key]


STAND_IN = "told-on-the-executors:9092"

BATCH_JOB: Mapping[str, Any] = {
    "linger_ms": 50,
    "batch_size": 131_072,
    "compression_type": "lz4",
}
"""Defaults of a job: larger batches than a service needs, for which milliseconds count."""

ONE_PARTITION_A_TASK = 1_048_576
"""The size of batches when a task has one partition, and so no more than one batch in a request.

It is what a broker takes at most by default.
"""
TEN_MINUTES = 600_000
"""How long a transaction of a task may take; brokers allow 15 minutes unless told otherwise."""
SIZES = ("batch_size", "batch_max_size", "max_request_size", "buffer_memory")


def with_large_batches(options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` with batches as large as requests, unless they say a size of their own."""
    given = {name.replace(".", "_") for name in options}
    spelled = {each.replace(".", "_") for name in SIZES for each in OPTIONS[name].spellings}
    large = {"batch_size": ONE_PARTITION_A_TASK} if given.isdisjoint(spelled) else {}
    return {**options, **large}


def job_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """``options``, and ``BATCH_JOB`` where they say nothing. Raises ConfigError for a bad one."""
    given = {name.replace(".", "_") for name in options}
    if "transactional_id" in given:
        raise ConfigError(
            "transactional_id: tasks of one job cannot share one; say"
            ' delivery="exactly_once", and kprod names one for each of them'
        )
    silent = {
        name: value
        for name, value in BATCH_JOB.items()
        if given.isdisjoint(s.replace(".", "_") for s in OPTIONS[name].spellings)
    }
    merged = {**silent, **options}
    config_of(merged)
    return merged


def transactional_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` of a job that writes in transactions. Raises ConfigError for a bad one."""
    given = {name.replace(".", "_") for name in options}
    silent = {} if "transaction_timeout_ms" in given else {"transaction_timeout_ms": TEN_MINUTES}
    merged = {**silent, **options}
    config_of({**merged, "transactional_id": "named by the task"})
    return merged


def transaction_seconds(options: Mapping[str, Any]) -> float:
    """The time-out of a task's transaction. ``options`` are those of ``transactional_options``."""
    config = config_of({**options, "transactional_id": "named by the task"})
    return config.transaction_timeout_ms / 1000


def config_of(options: Mapping[str, Any]) -> ProducerConfig:
    """The options as far as the driver knows them: brokers may be named on the executors only.

    Raises ConfigError for a bad one.
    """
    known = {
        name: STAND_IN if _names_brokers(name) and has_placeholder(value) else value
        for name, value in options.items()
    }
    return ProducerConfig.from_options(known)


def _names_brokers(name: str) -> bool:
    return name.replace(".", "_") == "bootstrap_servers"


def fingerprint_of(options: Mapping[str, Any]) -> str:
    """The same text for the same options. Raises ConfigError naming what cannot be shipped."""
    try:
        return hashlib.sha256(_pickled(sorted(options.items()))).hexdigest()
    except Exception as error:
        stuck = sorted(name for name, value in options.items() if not _ships(value))
        raise ConfigError(
            f"options {stuck} cannot be sent to the executors: {error}. Pass plain values, "
            "functions and classes; make what holds a socket, a lock or a file on the executor"
        ) from error


def _ships(value: Any) -> bool:
    try:
        _pickled(value)
    except Exception:  # whatever an object's own __reduce__ raises
        return False
    return True


def _pickled(value: Any) -> bytes:
    pickled: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return pickled


class ClusterAccess(NamedTuple):
    """``bootstrap_servers`` as HOST:PORT,... and the TLS and login that belong to them."""

    bootstrap_servers: str
    security: ClientSecurity
    timeout: float
    """Seconds that an answer is waited for: ``max_block_ms``."""


def need_broker_extra(what: str) -> None:
    """Raises ConfigError where the extra is missing that ``what`` needs."""
    if find_spec("kio") is None:
        raise ConfigError(
            f"{what} needs kio, on the driver and on every executor: pip install 'kprod[broker]'"
        )


def cluster_access(options: Mapping[str, Any]) -> ClusterAccess:
    """The access that ``options`` of a producer describe. Secrets are looked up here.

    Raises ConfigError, also for a proxy and for transports other than TCP.
    """
    from kprod.broker.client_security import ClientSecurity

    config = ProducerConfig.from_options(resolved(options))
    if config.proxy_url is not None or config.transport != "tcp":
        raise ConfigError("topics and transactions are read over TCP, without a proxy")
    encrypted = config.security_protocol in ("SSL", "SASL_SSL")
    mechanism = mechanism_of(config)
    security = ClientSecurity(
        context=tls_contexts(config).current() if encrypted else None,
        mechanism=None if mechanism is None else mechanism.name,
        begin=None if mechanism is None else mechanism.begin,
    )
    servers = ",".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        for host, port in config.bootstrap_servers
    )
    return ClusterAccess(servers, security, config.max_block_ms / 1000)

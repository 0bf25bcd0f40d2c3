"""A KafkaProducer that is compatible with kafka-python's, on top of kprod's producer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from kprod.config.reading import concealed, of_profile
from kprod.errors import (
    BrokerError,
    ConfigError,
    IllegalStateError,
    KprodError,
    KprodTimeoutError,
    ProducerClosedError,
)
from kprod.intake.arguments import check_seconds
from kprod.intake.partitioner import Partitioner
from kprod.kafka import partitioner as partitioners
from kprod.kafka import serializer as serializers
from kprod.kafka.errors import IllegalStateError as KafkaIllegalStateError
from kprod.kafka.errors import NoBrokersAvailable, still_being_sent, translated
from kprod.kafka.future import FutureRecordMetadata
from kprod.kafka.metric_names import by_group, by_name
from kprod.kafka.options import DEFAULT_CONFIG, Config, by_their_names, native_options
from kprod.kafka.partitioner import OnNewBatch, StickyAdapter
from kprod.producer import KafkaProducer as Native
from kprod.sender.engine import LONGEST_WAIT
from kprod_ext.futures import FutureRecordMetadata as NativeFuture

log = logging.getLogger(__name__)

_RELEASES = {4: (0, 11), 5: (1, 0), 6: (2, 0), 7: (2, 1), 8: (2, 3), 9: (2, 4), 10: (2, 8)}
_RELEASES |= {11: (2, 8), 12: (3, 1), 13: (4, 0)}
IDEMPOTENCE_FROM = (0, 11)


class _NativeProducer(Native):
    """kprod's producer, in which a record may have its own partitioner. Thread-safe."""

    def send_by(
        self, partitioner: Partitioner, topic: str, value: Any, headers: Any, stamp: int | None
    ) -> NativeFuture:
        """As ``send`` without a key, but ``partitioner`` replaces that of the options."""
        return self._send(topic, value, None, headers, None, stamp, partitioner)


class KafkaProducer:
    """Drop-in replacement for ``kafka.KafkaProducer``. Thread-safe.

    It has kafka-python's options, defaults, methods, results and errors. Unless ``api_version`` is
    given, the constructor waits for a broker, for at most ``bootstrap_timeout_ms`` (or
    ``api_version_auto_timeout_ms``). It raises NoBrokersAvailable (a KafkaTimeoutError) if no
    broker responds, and KafkaConfigurationError (a ValueError) for invalid options.

    ``docs/migration.md`` lists how it differs from kafka-python and from ``kprod.KafkaProducer``.
    """

    DEFAULT_CONFIG = DEFAULT_CONFIG
    DEPRECATED_CONFIGS = ()

    def __init__(self, **configs: Any) -> None:
        self._closed = True  # until __init__ has finished
        configs = concealed(configs)
        with _translating():
            self._configs = configs = by_their_names(configs)
        self.config = Config({**DEFAULT_CONFIG, **of_profile(configs), **configs})
        version = self.config["api_version"] = _as_tuple(self.config["api_version"])
        options = native_options(configs)
        if version is not None and version < IDEMPOTENCE_FROM:
            _refuse_idempotence(options, version)
        self._key = self._plugged(options, "key_serializer")
        self._value = self._plugged(options, "value_serializer")
        self._choose, self._on_new_batch = self._own_partitioner(options)
        with _translating():
            self._native = _NativeProducer(**options)
        self._closed = False
        self._adopt(version)

    def _adopt(self, version: tuple[int, ...] | None) -> None:
        """Put effective values into ``config``. If ``version`` is None, ask a broker for one."""
        native = self._native.config
        for name in ("client_id", "acks", "enable_idempotence"):
            self.config[name] = getattr(native, name)
        if version is None:
            self._bootstrap()
            self.config["api_version"] = _RELEASES[self._native.metadata.request_version]

    def _bootstrap(self) -> None:
        timeout = self.config.get(
            "api_version_auto_timeout_ms", self.config["bootstrap_timeout_ms"]
        )
        if "bootstrap_timeout_ms" in self._configs:
            timeout = self._configs["bootstrap_timeout_ms"]
        try:
            self._native.connect(timeout / 1000)
        except KprodTimeoutError as error:
            self._end()
            raise NoBrokersAvailable(str(error)) from error
        except KprodError as error:
            self._end()
            raise translated(error) from error

    def _end(self) -> None:
        self._closed = True
        self._native.close(0)

    @staticmethod
    def _plugged(options: dict[str, Any], name: str) -> serializers.Serialize | None:
        """The serializer; None if the option is missing, or names one of kprod's serializers."""
        plugged = options.get(name)
        if plugged is None or isinstance(plugged, str):
            return None
        options.pop(name)
        return serializers.bound(plugged)

    @staticmethod
    def _own_partitioner(
        options: dict[str, Any],
    ) -> tuple[partitioners.Choose | None, OnNewBatch | None]:
        """A function that calls the application's partitioner, and its ``on_new_batch``.

        Both are None if kprod's own partitioner is used.
        """
        plugged = options.get("partitioner")
        if plugged is None or isinstance(plugged, str):
            return None, None
        options.pop("partitioner")
        if partitioners.is_built_in(plugged):
            return None, None
        return partitioners.bound(plugged), getattr(plugged, "on_new_batch", None)

    # Sending --------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: list[tuple[str, bytes]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Queue one record and return its future.

        Raises KafkaTimeoutError if there is no metadata or no memory within ``max_block_ms``,
        IllegalStateError after ``close``, MessageSizeTooLargeError, ValueError or TypeError for an
        invalid argument, and any exception of a serializer or partitioner. If the cluster rejects
        the topic, the future fails.
        """
        if self._closed:
            raise KafkaIllegalStateError("KafkaProducer already closed!")
        if headers is not None or (value is None and key is None):
            _check(value, key, headers)
        given = key, value
        if self._key is not None or self._value is not None:
            key, value, headers = self._serialized(topic, key, value, headers)
        try:
            if partition is not None:
                partition = int(partition) if partition.__class__ is bool else partition
            elif self._choose is not None:
                cluster = self._cluster_with(topic)
                if key is None and self._on_new_batch is not None:
                    values = given[1], value
                    sticky = StickyAdapter(self._choose, self._on_new_batch, values, cluster)
                    return FutureRecordMetadata(
                        self._native.send_by(sticky, topic, value, headers, timestamp_ms)
                    )
                partition = self._choose(topic, given[0], key, given[1], value, cluster)
                if partition is None:
                    raise ValueError(f"Partitioner did not assign a partition for topic {topic}!")
            return FutureRecordMetadata(
                self._native.send(topic, value, key, headers, partition, timestamp_ms)
            )
        except BrokerError as error:
            log.error("%r: %s", self, error.with_number())
            return FutureRecordMetadata(None, translated(error))
        except KprodError as error:
            raise translated(error) from error

    def _serialized(
        self, topic: str, key: Any, value: Any, headers: list[tuple[str, bytes]] | None
    ) -> tuple[Any, Any, list[tuple[str, bytes]]]:
        """The serialized key and value, and a copy of the headers, which serializers may change."""
        changed = list(headers or ())
        if self._key is not None:
            key = self._key(topic, changed, key)
        if self._value is not None:
            value = self._value(topic, changed, value)
        return key, value, changed

    def _cluster_with(self, topic: str) -> partitioners.Cluster:
        """The cluster's metadata, once it has this topic."""
        if self._native.cluster.topic(topic) is None:
            self._native.partitions_for(topic)
        return partitioners.Cluster(self._native.cluster)

    def flush(self, timeout: float | None = None) -> None:
        """Send all queued records and wait at most ``timeout`` seconds for their results.

        Raises KafkaTimeoutError if this time passes. Inside a callback, it raises at once.
        """
        try:
            self._native.flush(timeout)
        except IllegalStateError as error:
            raise still_being_sent(str(error)) from error
        except KprodError as error:
            raise translated(error) from error

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Send all queued records within ``timeout`` seconds, and close.

        Raises KafkaTimeoutError if records are left. The producer then stays open and continues to
        send them. Raises ValueError for a timeout below 0. After a successful call, another call
        does nothing. Inside a callback, ``close`` does not wait: records without a result fail.
        ``null_logger`` has no effect.
        """
        if self._closed:
            return
        try:
            check_seconds("close", timeout, LONGEST_WAIT)
            self._native.flush(timeout)
        except IllegalStateError as error:
            if isinstance(error, ProducerClosedError):
                raise translated(error) from error
            self._end()
            self._close_plugged()
            return
        except KprodError as error:
            raise translated(error) from error
        self._closed = True
        self._native.close(timeout)
        self._close_plugged()

    def _close_plugged(self) -> None:
        for name in ("key_serializer", "value_serializer"):
            close = getattr(self.config[name], "close", None)
            if callable(close):
                close()

    # Transactions: a call waits at most max_block_ms, and then raises KafkaTimeoutError: repeat it.
    # For any other error see its ``next_step``.

    def init_transactions(self) -> None:
        """Get a producer id from the coordinator.

        This fences older producers with the same ``transactional_id``. After a successful call,
        another call does nothing. Raises IllegalStateError without a ``transactional_id``,
        KafkaTimeoutError, and KafkaError if retries do not help.
        """
        with _translating():
            self._native.init_unless_done(None)

    def begin_transaction(self) -> None:
        """Begin a transaction. Raises IllegalStateError if one is open."""
        with _translating():
            self._native.begin_transaction()

    def send_offsets_to_transaction(self, offsets: Any, group_metadata: Any) -> None:
        """Commit the offsets of a consumer group as part of the transaction.

        ``offsets`` maps TopicPartition to OffsetAndMetadata; ``group_metadata`` is a group id, or
        the consumer's ConsumerGroupMetadata.
        """
        with _translating():
            self._native.send_offsets_to_transaction(offsets, group_metadata)

    def commit_transaction(self) -> None:
        """Send all queued records and commit."""
        with _translating():
            self._native.commit_transaction()

    def abort_transaction(self) -> None:
        """Abort the transaction."""
        with _translating():
            self._native.abort_transaction()

    # What is known --------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> set[int]:
        """Return the topic's partition numbers; wait at most ``max_block_ms`` for metadata.

        After ``close``, it returns the numbers that were last known. Raises KafkaTimeoutError.
        """
        known = self._native.cluster.topic(topic)
        if self._closed and known is not None:
            return set(range(len(known)))
        with _translating():
            return self._native.partitions_for(topic)

    def bootstrap_connected(self) -> bool:
        """True while at least one broker is connected."""
        return not self._closed and self._native.bootstrap_connected()

    @property
    def __kprod_producer__(self) -> _NativeProducer:
        """The underlying producer; for ``kprod.observability``."""
        return self._native

    def metrics(self, raw: bool = False) -> dict[Any, Any] | None:
        """Return metrics by group and name. With ``raw``: objects with ``value()``, by MetricName.

        Returns None with ``metrics_enabled=False``. After ``close``, the result is empty.
        """
        if not self.config["metrics_enabled"]:
            return None
        groups = {} if self._closed else self._native.metrics()
        return by_name(groups, self.config["client_id"]) if raw else by_group(groups)

    @classmethod
    def max_usable_produce_magic(cls, api_version: tuple[int, ...]) -> int:
        """Return the newest record format (0, 1 or 2) that brokers of ``api_version`` support."""
        if api_version >= (0, 11):
            return 2
        return 1 if api_version >= (0, 10, 0) else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_anew, (type(self), self._configs)

    def __repr__(self) -> str:
        return f"<KafkaProducer client_id={self.config['client_id']}>"


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except KprodError as error:
        raise translated(error) from error


def _made_anew(kind: type[KafkaProducer], configs: dict[str, Any]) -> KafkaProducer:
    return kind(**configs)


def _as_tuple(version: Any) -> tuple[int, ...] | None:
    """``api_version`` as a tuple; None if the brokers have to be asked (None or "auto")."""
    if isinstance(version, str):
        return None if version == "auto" else tuple(map(int, version.split(".")))
    return version if version is None else tuple(version)


def _refuse_idempotence(options: dict[str, Any], version: tuple[int, ...]) -> None:
    """For brokers before 0.11, refuse idempotence that was asked for; otherwise turn it off."""
    for option in ("transactional_id", "enable_idempotence"):
        if options.get(option):
            raise translated(
                ConfigError(f"{option} needs a broker from 0.11 on, not api_version={version}")
            )
    options["enable_idempotence"] = False


def _check(value: Any, key: Any, headers: Any) -> None:
    """Refuse arguments that kprod accepts, but kafka-python refuses."""
    if value is None and key is None:
        raise ValueError("Need at least one: key or value")
    if headers is None:
        return
    if not isinstance(headers, list):
        raise TypeError("headers must be list-type")
    for item in headers:
        if not (
            isinstance(item, tuple)
            and len(item) == 2
            and isinstance(item[0], str)
            and isinstance(item[1], bytes)
        ):
            raise TypeError("All headers items must be (str, bytes) tuples")

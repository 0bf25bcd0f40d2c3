"""Lends the worker process's producer to one block of a task."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kprod.intake.serializers import bound
from kprod.lock import Lock
from kprod.spark.producer_options import fingerprint_of, job_options, resolved
from kprod.spark.rejected_rows import LetterBytes, RowPolicy
from kprod.spark.task_producer import TaskProducer

if TYPE_CHECKING:
    from kprod.producer import KafkaProducer


class ProducerCache:
    """Producers by configuration, made when first asked for. Thread-safe; one per process.

    A worker process runs many tasks one after the other (``spark.python.worker.reuse``): they share
    connections, metadata and batches. Spark ends idle workers by itself, and with them their
    producers; a task leaves nothing unsent behind, so nothing is lost by that.
    """

    def __init__(self) -> None:
        self._lock = Lock()  # guards the one below
        self._producers: dict[str, KafkaProducer] = {}

    def get(self, fingerprint: str, options: Mapping[str, Any]) -> KafkaProducer:
        """The producer of these options, a new one when there is none."""
        with self._lock:
            found = self._producers.get(fingerprint)
            if found is None:
                found = self._producers[fingerprint] = make_producer(options)
            return found

    def evict(self, fingerprint: str) -> None:
        """Close the producer at once and forget it: the next task starts with a new one.

        What it still holds is dropped on purpose. The task that asked for it has failed, and its
        next attempt sends every record again: each one sent now would be one more duplicate.
        """
        with self._lock:
            found = self._producers.pop(fingerprint, None)
        if found is not None:
            found.close(timeout=0)

    def close(self) -> None:
        """Close all producers, as ``evict`` does.

        In a process that outlives its brokers, as tests do, they would look for these for ever.
        """
        with self._lock:
            fingerprints = list(self._producers)
        for fingerprint in fingerprints:
            self.evict(fingerprint)


def make_producer(options: Mapping[str, Any]) -> KafkaProducer:
    """A producer of this process, with what stands for secrets looked up."""
    # Imported here: the driver that only describes a job opens no door to the network.
    from kprod.producer import KafkaProducer

    name = f"kprod-spark-{socket.gethostname()}-{os.getpid()}"
    given: dict[str, Any] = {
        option: _Around(value) if _is_serializer(option) and value is not None else value
        for option, value in resolved(options).items()
    }
    return KafkaProducer(**{"client_id": name, **given})


def _is_serializer(option: str) -> bool:
    return option.replace(".", "_") in ("key_serializer", "value_serializer")


class _Around:
    """A serializer of the application's, which does not see the bytes of dead letters."""

    def __init__(self, own: Any) -> None:
        serialize = bound(own)
        assert serialize is not None
        self._serialize = serialize

    def serialize(self, topic: str, headers: Any, data: Any) -> Any:
        """See ``Serializers``."""
        if type(data) is LetterBytes:
            return bytes(data)
        return self._serialize(topic, headers, data)


_cache = ProducerCache()


def process_cache() -> ProducerCache:
    """The cache of this process."""
    return _cache


def _start_anew() -> None:
    # A worker forked from a process that has producers inherits their sockets but not the threads
    # that serve them, and perhaps a lock some other thread held at that moment.
    global _cache  # noqa: PLW0603
    _inherited.append(_cache)
    _cache = ProducerCache()


_inherited: list[ProducerCache] = []
"""Caches of parent processes: kept, never used, so that no destructor runs in the child."""

os.register_at_fork(after_in_child=_start_anew)


@contextmanager
def executor_producer(*, timeout: float | None = None, **options: Any) -> Iterator[TaskProducer]:
    """The producer of this process and these options, for code that runs inside a Spark task.

    The block ends when every record sent in it is acknowledged; it raises DeliveryError when one
    failed, or has no outcome within ``timeout`` seconds (default: ``delivery_timeout_ms`` and a
    margin). After any exception the producer is closed and the next block gets a new one.
    Options are those of ``KafkaProducer``, with larger batches unless told otherwise; raises
    ConfigError for a bad one. Thread-safe; a block's producer belongs to one thread.
    """
    complete = job_options(options)
    with lent_producer(fingerprint_of(complete), complete, timeout) as producer:
        yield producer


@contextmanager
def lent_producer(
    fingerprint: str,
    options: Mapping[str, Any],
    timeout: float | None,
    policy: RowPolicy | None = None,
) -> Iterator[TaskProducer]:
    """As ``executor_producer``, for options that were checked before."""
    cache = process_cache()
    try:
        producer = TaskProducer(cache.get(fingerprint, options), timeout, policy)
        yield producer
        producer.finish()
    except BaseException:
        cache.evict(fingerprint)
        raise

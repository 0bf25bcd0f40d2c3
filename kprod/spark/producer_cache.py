"""One producer per worker process and configuration."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kprod.spark.secrets import resolved

if TYPE_CHECKING:
    from kprod.producer import KafkaProducer


class ProducerCache:
    """Producers by configuration, made when first asked for. Thread-safe; one per process.

    A worker process runs many tasks one after the other (``spark.python.worker.reuse``): they share
    connections, metadata and batches. Spark ends idle workers by itself, and with them their
    producers; a task leaves nothing unsent behind, so nothing is lost by that.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the one below
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


def make_producer(options: Mapping[str, Any]) -> KafkaProducer:
    """A producer of this process, with what stands for secrets looked up."""
    # Imported here: the driver that only describes a job opens no door to the network.
    from kprod.producer import KafkaProducer

    name = f"kprod-spark-{socket.gethostname()}-{os.getpid()}"
    return KafkaProducer(**{"client_id": name, **resolved(options)})


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

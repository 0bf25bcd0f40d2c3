"""Lends the worker process's producer to one block of a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kprod.spark.producer_cache import process_cache
from kprod.spark.producer_options import fingerprint_of, job_options
from kprod.spark.row_policy import RowPolicy
from kprod.spark.task_producer import TaskProducer


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

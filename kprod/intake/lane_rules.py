"""What must hold for records to take the compiled lane of ``send``."""

from __future__ import annotations

from kprod.config import ProducerConfig
from kprod.intake.partitioner import DefaultPartitioner, Partitioner
from kprod_ext.records_builder import batch_size_upper_bound

LONGEST_LENGTH = 5
"""Bytes that the length of a key or value takes at most."""


def largest_payload(config: ProducerConfig) -> int:
    """Bytes of key and value with which a record is within every limit, whatever surrounds it."""
    limit = min(config.max_request_size, config.buffer_memory)
    return limit - batch_size_upper_bound(None, None) - 2 * LONGEST_LENGTH


def lane_partitioner(config: ProducerConfig, partitioner: Partitioner) -> DefaultPartitioner | None:
    """The partitioner if the compiled ``send`` can do without asking it; None: no fast lane.

    Nothing of the application's may have to see each record on its way in.
    """
    if config.interceptors or config.key_serializer or config.value_serializer:
        return None
    if isinstance(partitioner, DefaultPartitioner) and partitioner.hashes_by_murmur2:
        return partitioner
    return None

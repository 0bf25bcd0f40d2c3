"""The compiled part of kprod: what runs once per record, sockets, held signals and locks.

Depends on nothing in ``kprod`` and raises only built-in exceptions.
"""

from __future__ import annotations

from kprod_ext.arrow import ArrowChunk, ArrowSource
from kprod_ext.batch import MemoryRecordsBuilder, ProducerBatch, batch_size_upper_bound
from kprod_ext.buffer_pool import BufferPool, PooledBuffer
from kprod_ext.bulk import BulkAppender, BulkStop, SentRecords
from kprod_ext.futures import FutureRecordMetadata
from kprod_ext.held_signals import (
    acquire_in_rounds,
    hold_signals,
    let_signals_in,
    raised_by_signal,
)
from kprod_ext.network import Poller, receive, send_buffers
from kprod_ext.partition_queue import (
    AppendContext,
    AppendResult,
    PartitionQueue,
    StickyPartition,
)
from kprod_ext.process import Descriptor, generation, sender_begins, sender_ends
from kprod_ext.produce import (
    PartitionResponse,
    frame_produce,
    read_produce_response,
)
from kprod_ext.record import (
    RecordClock,
    fnv1a,
    is_frozen,
    is_partition,
    is_timestamp,
    largest_payload,
    murmur2,
    partition_for_key,
)
from kprod_ext.rows import ObjectChunk, RecordChunk, all_plain, partitions_for_keys
from kprod_ext.send import CompiledSend, TopicAppender, TopicAppenders

__all__ = [
    "AppendContext",
    "AppendResult",
    "ArrowChunk",
    "ArrowSource",
    "BufferPool",
    "BulkAppender",
    "BulkStop",
    "CompiledSend",
    "Descriptor",
    "FutureRecordMetadata",
    "MemoryRecordsBuilder",
    "ObjectChunk",
    "PartitionQueue",
    "PartitionResponse",
    "Poller",
    "PooledBuffer",
    "ProducerBatch",
    "RecordChunk",
    "RecordClock",
    "SentRecords",
    "StickyPartition",
    "TopicAppender",
    "TopicAppenders",
    "acquire_in_rounds",
    "all_plain",
    "batch_size_upper_bound",
    "fnv1a",
    "frame_produce",
    "generation",
    "hold_signals",
    "is_frozen",
    "is_partition",
    "is_timestamp",
    "largest_payload",
    "let_signals_in",
    "murmur2",
    "partition_for_key",
    "partitions_for_keys",
    "raised_by_signal",
    "read_produce_response",
    "receive",
    "send_buffers",
    "sender_begins",
    "sender_ends",
]

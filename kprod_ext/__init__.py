"""The compiled part of kprod: batch memory, the record writer, the partition hash.

Depends on nothing in ``kprod`` and raises only built-in exceptions.
"""

from __future__ import annotations

from kprod_ext.arrow_chunk import ArrowChunk, ArrowSource
from kprod_ext.buffer_pool import BufferPool, PooledBuffer
from kprod_ext.bulk_appender import BulkAppender, BulkTurn
from kprod_ext.bulk_stop import BulkStop
from kprod_ext.compiled_send import CompiledSend, TopicAppender, TopicAppenders
from kprod_ext.held_signals import hold_signals, let_signals_in, raised_by_signal
from kprod_ext.mutex import Mutex
from kprod_ext.object_chunk import ObjectChunk, all_plain
from kprod_ext.partition_appender import PartitionAppender, write_first
from kprod_ext.poller import Poller
from kprod_ext.produce_answer import PartitionResponse, read_produce_response
from kprod_ext.produce_frame import PartitionBatch, frame_produce
from kprod_ext.record_chunk import RecordChunk
from kprod_ext.record_clock import RecordClock
from kprod_ext.record_future import RecordFuture
from kprod_ext.record_rules import (
    fnv1a,
    is_frozen,
    is_partition,
    is_timestamp,
    largest_payload,
    murmur2,
    partition_for_key,
    partitions_for_keys,
)
from kprod_ext.records_builder import MemoryRecordsBuilder, batch_size_upper_bound
from kprod_ext.sealed_batch import SealedBatch, SealedPiece
from kprod_ext.sent_records import RecordRun, SentRecords
from kprod_ext.socket_calls import receive, send_buffers
from kprod_ext.sticky_partition import StickyPartition

__all__ = [
    "ArrowChunk",
    "ArrowSource",
    "BufferPool",
    "BulkAppender",
    "BulkStop",
    "BulkTurn",
    "CompiledSend",
    "MemoryRecordsBuilder",
    "Mutex",
    "ObjectChunk",
    "PartitionAppender",
    "PartitionBatch",
    "PartitionResponse",
    "Poller",
    "PooledBuffer",
    "RecordChunk",
    "RecordClock",
    "RecordFuture",
    "RecordRun",
    "SealedBatch",
    "SealedPiece",
    "SentRecords",
    "StickyPartition",
    "TopicAppender",
    "TopicAppenders",
    "all_plain",
    "batch_size_upper_bound",
    "fnv1a",
    "frame_produce",
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
    "write_first",
]

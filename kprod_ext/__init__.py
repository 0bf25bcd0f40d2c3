"""The compiled part of kprod: batch memory, the record writer, the partition hash.

Depends on nothing in ``kprod`` and raises only built-in exceptions.
"""

from __future__ import annotations

from kprod_ext.arrow_chunk import ArrowChunk
from kprod_ext.arrow_source import ArrowSource
from kprod_ext.buffer_pool import BufferPool, PooledBuffer
from kprod_ext.bulk_lane import BulkLane, BulkTurn
from kprod_ext.fast_lane import FastLane, LaneTable, TopicLane
from kprod_ext.held_signals import hold_signals, let_signals_in, raised_by_signal
from kprod_ext.lz4_frames import Lz4Frames
from kprod_ext.object_chunk import ObjectChunk, all_plain
from kprod_ext.open_batch import OpenBatch, write_first
from kprod_ext.partition_hash import fnv1a, murmur2
from kprod_ext.poller import Poller
from kprod_ext.produce_answer import PartitionResponse, read_produce_response
from kprod_ext.produce_frame import PartitionBatch, frame_produce
from kprod_ext.record_chunk import RecordChunk
from kprod_ext.record_future import RecordFuture
from kprod_ext.records_builder import (
    MemoryRecordsBuilder,
    batch_size_upper_bound,
    pack_several,
)
from kprod_ext.rest import Rest
from kprod_ext.sealed_batch import SealedBatch
from kprod_ext.sent_records import RecordRun, SentRecords
from kprod_ext.socket_calls import receive, send_buffers
from kprod_ext.sticky_partition import StickyPartition

__all__ = [
    "ArrowChunk",
    "ArrowSource",
    "BufferPool",
    "BulkLane",
    "BulkTurn",
    "FastLane",
    "LaneTable",
    "Lz4Frames",
    "MemoryRecordsBuilder",
    "ObjectChunk",
    "OpenBatch",
    "PartitionBatch",
    "PartitionResponse",
    "Poller",
    "PooledBuffer",
    "RecordChunk",
    "RecordFuture",
    "RecordRun",
    "Rest",
    "SealedBatch",
    "SentRecords",
    "StickyPartition",
    "TopicLane",
    "all_plain",
    "batch_size_upper_bound",
    "fnv1a",
    "frame_produce",
    "hold_signals",
    "let_signals_in",
    "murmur2",
    "pack_several",
    "raised_by_signal",
    "read_produce_response",
    "receive",
    "send_buffers",
    "write_first",
]

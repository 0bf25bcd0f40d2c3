"""Codecs for the records of a batch, estimated compression ratios, and compression by callers.

The formats are those that brokers expect: gzip members (RFC 1952), snappy in Java's xerial framing,
LZ4 frames with independent blocks, plain zstd frames. The estimator is that of Kafka's
``CompressionRatioEstimator``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import TypeAlias

from kprod.lock import Lock
from kprod.sender_log import SenderLog
from kprod_ext import hold_signals
from kprod_ext.batch import ProducerBatch

Compressor: TypeAlias = Callable[[memoryview], bytes]
Decompressor: TypeAlias = Callable[[int, memoryview], bytes | memoryview]

CODEC_IDS: dict[str, int] = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024
GZIP_WINDOW = 16 + zlib.MAX_WBITS
DETERIORATE_STEP = 0.05
IMPROVE_STEP = 0.005


def compressor(name: str, level: int | None) -> Compressor | None:
    """A function that compresses the records of one batch; None for the codec ``none``.

    Any thread may call it, several at the same time. Raises ImportError if the codec's package is
    missing.
    """
    makers: dict[str, Callable[[int | None], Compressor]] = {
        "gzip": _gzip,
        "snappy": _snappy,
        "lz4": _lz4,
        "zstd": _zstd,
    }
    return makers[name](level) if name != "none" else None


def _gzip(level: int | None) -> Compressor:
    def compress(records: memoryview) -> bytes:
        stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, GZIP_WINDOW)
        return stream.compress(records) + stream.flush()

    return compress


def _snappy(_level: int | None) -> Compressor:
    from cramjam import snappy

    def compress(records: memoryview) -> bytes:
        parts = [XERIAL_HEADER]
        for start in range(0, len(records), XERIAL_BLOCK_BYTES):
            block = bytes(snappy.compress_raw(records[start : start + XERIAL_BLOCK_BYTES]))
            parts += (struct.pack(">i", len(block)), block)
        return b"".join(parts)

    return compress


def _lz4(level: int | None) -> Compressor:
    from lz4 import frame

    strength = 0 if level is None else level

    def compress(records: memoryview) -> bytes:
        packed: bytes = frame.compress(
            records,
            compression_level=strength,
            block_size=frame.BLOCKSIZE_MAX256KB,  # 64 KB takes longer
            block_linked=False,  # Java's reader rejects linked blocks
            store_size=False,
        )
        return packed

    return compress


def _zstd(level: int | None) -> Compressor:
    import zstandard

    idle: list[zstandard.ZstdCompressor] = []  # one thread at a time may use each

    def compress(records: memoryview) -> bytes:
        try:
            context = idle.pop()
        except IndexError:
            context = zstandard.ZstdCompressor(level=3 if level is None else level)
        try:
            return context.compress(records)
        finally:
            idle.append(context)

    return compress


def decompress(codec: int, packed: memoryview) -> bytes | memoryview:
    """The records of a batch that this process compressed with ``codec`` (an id of CODEC_IDS)."""
    if codec == CODEC_IDS["gzip"]:
        return zlib.decompress(packed, GZIP_WINDOW)
    if codec == CODEC_IDS["snappy"]:
        return _unpack_xerial(packed)
    if codec == CODEC_IDS["lz4"]:
        from lz4 import frame

        unpacked: bytes = frame.decompress(packed)
        return unpacked
    if codec == CODEC_IDS["zstd"]:
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    return packed


def _unpack_xerial(packed: memoryview) -> bytes:
    from cramjam import snappy

    parts: list[bytes] = []
    at = len(XERIAL_HEADER)
    while at < len(packed):
        (size,) = struct.unpack_from(">i", packed, at)
        parts.append(bytes(snappy.decompress_raw(packed[at + 4 : at + 4 + size])))
        at += 4 + size
    return b"".join(parts)


class CompressionRatios:
    """Compressed bytes per uncompressed byte, per topic.

    The sender thread writes them; any thread may read them.
    """

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def estimate(self, topic: str) -> float:
        """The expected ratio of the topic's next batch; 1.0 before the first one."""
        return self._ratios.get(topic, 1.0)

    def forget(self, topics: set[str]) -> None:
        """Forget the ratios of these topics."""
        ratios = self._ratios.items()
        self._ratios = {topic: ratio for topic, ratio in ratios if topic not in topics}

    def start_over(self, topic: str, ratio: float) -> None:
        """Expect no compression of the next batches, because one with this ratio was too large."""
        self._ratios[topic] = max(1.0, ratio)

    def observed(self, topic: str, ratio: float) -> None:
        """Adapt the estimate to a batch's ratio: at once if it is worse, slowly if it is better."""
        known = self._ratios.get(topic, 1.0)
        if ratio > known:
            self._ratios[topic] = max(known + DETERIORATE_STEP, ratio)
        elif ratio < known:
            self._ratios[topic] = max(known - IMPROVE_STEP, ratio)


log = SenderLog(__name__)

LEFT_TO_THE_SENDER = 1
"""Number of batches left to the sender; callers compress any batches beyond this number."""


class BatchCompression:
    """Batches that are closed for append and not compressed yet. Any thread.

    Each batch is compressed by one thread. ``wake`` wakes the sender: to compress batches, and when
    a caller has compressed a batch that the sender waits for.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = Lock()  # guards all below
        self._waiting: dict[ProducerBatch, Compressor] = {}  # in the order of filling
        self._at_work: dict[ProducerBatch, bool] = {}  # by callers; True: the sender waits for it

    def offer(self, batch: ProducerBatch, compress: Compressor) -> None:
        """Add ``batch``, which takes no more records."""
        with self._lock:
            if not batch.taken_by_sender:
                self._waiting[batch] = compress

    def take(self, batch: ProducerBatch) -> bool:
        """Whether the sender may take ``batch``; if not, ``wake`` is called as soon as it may.

        The caller has set ``batch.taken_by_sender`` before, so the batch is not offered again.
        """
        with self._lock:
            if batch in self._at_work:
                self._at_work[batch] = True
                return False
            self._waiting.pop(batch, None)
            return True

    def compress(self, batch: ProducerBatch, compress: Compressor | None) -> None:
        """Compress ``batch``, which the sender has taken, unless a caller has compressed it."""
        try:
            batch.compress(compress)
        except Exception:  # the codec failed; without this the batch would get no outcome
            log.exception("a batch of %s could not be compressed; it is sent as it is", batch.tp)
            batch.compress(bytes)

    def forget(self, batch: ProducerBatch) -> None:
        """Remove ``batch``, which has left its queue. A caller that compresses it continues."""
        with self._lock:
            self._waiting.pop(batch, None)

    def help(self) -> None:
        """Compress the newest batch if more than one waits. For callers that hold no lock.

        Exceptions of signal handlers propagate.
        """
        if len(self._waiting) > LEFT_TO_THE_SENDER:
            self._wake()
            hold_signals(self._compress_one)

    def _compress_one(self) -> None:
        with self._lock:
            if len(self._waiting) <= LEFT_TO_THE_SENDER:
                return
            batch, compress = self._waiting.popitem()
            self._at_work[batch] = False
        try:
            batch.compress(compress)
        except Exception:
            pass  # the sender compresses it again, and logs the codec's exception
        finally:
            # By name: entering a ``with`` may need memory; without it the batch would stay here.
            self._lock.acquire()
            wanted = self._at_work.pop(batch)
            self._lock.release()
            if wanted:
                self._wake()

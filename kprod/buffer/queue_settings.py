"""How the batches of one topic are gathered, packed and sent."""

from __future__ import annotations

from dataclasses import dataclass

from kprod.buffer.compression import Compressor


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What every queue of a topic shares; looked up once, when the queue is made.

    ``linger`` is seconds; ``acks`` what the topic's requests ask for: batches share a request only
    with batches of equal ``acks``; ``codec`` is an id of ``CODEC_IDS``, ``compress`` its function.
    """

    linger: float = 0.0
    acks: int = -1
    codec: int = 0
    compress: Compressor | None = None

"""Compiled batches and the aiokafka producer accept every codec."""

from __future__ import annotations

import asyncio

import pytest

from kprod.aio.aiokafka_producer import AIOKafkaProducer
from kprod.buffer.compression import CODEC_IDS
from tests.support.batch_writing import new_builder

CODECS = [name for name in CODEC_IDS if name != "none"]


def test_compiled_batches_accept_exactly_the_known_codecs() -> None:
    for number in CODEC_IDS.values():
        assert new_builder(compression=number).compression == number
    with pytest.raises(ValueError, match="compression must be 0 to"):
        new_builder(compression=max(CODEC_IDS.values()) + 1)


def test_the_aiokafka_producer_accepts_every_codec() -> None:
    async def main() -> None:
        for name in CODECS:
            await AIOKafkaProducer(compression_type=name).stop()

    asyncio.run(main())

"""A codec is in every list of codecs: one that a list lacks would be refused there, or untested."""

from __future__ import annotations

import asyncio
import runpy
from typing import get_args

import pytest

from kprod.aio.aiokafka_producer import AIOKafkaProducer
from kprod.buffer.compression import CODEC_IDS
from kprod.cli.perf.command import Compression
from kprod.config import ProducerConfig
from kprod.records.codecs import CODEC_NAMES
from tests.architecture.sources import ROOT
from tests.support.batch_writing import new_builder
from tests.unit.buffer import test_compression

CODECS = [name for name in CODEC_IDS if name != "none"]


def test_compiled_batches_take_each_number_and_no_other() -> None:
    for number in CODEC_IDS.values():
        assert new_builder(compression=number).compression == number
    with pytest.raises(ValueError, match="compression must be 0 to"):
        new_builder(compression=max(CODEC_IDS.values()) + 1)


def test_each_is_an_option_of_the_producer() -> None:
    for name in CODECS:
        assert ProducerConfig.from_options({"compression_type": name}).compression_type == name


def test_the_face_of_aiokafka_takes_each() -> None:
    async def main() -> None:
        for name in CODECS:
            await AIOKafkaProducer(compression_type=name).stop()

    asyncio.run(main())


def test_the_command_for_measuring_takes_each() -> None:
    choices, _ = get_args(Compression)
    assert list(get_args(choices)) == list(CODEC_IDS)


def test_the_embedded_broker_numbers_them_alike() -> None:
    assert {name: number for number, name in enumerate(CODEC_NAMES)} == CODEC_IDS


def test_tests_try_each() -> None:
    assert test_compression.CODECS == CODECS
    assert runpy.run_path(str(ROOT / ".ci" / "smoke_test.py"))["CODECS"] == (None, *CODECS)

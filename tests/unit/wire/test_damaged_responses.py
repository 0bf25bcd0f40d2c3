"""Damaged responses end in ProtocolError or in some value, and in nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from kprod.errors import ProtocolError
from kprod.wire.control import decode_api_versions_response, decode_init_producer_id_response
from kprod.wire.produce import decode_produce_response
from tests.golden import frames
from tests.support.wire_samples import Sample, samples

SAMPLES = list(samples())

DECODERS: list[tuple[str, Callable[[memoryview], object]]] = [
    (frames.API_VERSIONS_V3_RESPONSE, lambda body: decode_api_versions_response(3, body)),
    (frames.PRODUCE_V10_RESPONSE, lambda body: decode_produce_response(10, body)),
    (frames.PRODUCE_V8_RESPONSE, lambda body: decode_produce_response(8, body)),
    (
        frames.INIT_PRODUCER_ID_V4_RESPONSE,
        lambda body: decode_init_producer_id_response(4, body),
    ),
]

TELLING = (0x00, 0x01, 0x7F, 0x80, 0xFF)
"""Nothing, null, the longest byte, a varint that goes on, a negative number."""


def changed(body: memoryview, values: range | tuple[int, ...]) -> Iterator[memoryview]:
    damaged = bytearray(body)
    for at, byte in enumerate(body):
        for value in values:
            damaged[at] = value
            yield memoryview(bytes(damaged))
        damaged[at] = byte


@pytest.mark.parametrize(("text", "decode"), DECODERS)
def test_every_change_of_one_byte(text: str, decode: Callable[[memoryview], object]) -> None:
    for damaged in changed(memoryview(bytes.fromhex(text)), range(256)):
        with suppress(ProtocolError):
            decode(damaged)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_telling_changes_of_one_byte(sample: Sample) -> None:
    for damaged in changed(sample.body, TELLING):
        with suppress(ProtocolError):
            sample.decode(damaged)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_every_truncation(sample: Sample) -> None:
    for size in range(len(sample.body)):
        with pytest.raises(ProtocolError):
            sample.decode(sample.body[:size])


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_bytes_behind_the_body_are_ignored(sample: Sample) -> None:
    whole = sample.decode(sample.body)
    assert sample.decode(memoryview(bytes(sample.body) + b"\xff" * 9)) == whole

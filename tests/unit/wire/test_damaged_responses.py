"""Damaged responses end in ProtocolError or in some value, and in nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from kprod.errors import ProtocolError
from tests.support.wire_samples import Sample, samples

SAMPLES = list(samples())


TELLING = (0x00, 0x01, 0x7F, 0x80, 0xFF)
"""Nothing, null, the longest byte, a varint that goes on, a negative number."""


def changed(body: memoryview, values: range | tuple[int, ...]) -> Iterator[memoryview]:
    damaged = bytearray(body)
    for at, byte in enumerate(body):
        for value in values:
            damaged[at] = value
            yield memoryview(bytes(damaged))
        damaged[at] = byte


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

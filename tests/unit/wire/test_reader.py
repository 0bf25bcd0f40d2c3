from __future__ import annotations

from collections.abc import Callable

import pytest

from kprod.errors import ProtocolError
from kprod.wire.primitives import WireReader


def classic(data: bytes) -> WireReader:
    return WireReader(memoryview(data), "a message", flexible=False)


def flexible(data: bytes) -> WireReader:
    return WireReader(memoryview(data), "a message", flexible=True)


def test_a_tagged_field_ends_where_its_size_says() -> None:
    [(_, field)] = flexible(b"\x01\x00\x02\x00\x00\x00\x00").tags()
    with pytest.raises(ProtocolError):
        field.int32()


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (lambda data: classic(data).int32(), b"\x00\x00\x00"),
        (lambda data: classic(data).skip(1), b""),
        (lambda data: flexible(data).uvarint(), b"\x80"),
        (lambda data: flexible(data).uvarint(), b"\x80\x80\x80\x80\x80\x01"),
        (lambda data: flexible(data).uvarint(), b"\xff\xff\xff\xff\x1f"),
        (lambda data: classic(data).string(), b"\xff\xff"),
        (lambda data: classic(data).string(), b"\xff\xfe"),
        (lambda data: classic(data).string(), b"\x7f\xffabc"),
        (lambda data: classic(data).string(), b"\x00\x01\xff"),
        (lambda data: flexible(data).string(), b"\x00"),
        (lambda data: flexible(data).string(), b"\x05abc"),
        (lambda data: flexible(data).string(), b"\xff\xff\xff\xff\x0fabc"),
        (lambda data: flexible(data).string(), b"\x03\xc3\x28"),
        (lambda data: classic(data).array(1), b"\xff\xff\xff\xff"),
        (lambda data: classic(data).array(1), b"\xff\xff\xff\xfe"),
        (lambda data: classic(data).array(1), b"\x7f\xff\xff\xff" + bytes(100)),
        (lambda data: classic(data).array(5), b"\x00\x00\x00\x02" + bytes(9)),
        (lambda data: flexible(data).array(1), b"\x00"),
        (lambda data: flexible(data).array(1), b"\xff\xff\xff\xff\x0f" + bytes(100)),
        (lambda data: flexible(data).skip_tags(), b"\x01\x00\x05ab"),
        (lambda data: flexible(data).skip_tags(), b"\x02\x03\x00\x03\x00"),
        (lambda data: flexible(data).skip_tags(), b"\x02\x03\x00\x02\x00"),
        (lambda data: flexible(data).skip_tags(), b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_bytes_that_do_not_fit_are_a_protocol_error(
    read: Callable[[bytes], object], data: bytes
) -> None:
    with pytest.raises(ProtocolError, match=r"^a message: .* at byte \d+$"):
        read(data)

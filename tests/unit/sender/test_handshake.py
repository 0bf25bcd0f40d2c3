"""The first exchange of a connection finds out which versions the broker speaks."""

from __future__ import annotations

import pytest

from kprod.errors import ProtocolError, UnsupportedVersionError
from kprod.wire.versions import ApiKey
from tests.unit.sender.exchanges import NOW, Noted, able, frame, handshake_answer, opened, write

ERROR_35 = b"\x00\x23"


def api_and_version(request: bytes) -> tuple[int, int]:
    return int.from_bytes(request[4:6], "big"), int.from_bytes(request[6:8], "big")


def fallback(correlation_id: int, ranges: bytes) -> bytes:
    """What a broker says that does not know our version: error 35 in the layout of version 0."""
    return frame(correlation_id.to_bytes(4, "big") + ERROR_35 + ranges)


def offered(first: int, last: int) -> bytes:
    """An array that holds the range of ApiVersions."""
    numbers = (ApiKey.API_VERSIONS, first, last)
    return b"\x00\x00\x00\x01" + b"".join(n.to_bytes(2, "big", signed=True) for n in numbers)


def test_nothing_can_be_sent_before_the_handshake_is_over() -> None:
    connection = opened()
    assert not able(connection, NOW)
    with pytest.raises(UnsupportedVersionError):
        connection.send(Noted(), NOW)
    assert len(connection.unanswered) == 1


def test_the_newest_version_is_tried_first() -> None:
    connection = opened()
    assert api_and_version(write(connection)) == (ApiKey.API_VERSIONS, 4)
    connection.received(handshake_answer(0), NOW)
    assert connection.established
    assert able(connection, NOW)
    assert len(connection.unanswered) == 0


@pytest.mark.parametrize("last", [0, 3])
def test_a_broker_that_names_its_versions_is_asked_again_with_the_last(last: int) -> None:
    connection = opened()
    write(connection)
    connection.received(fallback(0, offered(0, last)), NOW)
    assert not connection.established
    assert api_and_version(write(connection)) == (ApiKey.API_VERSIONS, last)
    connection.received(handshake_answer(1, last), NOW)
    assert connection.established


@pytest.mark.parametrize(
    "ranges",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x00\x00\x00\x00", id="no ranges"),
        pytest.param(b"\x12", id="malformed, as the mock broker of librdkafka"),
        pytest.param(offered(0, -5), id="a negative version"),
    ],
)
def test_a_broker_that_names_no_version_is_asked_with_version_0(ranges: bytes) -> None:
    connection = opened()
    write(connection)
    connection.received(fallback(0, ranges), NOW)
    assert api_and_version(write(connection)) == (ApiKey.API_VERSIONS, 0)
    connection.received(handshake_answer(1, 0), NOW)
    assert connection.established


def test_a_broker_that_refuses_every_version_is_given_up() -> None:
    connection = opened()
    for correlation_id in range(4):
        assert api_and_version(write(connection)) == (ApiKey.API_VERSIONS, 4 - correlation_id)
        connection.received(fallback(correlation_id, offered(0, 4)), NOW)
    write(connection)
    with pytest.raises(ProtocolError, match="UNSUPPORTED_VERSION"):
        connection.received(fallback(4, offered(0, 4)), NOW)


def test_another_error_ends_the_connection() -> None:
    connection = opened()
    write(connection)
    with pytest.raises(ProtocolError, match="CLUSTER_AUTHORIZATION_FAILED"):
        connection.received(handshake_answer(0, error=31), NOW)
    assert not connection.established


def test_versions_are_chosen_from_what_the_broker_offers() -> None:
    connection = opened()
    write(connection)
    connection.received(handshake_answer(0), NOW)
    free, capped = Noted(api=ApiKey.PRODUCE), Noted(api=ApiKey.PRODUCE, version_cap=9)
    connection.send(free, NOW)
    connection.send(capped, NOW)
    assert (free.versions, capped.versions) == ([12], [9])

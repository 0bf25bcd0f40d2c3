"""Frames come out the same however the stream is cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kprod.wire.framing import FrameReader

payloads = st.lists(st.binary(min_size=4, max_size=60), max_size=12)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


@given(payloads, st.lists(st.integers(0, 10_000), max_size=30), st.binary(max_size=3))
def test_any_chunking_gives_the_same_frames(
    messages: list[bytes], places: list[int], rest: bytes
) -> None:
    stream = b"".join(len(message).to_bytes(4, "big") + message for message in messages) + rest
    reader = FrameReader()
    found = [frame for chunk in cut(stream, places) for frame in reader.feed(chunk)]
    # Compared only now: later chunks must not have touched the frames given out before.
    assert [bytes(frame) for frame in found] == messages

"""Blocks of Python objects: what they hold, and what they ask about."""

from __future__ import annotations

from typing import Any

import pytest

from kprod_ext import (
    BulkAppender,
    BulkStop,
    ObjectChunk,
    SentRecords,
    TopicAppender,
)


class Asked:
    """Checks that note what they are asked, and let it pass as something harmless."""

    def __init__(self) -> None:
        self.about: list[Any] = []

    def payload(self, row: int, field: str, data: Any) -> bytes | None:
        self.about.append((row, field, data))
        if data == "bad":
            raise TypeError(f"row {row}")
        return b"made"

    def partition(self, row: int, partition: Any) -> int | None:
        self.about.append((row, "partition", partition))
        if partition == "bad":
            raise TypeError(f"row {row}")
        return None

    def timestamp(self, row: int, timestamp_ms: Any) -> int | None:
        self.about.append((row, "timestamp", timestamp_ms))
        return None

    def headers(self, row: int, headers: Any) -> tuple[tuple[str, bytes | None], ...]:
        return tuple(headers or ())

    def size(self, row: int, key: Any, value: Any, headers: Any) -> None:
        self.about.append((row, "size", len(bytes(value))))
        raise OverflowError(f"row {row}")


def test_only_what_is_not_plain_is_asked_about() -> None:
    asked = Asked()
    ObjectChunk(4, 1000, asked).load(
        [b"a", "x", (b"k", 1.5)], None, None, [0, None, 2**31], [0, -1, 5]
    )
    assert asked.about == [
        (1, "value", "x"),
        (1, "partition", None),
        (1, "timestamp", -1),
        (2, "value", 1.5),
        (2, "partition", 2**31),
    ]


@pytest.mark.parametrize(
    ("values", "keys", "partitions", "good"),
    [
        (["bad"], None, None, 0),
        ([b"a", b"b", "bad"], None, None, 2),
        ([b"a", b"b", "bad"], None, [0, "bad", 0], 1),
        ([b"a", "bad", b"c"], None, [0, 0, "bad"], 1),
        ([b"a", b"b", b"x" * 2000], None, None, 2),
        ([b"a", b"x" * 2000, "bad"], [b"k", b"k", b"k"], None, 1),
    ],
)
def test_the_rows_before_the_first_bad_one_are_there(
    values: list[Any], keys: list[Any] | None, partitions: list[Any] | None, good: int
) -> None:
    chunk = ObjectChunk(4, 1000, Asked())
    with pytest.raises((TypeError, OverflowError), match=f"row {good}"):
        chunk.load(values, keys, None, partitions)
    assert (chunk.count, chunk.at) == (good, 0)


def test_an_appender_without_batches_says_what_it_needs() -> None:
    chunk = ObjectChunk(4, 1000, Asked())
    appender = BulkAppender(TopicAppender(2, 1000), SentRecords())
    chunk.load([b"x"])
    assert appender.write(chunk) is BulkStop.NO_STICKY
    chunk.load([b"x"], None, None, 1)
    assert appender.write(chunk) is BulkStop.NOT_ADMITTED
    assert appender.partition == 1
    chunk.load([b"x"], None, None, 5)
    assert appender.write(chunk) is BulkStop.NOT_ADMITTED
    assert appender.partition == 5

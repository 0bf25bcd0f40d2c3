"""The records of a measurement and the percentiles of latencies."""

from __future__ import annotations

import pytest

from kprod.cli.figures import percentiles
from kprod.cli.perf.workload import Workload


def workload(records: int, *, keys: int = 0, rate: float | None = None) -> Workload:
    values = [b"a", b"bb", b"ccc"]
    return Workload(topic="t", records=records, values=values, keys=keys, rate=rate)


@pytest.mark.parametrize("most", [1, 2, 3, 4, 7, 100])
def test_values_and_keys_repeat_across_chunks(most: int) -> None:
    chunks = list(workload(23, keys=5).chunks(most))
    assert max(len(chunk.values) for chunk in chunks) <= most
    assert [chunk.start for chunk in chunks] == list(range(0, 23, most))
    values = [value for chunk in chunks for value in chunk.values]
    keys = [key for chunk in chunks for key in chunk.keys or ()]
    assert values == [(b"a", b"bb", b"ccc")[number % 3] for number in range(23)]
    assert keys == [b"key-%d" % (number % 5) for number in range(23)]


def test_without_keys_chunks_have_none() -> None:
    assert [chunk.keys for chunk in workload(5).chunks(3)] == [None, None]


def test_a_slow_rate_makes_small_chunks() -> None:
    assert [len(chunk.values) for chunk in workload(3, rate=10).chunks(200)] == [1, 1, 1]
    assert next(workload(500, rate=50_000).chunks(200)).values[:2] == [b"a", b"bb"]


@pytest.mark.parametrize("records", [0, 1, 2, 3, 4, 11])
def test_payload_bytes_are_counted_exactly(records: int) -> None:
    sent = [value for chunk in workload(records).chunks(4) for value in chunk.values]
    assert workload(records).payload_bytes(records) == sum(map(len, sent))


def test_percentiles_are_samples() -> None:
    seconds = [number / 1000 for number in range(10_000)]
    assert percentiles(seconds[::-1]) == pytest.approx({"p50": 5000, "p99": 9900, "p99.9": 9990})


@pytest.mark.parametrize(("samples", "expected"), [(0, []), (4, ["p50"]), (200, ["p50", "p99"])])
def test_percentiles_need_samples_beyond_them(samples: int, expected: list[str]) -> None:
    assert list(percentiles([0.001] * samples)) == expected

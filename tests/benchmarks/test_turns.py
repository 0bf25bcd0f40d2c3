"""Every benchmarked client delivers its records, as counted by the sink."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.rivals.clients import CLIENTS
from benchmarks.rivals.comparison import Comparison, compare, take
from benchmarks.rivals.turn import Turn, run_turn
from benchmarks.sink.sink_process import SinkProcess

pytestmark = pytest.mark.full

KEYLESS = {"raw loopback", "memory copy"}


@pytest.fixture(scope="module")
def sink() -> Iterator[SinkProcess]:
    with SinkProcess() as running:
        yield running


def run(turn: Turn, sink: SinkProcess) -> tuple[dict[str, Any], dict[str, int]]:
    """The measured figures, and the sink's counts for this run."""
    before = flat(sink)
    measured = run_turn(turn, sink.bootstrap_servers)
    return measured, {name: count - before[name] for name, count in flat(sink).items()}


def flat(sink: SinkProcess) -> dict[str, int]:
    counts = sink.counts()
    return {**counts.pop("batches_by_codec"), **counts}


@pytest.mark.filterwarnings("ignore:.*Use files:DeprecationWarning")  # kafka-python's
@pytest.mark.parametrize("client", CLIENTS)
def test_the_sink_receives_every_record(sink: SinkProcess, client: str) -> None:
    turn = Turn(client=client, records=700, warm_up=20, keys=0 if client in KEYLESS else 9)
    measured, counted = run(turn, sink)
    assert (counted["records"], counted["malformed"]) == (turn.expected_records, 0)
    assert measured["records_per_second"] > 0
    assert counted["idempotent_batches"] == counted["batches"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("client", ["kprod send", "confluent produce + callback"])
def test_every_batch_has_the_requested_codec(sink: SinkProcess, client: str, codec: str) -> None:
    turn = Turn(client=client, records=300, warm_up=20, payload="flights", compression=codec)
    _measured, counted = run(turn, sink)
    assert counted["records"] == turn.expected_records
    assert counted[codec] == counted["batches"]


@pytest.mark.parametrize("client", ["kprod send", "confluent produce + callback", "raw loopback"])
def test_lone_records_are_sent_in_their_own_batches(sink: SinkProcess, client: str) -> None:
    turn = Turn(client=client, records=250, warm_up=3, measure="lone", linger_ms=0)
    measured, counted = run(turn, sink)
    assert counted["records"] == counted["batches"] == 253
    assert 0 < measured["p50_us"] <= measured["p99_us"]


def test_a_run_reports_the_counts_of_its_own_sink() -> None:
    measured = take(Turn(client="kprod send", records=500, warm_up=10))
    assert measured["sink"]["records"] == 510
    assert measured["records_per_batch"] > 1


def test_a_client_that_fails_is_reported_and_left_out() -> None:
    bad = Turn(client="kprod send", records=10, compression="rar")
    printed: list[str] = []
    taken = compare(Comparison("one", "?", {"bad": bad}), 1, printed.append)
    assert taken.rounds == {"bad": [None]}
    assert taken.spreads("bad") == {}
    assert len(taken.problems) == 1
    assert "rar" in taken.problems[0]
    assert any("failed" in line for line in printed)

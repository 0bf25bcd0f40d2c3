"""Bugs that the simulation found, each with its smallest schedule."""

from __future__ import annotations

import pytest

from tests.simulation.actions import (
    FlushAll,
    ForgetProducers,
    Grow,
    HideBroker,
    Recreate,
    Schedule,
    Send,
    StallClient,
    StopAccepting,
)
from tests.simulation.broker_actions import Crash, CutAll, Disturb, MoveLeader, SlowWires
from tests.simulation.interference import PRODUCE, Interference
from tests.simulation.setup import Setup
from tests.simulation.world import World, run

FOUND = {
    # Each iteration of the loop sent one batch per partition, and then waited for a response.
    "a backlog without acknowledgements does not wait for answers": Schedule(
        seed=378,
        setup=Setup(idempotent=False, acks=0, batch_size=150),
        actions=(Send(at=0.05, topic=0, records=25, keys="explicit"),),
        gentle=True,
    ),
    # After many small answers a batch took longer than `request_timeout_ms`, again and again.
    "a batch is no larger than what the network has carried": Schedule(
        seed=920041,
        setup=Setup(metadata_version=4, rate=1833, max_in_flight=2, batch_size=150, growth=200),
        actions=(
            Send(at=1.5381, topic=0, records=100, size=20, keys="none"),
            Send(at=3.7126, topic=0, records=15, size=60, keys="none"),
            Send(at=4.2758, topic=0, records=30, size=60, keys="none"),
        ),
        gentle=True,
    ),
    # A lost connection before the answer "too large" made all of its records fail.
    "a batch with an unknown outcome is split": Schedule(
        seed=359,
        setup=Setup(partitions=(1,), max_batch_bytes=300),
        actions=(
            Disturb(0.0, 0, Interference(PRODUCE, "cut-request", part=1.0)),
            Send(at=0.1, topic=0, records=20),
        ),
        gentle=True,
    ),
    # A record sent while half of a split batch was queued joined it, and got no number: the next
    # one got it, and was stored in the wrong order, or acknowledged without being stored.
    "no record is appended to half of a split batch": Schedule(
        seed=280,
        setup=Setup(partitions=(1,), max_batch_bytes=300, batch_size=2000, latency=0.05),
        actions=(
            Send(at=0.0, topic=0, records=4, size=150),
            *(Send(at=0.6 + step / 10, topic=0, records=1, size=5) for step in range(6)),
        ),
        gentle=True,
    ),
    # Of two batches after a long silence the first met a retriable error. The second
    # became the start of the sequence, and the first could only follow it.
    "records stay in order after the broker forgot an idle producer": Schedule(
        seed=2009,
        setup=Setup(partitions=(1,)),
        actions=(
            Send(at=0.0, topic=0, records=1),
            ForgetProducers(at=1.0),
            Disturb(1.1, 0, Interference(PRODUCE, "error-before", code=9)),
            Send(at=1.2, topic=0, records=40),
        ),
        gentle=True,
    ),
    # The sender slept. A lost connection ended a batch before older ones, which were queued again:
    # the time of all of them had run out.
    "a late answer does not end a batch before older queued ones": Schedule(
        seed=156,
        setup=Setup(batch_size=150, request_timeout_ms=800, delivery_timeout_ms=810),
        actions=(
            Send(at=0.0208, topic=0, records=1, size=150, keys="explicit"),
            Send(at=0.0454, topic=0, records=7, size=60, keys="few"),
            Disturb(0.0455, 0, Interference(PRODUCE, "error-after", code=20)),
            Disturb(0.0455, 0, Interference(PRODUCE, "error-before", code=51)),
            Disturb(0.0455, 0, Interference(PRODUCE, "cut-request")),
            StallClient(at=0.0498, seconds=2.4),
        ),
    ),
    # Its answer was lost; those acknowledged on a newer connection let ever more follow.
    "at most four batches follow one without an outcome": Schedule(
        seed=2611253138,
        setup=Setup(
            nodes=3,
            partitions=(1,),
            replication=0.05,
            handshake_version=2,
            latency=0.01,
            batch_size=150,
            buffer_memory=1900,
            retry_backoff_ms=10,
        ),
        actions=(
            Send(at=0.0, topic=0, records=29, size=150, keys="none"),
            Grow(at=0.0265, topic=0),
            Grow(at=0.0431, topic=0),
            HideBroker(at=0.0489, node=2, seconds=4.5),
            Disturb(0.052, 1, Interference(PRODUCE, "stall", seconds=0.1)),
            Disturb(0.1608, 1, Interference(PRODUCE, "lose-response", 0, 0.038, 0.0, 0)),
            HideBroker(at=0.1865, node=1, seconds=1.8),
        ),
        gentle=True,
    ),
    # The broker expected the number of the refused one; the next one was sent twice, as its first
    # answer was lost, and refused as out of sequence although it may have been stored.
    "a record after a rejected one is stored": Schedule(
        seed=777011844,
        setup=Setup(),
        actions=(
            Send(at=0.018, topic=0, records=1, keys="none"),
            Disturb(0.1782, 1, Interference(PRODUCE, "error-before", code=10, partition=1)),
            Send(at=0.215, topic=0, records=1, size=150, keys="none"),
            Crash(0.4411, 1, 1.8, gap=0.01, lose_tail=True, silently=True, from_snapshot=True),
        ),
    ),
    # The id was dropped while batches were admitted: no other one was requested.
    "a new producer id is requested after the last epoch": Schedule(
        seed=888002209,
        setup=Setup(first_epoch=32767),
        actions=(
            Send(at=2.0945, topic=0, records=1, size=150, keys="few"),
            ForgetProducers(at=3.7393),
            ForgetProducers(at=4.8001),
            ForgetProducers(at=5.7603),
        ),
        gentle=True,
    ),
    # Two batches behind it were acknowledged by the log that is gone. The next record had their
    # sequences before it, its first answer was lost, and the second refused it: it failed as MAYBE.
    "a recreated topic may expect another sequence": Schedule(
        seed=5600017467,
        setup=Setup(nodes=2, replication=0.05, latency=0.01, batch_size=150),
        actions=(
            Send(at=0.0258, topic=0, records=4, size=20, keys="none"),
            Send(at=0.1313, topic=0, records=1, size=150, keys="explicit"),
            Send(at=0.1327, topic=0, records=1, size=5, keys="explicit"),
            Send(at=0.2541, topic=0, records=1, size=5, keys="explicit"),
            MoveLeader(at=0.2586, topic=0, partition=0, to=0, gap=0.0, lose_tail=False),
            Recreate(at=0.4119, topic=0, gap=0.01),
            Send(at=0.4899, topic=0, records=1, size=20, keys="explicit"),
            Disturb(0.4976, 0, Interference(PRODUCE, "lose-response", part=1.0)),
        ),
        gentle=True,
    ),
    # It was treated as a new broker, and a batch was repeated at once.
    "a broker missing from metadata for a moment keeps its back-off": Schedule(
        seed=888000650,
        setup=Setup(
            nodes=3, partitions=(1, 2), latency=0.002, window=150, reconnect_backoff_max_ms=100
        ),
        actions=(
            Send(at=0.2698, topic=1, records=4, keys="explicit"),
            SlowWires(at=0.2901, seconds=0.01, factor=500.0),
            HideBroker(at=0.723, node=0, seconds=4.5),
            Send(at=1.1419, topic=0, records=1, size=150, keys="few"),
            Disturb(1.1599, 0, Interference(PRODUCE, "cut-request", partition=1), times=3),
            HideBroker(at=1.3766, node=0, seconds=0.1),
        ),
        gentle=True,
    ),
}


@pytest.mark.parametrize("schedule", FOUND.values(), ids=FOUND)
def test_a_found_bug_does_not_come_back(schedule: Schedule) -> None:
    assert not run(schedule).violations


def test_a_backlog_fills_the_requests_that_may_be_in_flight() -> None:
    """After the first acknowledgement the rest of the queue left one round trip at a time."""
    schedule = Schedule(
        seed=1,
        setup=Setup(partitions=(1,), latency=0.1, batch_size=150),
        actions=(Send(at=0.0, topic=0, records=42),),  # 14 batches
        gentle=True,
    )
    outcome = run(schedule)
    assert not outcome.violations
    assert outcome.counts["requests"] == 15  # and the probe
    assert outcome.counts["milliseconds"] < 2500  # with 4 round trips before the second batch


def test_a_bootstrap_connection_is_used_before_it_is_closed() -> None:
    """While every known broker backed off, connections were opened and closed unused."""
    schedule = Schedule(
        seed=7,
        setup=Setup(
            partitions=(1, 2),
            replication=0.05,
            latency=0.0005,
            lost_on_close=1.0,
            linger_ms=50,
            retry_backoff_max_ms=100,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=100,
        ),
        actions=(
            Send(at=0.1242, topic=0, records=1),
            Disturb(0.1314, 0, Interference(PRODUCE, "cut-response", part=0.146), times=2),
            Crash(at=0.2577, node=0, seconds=0.36),
            FlushAll(at=0.3069),
            Send(at=0.3321, topic=0, records=1, size=60, keys="explicit"),
            Send(at=0.3476, topic=1, records=1, size=150),
            StopAccepting(at=0.39, node=0, seconds=0.36),
        ),
        gentle=True,
    )
    world = World(schedule)
    assert not world.run().violations
    assert world.watch.dials < 50


def test_batches_that_time_out_together_fail_in_order() -> None:
    """Those in flight failed in any order, and after later ones that were still queued."""
    schedule = Schedule(
        seed=53,
        setup=Setup(
            partitions=(1,),
            batch_size=150,
            linger_ms=0,
            request_timeout_ms=300,
            delivery_timeout_ms=300,
        ),
        actions=(
            Send(at=0.0, topic=0, records=1),
            Disturb(0.1, 0, Interference(PRODUCE, "lose-response")),
            CutAll(at=0.19, node=0),  # so that they leave late
            Send(at=0.2, topic=0, records=30),
        ),
    )
    outcome = run(schedule)
    assert not outcome.violations
    assert outcome.counts["failed"] == 30


def test_a_batch_rejected_without_an_offset_is_retried() -> None:
    """A batch that a former leader had rejected failed under a new epoch."""
    schedule = Schedule(
        seed=13944,
        setup=Setup(partitions=(1,)),
        actions=(
            Send(at=0.0, topic=0, records=1),
            Disturb(0.1, 0, Interference(PRODUCE, "error-before", code=87)),
            Send(at=0.2, topic=0, records=1),  # fails and leaves a gap in the sequence
            Disturb(0.3, 0, Interference(PRODUCE, "error-before", code=6)),
            Send(at=0.4, topic=0, records=1),
        ),
    )
    outcome = run(schedule)
    assert not outcome.violations
    assert outcome.counts["failed"] == 1

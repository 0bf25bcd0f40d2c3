"""Allocations of the sender's work fail: every record has its outcome, in order, and it is true.

Each of them alone; and several in a row, so that the end of the producer meets failures, too.
"""

from __future__ import annotations

import logging
import sys

import pytest

from kprod.errors import ProducerClosedError
from kprod.sender.loop import BROKE_OFF, SenderThread
from kprod.transport.memory import ServerEnd
from kprod.types import Persisted
from kprod.wire.versions import ApiKey
from kprod_ext.futures import FutureRecordMetadata
from tests.support.failing_malloc import LISTS_CRASH, keep_code
from tests.support.scripted_cluster import ScriptedCluster, refuse
from tests.support.sender_rig import SenderRig

hooks = pytest.importorskip("_testcapi", reason="this Python comes without its hooks into malloc")

pytestmark = [
    # No allocation fails for threads that other tests left behind: a forked child has one thread.
    pytest.mark.alone,
    pytest.mark.skipif(LISTS_CRASH, reason="this Python crashes where a list finds no memory"),
]

ALLOCATIONS = 300
"""More than a turn makes on the way to the broker, and on the way back."""
PARTITIONS = 3
NOT_LEADER = 6


class ScarceOnTheWayBack(ServerEnd):
    """The broker's end of a connection: it has memory; the client, once answered, may have none.

    The allocations ``failing`` after the answer fail, in the first connection that gets one.
    """

    def __init__(self, broker: ServerEnd, failing: list[range]) -> None:
        self._broker = broker
        self._failing = failing

    def receive(self, data: bytes) -> bytes:
        hooks.remove_mem_hooks()
        answer = self._broker.receive(data)
        if self._failing:
            fail(self._failing.pop())
        return answer


def fail(allocations: range) -> None:
    """Let these fail, counted from now on."""
    hooks.set_nomemory(allocations.start, allocations.stop)


def after_the_failure_of(failing: range, when: str, log: pytest.LogCaptureFixture) -> SenderRig:
    """A sender that met them when it had five batches to send.

    ``when``: before anything was "sent", or after the broker has "stored" or "refused" what was.
    Checks that all of them end in the truth; those that do not end well name the cause.
    """
    cluster = ScriptedCluster(topics={"t": [1] * PARTITIONS})
    broker = cluster.add(1)
    on_the_way_back: list[range] = []
    cluster.listeners[broker.host, broker.port] = lambda: ScarceOnTheWayBack(
        broker.accept(), on_the_way_back
    )
    # This cluster would take what follows a refused batch, out of sequence, which brokers do not.
    in_flight = 1 if when == "refused" else 5
    rig = SenderRig(cluster, max_in_flight_requests_per_connection=in_flight)
    thread = SenderThread(rig.sender, "sender under test")
    rig.know("t")
    assert rig.run(rig.queue(b"0").succeeded)
    futures = {n: rig.queue(b"%d" % n, partition=n % PARTITIONS) for n in range(1, 6)}
    if when == "refused":
        broker.next(ApiKey.PRODUCE, refuse(NOT_LEADER))
    rig.backend.enough = lambda: False
    thread.request_stop(rig.clock.now + 3600)
    log.clear()
    if when == "sent":
        fail(failing)
    else:
        on_the_way_back.append(failing)
    thread.run()
    hooks.remove_mem_hooks()
    assert all(future.is_done for future in futures.values())
    assert rig.sender.finished
    assert rig.sender.accumulator.pool.available == rig.sender.accumulator.pool.total
    check_truth(cluster, futures)
    check_cause(rig, futures, log)
    return rig


def check_truth(cluster: ScriptedCluster, futures: dict[int, FutureRecordMetadata]) -> None:
    """What is told as stored is, in order; what is told as not stored is not."""
    stored = [cluster.values("t", partition) for partition in range(PARTITIONS)]
    # Without a repetition's second copy, which this cluster does not refuse as brokers do.
    in_order = [list(dict.fromkeys(values)) for values in stored]
    assert in_order == [sorted(values, key=lambda value: value or b"") for values in in_order]
    found = {value for values in stored for value in values}
    assert {b"%d" % n for n, future in futures.items() if future.succeeded()} <= found
    untrue = {b"%d" % n for n, future in futures.items() if was_not_stored(future)} & found
    assert not untrue


def was_not_stored(future: FutureRecordMetadata) -> bool:
    error = future.exception
    return error is not None and error.persisted is Persisted.NO


def check_cause(
    rig: SenderRig, futures: dict[int, FutureRecordMetadata], log: pytest.LogCaptureFixture
) -> None:
    """A turn that broke off is told by every record that it ended, by later ones and by the log."""
    cause = rig.sender.broken_by
    if cause is None:
        assert all(future.succeeded() for future in futures.values())
        return
    errors = [future.exception for future in futures.values() if not future.succeeded()]
    assert {type(error) for error in errors} <= {ProducerClosedError}
    assert all(error.__cause__ is cause for error in errors if error is not None)
    with pytest.raises(ProducerClosedError) as refused:
        rig.queue(b"later")
    assert refused.value.__cause__ is cause
    told = [line.getMessage() for line in log.records if line.levelno == logging.ERROR]
    # There may be a line of a transport that found no memory to close, of the turn before its end.
    assert sum(BROKE_OFF in text for text in told) == 1, told


# Python itself makes one, of a generator that is let go of without memory.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("when", ["sent", "stored", "refused"])
@pytest.mark.parametrize("several", [1, 6, 20])  # beyond 32 in a row Python itself aborts
def test_every_record_ends_in_the_truth(
    several: int, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing hangs, and nothing is lost in silence: a turn that breaks off ends the producer."""
    keep_code()
    broken = 0
    for first in range(0, ALLOCATIONS, 1 if several == 1 else 2):
        rig = after_the_failure_of(range(first, first + several), when, caplog)
        broken += rig.sender.broken_by is not None
    assert broken > 5, "hardly any allocation failed: this proves nothing"


# An audit hook stays until the process ends: the child's.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("when", ["sent", "stored", "refused"])
def test_every_record_ends_in_the_truth_where_calls_are_audited(
    when: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Python makes a tuple for the hook also where the sender waits for memory to come back."""
    keep_code()
    sys.addaudithook(lambda *_: None)
    for first in range(0, ALLOCATIONS, 2):
        after_the_failure_of(range(first, first + 20), when, caplog)

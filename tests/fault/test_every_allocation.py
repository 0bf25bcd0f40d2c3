"""Allocations of the sender's work fail: every record has its outcome, in order.

Each of them alone; and several in a row, so that what is done about the first fails, too.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from kprod.transport.memory_transport import ServerEnd
from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import ScriptedCluster, refuse
from tests.support.sender_rig import SenderRig

hooks = pytest.importorskip("_testcapi", reason="this Python comes without its hooks into malloc")

# No allocation fails for threads that other tests left behind: a forked child has one thread.
pytestmark = pytest.mark.alone

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


def after_the_failure_of(failing: range, when: str) -> SenderRig:
    """A sender that met them, in a turn or more that had five batches to send; others follow.

    ``when``: before anything was "sent", or after the broker has "stored" or "refused" what was.
    Checks that all of them end, that nothing is lost that is told as stored, and the order.
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
    rig.know("t")
    assert rig.run(rig.queue(b"0").succeeded)
    futures = {n: rig.queue(b"%d" % n, partition=n % PARTITIONS) for n in range(1, 6)}
    with suppress(MemoryError):
        if when == "sent":
            fail(failing)
        else:
            on_the_way_back.append(failing)
        if when == "refused":
            broker.next(ApiKey.PRODUCE, refuse(NOT_LEADER))
        for _ in range(4):
            rig.sender.run_once(0.0)
    hooks.remove_mem_hooks()
    futures |= {n: rig.queue(b"%d" % n, partition=n % PARTITIONS) for n in range(6, 9)}
    assert rig.run(lambda: all(future.is_done for future in futures.values()))
    assert rig.sender.finished
    assert rig.sender.accumulator.pool.available == rig.sender.accumulator.pool.total
    stored = [cluster.values("t", partition) for partition in range(PARTITIONS)]
    # Without a repetition's second copy, which this cluster does not refuse as brokers do.
    in_order = [list(dict.fromkeys(values)) for values in stored]
    assert in_order == [sorted(values, key=lambda value: value or b"") for values in in_order]
    told = {b"%d" % n for n, future in futures.items() if future.succeeded()}
    assert told <= {value for values in stored for value in values}
    if when == "sent" and len(failing) == 1:
        assert len(told) == len(futures), "what was not sent can always be sent later"
    return rig


# Python itself makes one, of a generator that is let go of without memory.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("when", ["sent", "stored", "refused"])
def test_every_record_has_an_outcome(caplog: pytest.LogCaptureFixture, when: str) -> None:
    failures = 0
    for failing in range(ALLOCATIONS):
        rig = after_the_failure_of(range(failing, failing + 1), when)
        failures += "MemoryError" in caplog.text or rig.metrics.connections_lost > 0
        caplog.clear()
    assert failures > 5, "hardly any allocation failed: this proves nothing"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("when", ["sent", "stored", "refused"])
@pytest.mark.parametrize("several", [6, 20, 60])
def test_every_record_has_an_outcome_when_several_fail(several: int, when: str) -> None:
    """No batch is forgotten, none waits for a request there is not, and no partition stands still.

    Those that had not left may be told as broken off, though: nothing else was known of them.
    """
    for first in range(0, ALLOCATIONS, 4):
        after_the_failure_of(range(first, first + several), when)

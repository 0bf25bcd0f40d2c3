"""What the sender looks at stays within its sight, whatever happens while it looks."""

from __future__ import annotations

import pytest

from kprod.cluster.snapshot import ClusterSnapshot, Leadership
from kprod.types import TopicPartition
from tests.unit.buffer.accumulating import Accumulating, cluster


class OutOfMemory(ClusterSnapshot):
    """A view of the cluster that there is no memory to look at."""

    def leadership(self, tp: TopicPartition) -> Leadership | None:
        raise MemoryError


@pytest.mark.parametrize("seconds", [0, 10], ids=["noted", "due"])
def test_a_look_that_fails_is_repeated(seconds: float) -> None:
    """The queues were taken from the list of those to look at, and nobody put them back."""
    rig = Accumulating()
    rig.append(0)
    rig.append(1)
    if seconds:
        assert rig.ready() == {}
        rig.clock.advance(seconds)
    known = cluster()
    with pytest.raises(MemoryError):
        rig.accumulator.ready(OutOfMemory(known.brokers, known.topics), rig.clock.now)
    rig.clock.advance(10)
    assert rig.ready() == {1: [0, 1]}

"""Batches that leave their queue and cannot be sent, for lack of memory: they stay, in order."""

from __future__ import annotations

from typing import Any

import pytest

from kprod.sender.rounds.produce_exchange import ProduceExchange
from kprod.sender.sequences import Sequences
from kprod_ext.batch import ProducerBatch
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.sender_rig import SenderRig


class NoPlace(Sequences):
    """There is no memory for a place in the sequence of partition 0, while ``scarce``."""

    scarce = False

    def assign(self, batch: ProducerBatch) -> None:
        if self.scarce and batch.tp.partition == 0:
            raise MemoryError
        super().assign(batch)


class NoRequest(ProduceExchange):
    """There is no memory for a request, while ``scarce``."""

    scarce = False

    def __init__(self, *args: Any, **options: Any) -> None:
        if self.scarce:
            raise MemoryError
        super().__init__(*args, **options)


def sending(acks: str | int) -> SenderRig:
    """A sender that has sent b"0" to partition 0."""
    cluster = ScriptedCluster(topics={"t": [1, 1]})
    cluster.add(1)
    rig = SenderRig(cluster, acks=acks)
    rig.know("t")
    assert rig.run(rig.queue(b"0").succeeded)
    return rig


@pytest.mark.parametrize("acks", ["all", 0])
def test_it_is_tried_again_and_others_leave_meanwhile(
    acks: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not lost, nor told as stored because with acks=0 there is no answer to miss."""
    monkeypatch.setattr("kprod.sender.assembly.Sequences", NoPlace)
    rig = sending(acks)
    monkeypatch.setattr(NoPlace, "scarce", True)
    stuck, other = rig.queue(b"1"), rig.queue(b"2", partition=1)
    assert rig.run(other.succeeded)
    assert not stuck.is_done
    monkeypatch.setattr(NoPlace, "scarce", False)
    assert rig.run(stuck.succeeded, seconds=5)
    assert (rig.cluster.values("t"), rig.cluster.values("t", 1)) == ([b"0", b"1"], [b"2"])
    assert rig.sender.accumulator.pool.available == rig.sender.accumulator.pool.total


@pytest.mark.parametrize("acks", ["all", 0])
def test_what_was_taken_for_a_request_that_is_not_made_is_queued_again(
    acks: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kprod.sender.rounds.produce.ProduceExchange", NoRequest)
    rig = sending(acks)
    monkeypatch.setattr(NoRequest, "scarce", True)
    futures = [rig.queue(b"1"), rig.queue(b"2", partition=1)]
    with pytest.raises(MemoryError):
        rig.sender.run_once(0)
    futures.append(rig.queue(b"3"))
    monkeypatch.setattr(NoRequest, "scarce", False)
    assert rig.run(lambda: all(future.succeeded() for future in futures), seconds=5)
    assert (rig.cluster.values("t"), rig.cluster.values("t", 1)) == ([b"0", b"1", b"3"], [b"2"])
    assert rig.sender.accumulator.pool.available == rig.sender.accumulator.pool.total

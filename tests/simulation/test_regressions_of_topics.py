"""Bugs and mistakes the simulation has found with topics, as in ``test_regressions``."""

from __future__ import annotations

from tests.simulation.actions import ForgetProducers, MoveLeader, Recreate, Send, StallClient
from tests.simulation.broker_actions import Disturb
from tests.simulation.interference import Interference
from tests.simulation.schedule import Schedule
from tests.simulation.setup import Setup
from tests.simulation.world import run


def test_a_new_log_that_begins_with_an_overtaken_batch_expects_another_sequence() -> None:
    """Two batches behind it were acknowledged by the log that is gone. The next record had their
    sequences before it, its first answer was lost, and the second refused it: it failed as MAYBE.
    """
    schedule = Schedule(
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
            Disturb(0.4976, 0, Interference("produce", "lose-response", part=1.0)),
        ),
        gentle=True,
    )
    assert not run(schedule).violations


def test_a_topic_with_records_that_wait_is_not_dropped_for_being_idle() -> None:
    """Nothing had gone to it for minutes, and its records lingered when an answer came that had
    been asked for because of its age: the topic was dropped, and looked up once more.
    """
    schedule = Schedule(
        seed=110004529,
        setup=Setup(
            partitions=(1, 2),
            batch_size=2000,
            metadata_max_age_ms=1000,
            metadata_max_idle_ms=5000,
        ),
        actions=(
            Send(at=0.6355, topic=1, records=24, size=60, keys="none", headers=True),
            StallClient(at=1.5856, seconds=1.8),
            Send(at=1.8141, topic=1, records=28, size=60, keys="none"),
            Send(at=1.8333, topic=0, records=1, size=60, keys="none"),
            Send(at=2.0117, topic=1, records=1, size=150, keys="none"),
            ForgetProducers(at=3.1502),
        ),
    )
    assert not run(schedule).violations

"""Whatever the wall clock says, everything happens when it is due."""

from __future__ import annotations

import random
from collections.abc import Callable

from kprod.wire.versions import ApiKey
from tests.support.fake_clock import FakeClock
from tests.support.scripted_cluster import ScriptedCluster, cut, refuse, silence
from tests.support.sender_rig import SenderRig
from tests.support.steady_random import SteadyRandom

FIFTEEN_DAYS = 15 * 24 * 3600 * 1000


class WildClock(FakeClock):
    """Whoever looks at the wall sees another date, up to fifteen days off, to and fro."""

    def __init__(self) -> None:
        super().__init__()
        self._random = random.Random(7)

    def wall_ms(self) -> int:
        return super().wall_ms() + self._random.randint(-FIFTEEN_DAYS, FIFTEEN_DAYS)


def timeline(clock: FakeClock) -> list[float]:
    """When a producer did what depends on time."""
    broker = ScriptedCluster(topics={"t": [1]}).add(1)
    rig = SenderRig(
        broker.cluster,
        clock=clock,
        rng=SteadyRandom(),
        linger_ms=50,
        request_timeout_ms=1_000,
        delivery_timeout_ms=5_000,
        metadata_max_age_ms=60_000,
        connections_max_idle_ms=20_000,
    )
    rig.know("t")
    times: list[float] = []

    def note(until: Callable[[], bool]) -> None:
        assert rig.run(until)
        times.append(clock.now)

    note(rig.queue().succeeded)  # linger
    broker.next(ApiKey.PRODUCE, refuse(7), refuse(7))
    note(rig.queue().succeeded)  # back-off
    broker.next(ApiKey.PRODUCE, silence)
    note(rig.queue().succeeded)  # request timeout
    broker.next(ApiKey.PRODUCE, *[cut] * 5)
    note(rig.queue().succeeded)  # reconnecting
    broker.next(ApiKey.PRODUCE, *[silence] * 5)
    note(rig.queue().failed)  # delivery timeout
    note(rig.queue().succeeded)  # after the request that is still on its way
    note(lambda: not rig.sender.network.connected)  # idle connections
    asked = broker.count(ApiKey.METADATA)
    note(lambda: broker.count(ApiKey.METADATA) > asked)  # age of metadata
    return times


def test_nothing_but_timestamps_depends_on_the_wall_clock() -> None:
    steady, wild = timeline(FakeClock()), timeline(WildClock())
    assert steady == wild
    assert steady == sorted(set(steady)), "something has taken no time"

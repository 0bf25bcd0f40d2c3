"""How far a bulk call runs ahead of the sender."""

from __future__ import annotations

import pytest

from kprod.bulk.pace import MOST_AHEAD, MOST_NAPS, NAP_SECONDS, Pace

MEBIBYTE = 1024 * 1024


class Memory:
    """Memory of which ``freed`` bytes come back during every nap."""

    def __init__(self, total: int, used: int, freed: int) -> None:
        self.total = total
        self.available = total - used
        self.naps: list[float] = []
        self._freed = freed

    def nap(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.available += self._freed


def pace_of(memory: Memory) -> Pace:
    """The pace of a call that has filled batches ahead."""
    pace = Pace(memory, memory.nap)
    pace.goes_ahead()
    return pace


def test_a_call_that_has_filled_nothing_ahead_does_not_wait() -> None:
    memory = Memory(32 * MEBIBYTE, 32 * MEBIBYTE, MEBIBYTE)
    Pace(memory, memory.nap).keep(1.0)
    assert memory.naps == []


@pytest.mark.parametrize("total", [4 * MEBIBYTE, 32 * MEBIBYTE, 512 * MEBIBYTE])
def test_until_it_is_far_ahead_nothing_is_waited_for(total: int) -> None:
    memory = Memory(total, min(MOST_AHEAD, total * 3 // 4), 0)
    pace_of(memory).keep(1.0)
    assert memory.naps == []


@pytest.mark.parametrize("total", [4 * MEBIBYTE, 32 * MEBIBYTE, 512 * MEBIBYTE])
def test_a_quick_sender_is_waited_for_each_time(total: int) -> None:
    memory = Memory(total, total, total)
    pace = pace_of(memory)
    for times in range(1, 4):
        memory.available = 0
        pace.keep(1.0)
        assert memory.naps == [NAP_SECONDS] * times


def test_a_slow_sender_is_waited_for_once() -> None:
    memory = Memory(32 * MEBIBYTE, 32 * MEBIBYTE, 1000)
    pace = pace_of(memory)
    for _ in range(3):
        pace.keep(1.0)
    assert len(memory.naps) == MOST_NAPS


def test_who_may_not_wait_does_not() -> None:
    memory = Memory(32 * MEBIBYTE, 32 * MEBIBYTE, MEBIBYTE)
    pace = pace_of(memory)
    pace.keep(0.0)
    assert memory.naps == []
    pace.keep(2 * NAP_SECONDS)
    assert memory.naps == [NAP_SECONDS] * 2


def test_what_interrupts_the_nap_is_passed_on() -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    memory = Memory(32 * MEBIBYTE, 32 * MEBIBYTE, 0)
    pace = Pace(memory, interrupted)
    pace.goes_ahead()
    with pytest.raises(KeyboardInterrupt):
        pace.keep(1.0)

"""What a broker may owe answers for is earned by answers and halved with each lost connection."""

from __future__ import annotations

from kprod.sender.broker import Window

LEAST, MOST, SLOW = 100, 6400, 7.5
QUICK = 0.001


class Watched:
    """A window and what happens to its requests."""

    def __init__(self, least: int = LEAST, most: int = MOST) -> None:
        self.window = Window(least, most, SLOW)

    def answer(self, nbytes: int, *, seconds: float = QUICK) -> int:
        """A request was answered; the size then."""
        self.window.in_flight += nbytes
        self.window.answered(nbytes, seconds)
        return self.window.size

    def lose(self, *requests: int, sent_at: float = 99.0, now: float = 100.0) -> int:
        """The connection ended with these requests; the size then."""
        for nbytes in requests:
            self.window.in_flight += nbytes
        for nbytes in requests:
            self.window.failed(nbytes, sent_at, now, lost=True)
        return self.window.size


def test_it_begins_with_one_batch_and_doubles_with_every_window_that_is_answered() -> None:
    rig = Watched()
    assert rig.window.size == LEAST
    assert [rig.answer(size) for size in (100, 200, 400, 800)] == [200, 400, 800, 1600]


def test_a_loss_halves_what_was_in_flight_and_half_of_the_window_comes_back_quickly() -> None:
    rig = Watched()
    rig.answer(3100)
    assert rig.lose(500, 300) == 400
    assert [rig.answer(rig.window.size) for _ in range(2)] == [800, 1600]
    assert rig.answer(1600) == 1700, "half of 3200 is regained: one batch for each window"
    assert rig.answer(900) == 1752, "and for half of a window half of it"


def test_the_end_of_a_connection_counts_once_for_all_it_carried() -> None:
    rig = Watched()
    rig.answer(3100)
    assert rig.lose(*[400] * 8) == 1600
    assert rig.lose(400, sent_at=100.0, now=100.0) == 1600, "it was sent before the window fell"
    assert rig.lose(400, sent_at=101.0, now=102.0) == 200


def test_a_request_that_failed_for_another_reason_says_nothing_of_the_network() -> None:
    rig = Watched()
    rig.answer(3100)
    rig.window.in_flight += 500
    rig.window.failed(500, 99.0, 100.0, lost=False)
    assert (rig.window.size, rig.window.in_flight, rig.window.room()) == (3200, 0, MOST)


def test_few_bytes_in_flight_earn_no_more_than_twice_as_many() -> None:
    """A network that carries 100 bytes at a time may not carry the 6,400 of a later batch."""
    rig = Watched()
    assert [rig.answer(100) for _ in range(100)] == [200] * 100


def test_an_answer_that_was_slow_earns_nothing() -> None:
    """Where bytes take that long, twice as many would soon take longer than one waits."""
    rig = Watched()
    assert rig.answer(100, seconds=SLOW) == 200
    assert rig.answer(200, seconds=SLOW + 0.1) == 200, "and costs nothing"
    assert rig.answer(200) == 400

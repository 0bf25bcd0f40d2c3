"""What a broker may owe answers for is earned by answers and lost with connections."""

from __future__ import annotations

from kprod.sender.window import Window

LEAST, MOST, PATIENCE = 100, 6400, 3.0
QUICK = 0.001


class Watched:
    """A window and the sizes it has told."""

    def __init__(self, least: int = LEAST, most: int = MOST) -> None:
        self.told: list[int] = []
        self.window = Window(least, most, PATIENCE, self.told.append)
        self.answer(0, seconds=0.0)  # nothing takes time but bytes

    def answer(self, nbytes: int, *, under_way: int = 0, seconds: float = QUICK) -> int:
        """A request was answered; the size then."""
        self.window.answered(nbytes, under_way + nbytes, seconds)
        return self.window.size

    def lose(self, sent_at: float = 99.0, now: float = 100.0) -> int:
        self.window.lost(sent_at, now)
        return self.window.size


def test_it_begins_with_one_batch_and_doubles_with_every_window_that_is_answered() -> None:
    rig = Watched()
    assert rig.window.size == LEAST
    assert [rig.answer(size) for size in (100, 200, 400, 800)] == [200, 400, 800, 1600]
    assert rig.told == [100, 200, 400, 800, 1600]


def test_it_has_a_bound() -> None:
    rig = Watched()
    for _ in range(20):
        rig.answer(1000)
    assert rig.window.size == MOST
    assert len(rig.told) == 8, "what does not change is not told"


def test_a_loss_takes_all_of_it_and_half_comes_back_quickly() -> None:
    rig = Watched()
    rig.answer(3100)
    assert rig.lose() == LEAST
    assert [rig.answer(rig.window.size) for _ in range(4)] == [200, 400, 800, 1600]
    assert rig.answer(1600) == 1700, "half of 3200 is regained: one batch for each window"
    assert rig.answer(850) == 1750


def test_the_end_of_a_connection_counts_once_for_all_it_carried() -> None:
    rig = Watched()
    rig.answer(3100)
    rig.lose(sent_at=98.0)
    rig.lose(sent_at=99.0)
    rig.lose(sent_at=100.0, now=100.0)
    assert [rig.answer(rig.window.size) for _ in range(4)][-1] == 1600
    rig.lose(sent_at=101.0, now=102.0)
    assert rig.answer(LEAST) == 2 * LEAST


def test_it_does_not_grow_beyond_what_is_carried_while_one_is_patient() -> None:
    rig = Watched()
    assert rig.answer(100, seconds=1.0) == 200
    assert rig.answer(200, seconds=2.0) == 300, "200 in 2 s are 300 in 3 s"
    assert rig.answer(300, seconds=3.0) == 300


def test_what_was_under_way_before_it_had_to_arrive_too() -> None:
    rig = Watched()
    assert rig.answer(100, under_way=500, seconds=2.0) == 200
    assert rig.answer(1000, under_way=200, seconds=3.0) == 1200


def test_an_answer_that_took_too_long_takes_it_back_to_what_is_carried() -> None:
    rig = Watched()
    rig.answer(3100)
    assert rig.answer(3000, seconds=6.0) == 1500
    assert rig.answer(150, seconds=QUICK) == 1510, "no slow start: it is as large as it should be"
    assert rig.answer(10, seconds=1000.0) == LEAST


def test_what_every_answer_takes_says_nothing_of_bytes() -> None:
    window = Window(LEAST, MOST, PATIENCE, lambda size: None)
    for size in (100, 200, 400):
        window.answered(size, size, 10.0)
        assert window.size == 2 * size
    assert window.room(1_000_000) == MOST
    window.answered(800, 800, 14.0)
    assert window.size == 600, "800 in 4 s more"


def test_small_requests_that_are_slow_take_nothing_back() -> None:
    rig = Watched()
    rig.answer(3100)
    assert rig.answer(1, seconds=2.0) == 3200


def test_requests_are_not_held_back_before_anything_went_wrong() -> None:
    rig = Watched()
    assert rig.window.room(0) == rig.window.room(MOST) == MOST
    rig.answer(100)
    assert rig.window.room(100_000) == MOST


def test_after_a_loss_one_batch_goes_at_a_time() -> None:
    rig = Watched()
    rig.lose()
    assert rig.window.room(0) == LEAST
    assert rig.window.room(1) == LEAST - 1
    assert rig.window.room(LEAST) == rig.window.room(10 * LEAST) == 0
    rig.answer(LEAST)
    assert rig.window.room(LEAST) == LEAST


def test_requests_are_held_back_after_an_answer_that_took_too_long() -> None:
    rig = Watched()
    rig.answer(3100)
    rig.answer(200, seconds=4.0)
    assert rig.window.room(150) == 0
    assert rig.window.room(0) == 150


def test_when_all_is_regained_requests_are_free() -> None:
    rig = Watched(most=400)
    rig.lose()
    for _ in range(20):
        rig.answer(rig.window.size)
    assert rig.window.room(1_000_000) == 400


def test_a_clock_that_stands_still_is_no_slow_answer() -> None:
    rig = Watched()
    assert rig.answer(100, seconds=0.0) == 200


def test_one_batch_may_be_larger_than_all_that_may_be_under_way() -> None:
    rig = Watched(least=500, most=100)
    assert rig.answer(500) == 500
    assert rig.lose() == 500

"""A batch that ends unacknowledged, with none sent behind it, leaves a gap in the sequences."""

from __future__ import annotations

import pytest

from kprod.sender.partition import Place
from tests.unit.sender.sequencing import Line, place


@pytest.mark.parametrize("maybe", [False, True])
def test_after_a_batch_that_may_be_missing_the_next_begins_a_new_epoch(maybe: bool) -> None:
    line = Line()
    line.prove()
    ended = line.send()
    ended.maybe_written = maybe
    line.give_up(ended)
    following = line.batch()
    assert not line.admits(following)
    assert line.renumber() == []
    assert place(line.send(following)) == (7, 1, 0)
    line.acknowledge(following)
    assert place(line.send()) == (7, 1, 1)


def test_a_batch_behind_a_missing_one_tells_whether_a_new_epoch_is_needed() -> None:
    line = Line()
    line.prove()
    ended, behind = line.send(), line.send()
    line.give_up(ended)
    assert line.renumber() == []
    line.acknowledge(behind)
    assert place(line.send()) == (7, 0, 3)


def test_what_was_sent_before_a_missing_batch_keeps_its_epoch() -> None:
    line = Line()
    line.prove()
    before, ended, following = line.send(), line.send(), line.batch()
    line.refuse(before, maybe=True)
    line.give_up(ended)
    assert line.renumber() == []
    line.send(before)
    assert place(before) == (7, 0, 1)
    assert not line.admits(following)
    line.partition().move(Place.WAITING)
    line.acknowledge(before)
    assert line.partition().place is Place.READY
    assert line.renumber() == []
    assert place(line.send(following)) == (7, 1, 0)


def test_a_batch_that_was_never_sent_leaves_no_gap() -> None:
    line = Line()
    line.prove()
    line.partition().resolved(line.batch())
    assert line.renumber() == []
    assert place(line.send()) == (7, 0, 1)


def test_without_idempotence_no_batch_leaves_a_gap() -> None:
    line = Line(idempotent=False)
    line.give_up(line.send())
    assert line.admits(line.batch())

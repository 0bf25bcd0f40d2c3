"""What a partition makes of an idempotent producer's sequences."""

from __future__ import annotations

import pytest

from kprod.broker.log.producer_state import ProducerState
from kprod.errors import BrokerError
from kprod.records.record_batch import BatchHeader
from tests.support.raw_batch import raw_batch

OUT_OF_ORDER, OLD_EPOCH = 45, 47
LAST_SEQUENCE = 2**31 - 1


def header(first: int, count: int, epoch: int = 0, offset: int = 0, pid: int = 7) -> BatchHeader:
    changes = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": first}
    return BatchHeader.parse(raw_batch([b"v"] * count, base_offset=offset, **changes))


def state_after(*headers: BatchHeader) -> ProducerState:
    state = ProducerState()
    for each in headers:
        state.check(each)
        state.update(each)
    return state


def refusal(state: ProducerState, each: BatchHeader) -> int:
    with pytest.raises(BrokerError) as caught:
        state.check(each)
    return caught.value.code


def test_a_resent_batch_is_known_by_its_sequences() -> None:
    state = state_after(header(0, 3, offset=100), header(3, 2, offset=200))
    again = state.duplicate_of(header(0, 3))
    assert again is not None
    assert again.first_offset == 100
    assert again.timestamp == 1_000
    assert state.duplicate_of(header(0, 2)) is None
    assert state.duplicate_of(header(0, 3, epoch=1)) is None
    assert state.duplicate_of(header(0, 3, pid=8)) is None


def test_sequences_go_on_without_gap() -> None:
    state = state_after(header(0, 3), header(3, 2))
    state.check(header(5, 1))
    assert refusal(state, header(7, 1)) == OUT_OF_ORDER
    assert refusal(state, header(1, 1)) == OUT_OF_ORDER


def test_an_epoch_begins_at_zero_and_ends_the_one_before() -> None:
    state = state_after(header(0, 3, epoch=4))
    assert refusal(state, header(1, 1, epoch=5)) == OUT_OF_ORDER
    assert refusal(state, header(3, 1, epoch=3)) == OLD_EPOCH
    state.check(header(0, 1, epoch=5))
    state.update(header(0, 1, epoch=5))
    assert state.duplicate_of(header(0, 3, epoch=4)) is None
    assert refusal(state, header(3, 1, epoch=4)) == OLD_EPOCH


def test_an_unknown_producer_may_start_anywhere() -> None:
    ProducerState().check(header(1234, 1, epoch=9))


def test_five_batches_are_remembered() -> None:
    state = state_after(*(header(n, 1, offset=n) for n in range(6)))
    assert state.duplicate_of(header(0, 1)) is None
    assert refusal(state, header(0, 1)) == OUT_OF_ORDER
    for n in range(1, 6):
        known = state.duplicate_of(header(n, 1))
        assert known is not None
        assert known.first_offset == n


def test_sequences_wrap_to_zero() -> None:
    state = state_after(header(LAST_SEQUENCE - 1, 2))
    assert refusal(state, header(LAST_SEQUENCE, 1)) == OUT_OF_ORDER
    state.check(header(0, 1))

    across = state_after(header(LAST_SEQUENCE - 5, 10))
    assert across.duplicate_of(header(LAST_SEQUENCE - 5, 10)) is not None
    across.check(header(4, 1))


def test_a_snapshot_goes_on_where_the_batches_before_it_end() -> None:
    seen, snapshot = state_after(header(0, 1), header(1, 1)), state_after(header(1, 1))
    snapshot.update(header(5, 1, pid=9))
    seen.resume(snapshot)
    assert len(seen) == 2
    seen.check(header(2, 1))
    seen.check(header(6, 1, pid=9))
    assert seen.duplicate_of(header(0, 1)) is not None, "the snapshot knows the last batch only"

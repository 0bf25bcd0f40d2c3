"""What a partition makes of an idempotent producer's sequences."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from kprod.broker.log.producer_state import ProducerState
from kprod.errors import BrokerError
from kprod.records.record_batch import BatchHeader
from tests.support.raw_batch import raw_batch

OUT_OF_ORDER, OLD_EPOCH = 45, 47
LAST_SEQUENCE = 2**31 - 1


def header(first: int, count: int, epoch: int = 0, offset: int = 0, pid: int = 7) -> BatchHeader:
    changes = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": first}
    return BatchHeader.parse(raw_batch([b"v"] * count, base_offset=offset, **changes))


def refusal(state: ProducerState, each: BatchHeader) -> int:
    """The code, or 0."""
    try:
        state.check(each)
    except BrokerError as error:
        return error.code
    return 0


steps = st.lists(
    st.tuples(st.integers(-1, 1), st.just(0) | st.integers(-8, 2), st.integers(1, 2)), max_size=20
)


@given(st.sampled_from([0, 1234, LAST_SEQUENCE - 3, LAST_SEQUENCE]), steps)
@example(0, [*[(0, 0, 1)] * 5, (0, -6, 1), (0, -5, 1)])  # five batches are remembered
@example(LAST_SEQUENCE - 1, [(0, 0, 3), (0, -3, 3)])
def test_a_batch_is_the_next_one_or_known_or_refused(
    first: int, steps: list[tuple[int, int, int]]
) -> None:
    """Each step: how far epoch and sequence are from what comes next, and a count of records.

    An unknown producer may start anywhere, an epoch starts at zero, and sequences wrap to zero.
    """
    state = ProducerState()
    batch = header(first, 1)
    assert refusal(state, batch) == 0
    state.update(batch)
    stored, epoch = [(first, 1, 0)], 0
    for offset, (epochs, ahead, count) in enumerate(steps, 1):
        last, records, _ = stored[-1]
        expected = 0 if epochs > 0 else (last + records) % (LAST_SEQUENCE + 1)
        sequence = (expected + ahead) % (LAST_SEQUENCE + 1)
        batch = header(sequence, count, epoch + epochs, offset)
        known = state.duplicate_of(batch)
        again = [at for *sent, at in stored[-5:] if (epochs, *sent) == (0, sequence, count)]
        assert ([] if known is None else [known.first_offset]) == again
        code = OLD_EPOCH if epochs < 0 else OUT_OF_ORDER if ahead else 0
        assert refusal(state, batch) == code
        assert state.duplicate_of(header(sequence, count, epoch, pid=8)) is None
        if code == 0:
            state.update(batch)
            epoch += epochs
            stored = [*([] if epochs else stored), (sequence, count, offset)]


def test_a_snapshot_goes_on_where_the_batches_before_it_end() -> None:
    seen, snapshot = ProducerState(), ProducerState()
    for number in range(2):
        seen.update(header(number, 1))
    snapshot.update(header(1, 1))
    snapshot.update(header(5, 1, pid=9))
    seen.resume(snapshot)
    assert len(seen) == 2
    seen.check(header(2, 1))
    seen.check(header(6, 1, pid=9))
    assert seen.duplicate_of(header(0, 1)) is not None, "the snapshot knows the last batch only"

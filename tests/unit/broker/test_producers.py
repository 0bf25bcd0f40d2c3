"""Producer state of a broker: ids, sequences, snapshots and transaction records."""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from kprod.broker.log.checkpoint_files import StorageError
from kprod.broker.log.producer_snapshot import read_snapshot, write_snapshot
from kprod.broker.log.producer_state import AppendedBatch, ProducerEntry, ProducerState
from kprod.broker.transactions.transaction import ProducerIds, Transaction, TransactionState
from kprod.broker.transactions.transaction_topic import (
    read_transaction,
    read_transaction_key,
    transaction_key,
    transaction_value,
)
from kprod.errors import BrokerError, ProtocolError
from kprod.records.record_batch import BatchHeader
from kprod.types import TopicPartition
from tests.support.raw_batch import raw_batch


def test_producer_ids_are_never_reused(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    first = [ProducerIds(path).take() for _ in range(3)]
    assert first == [0, 1000, 2000]
    ids = ProducerIds(path)
    many = [ids.take() for _ in range(2500)]
    assert many == list(range(3000, 5500))
    assert ProducerIds(path).take() == 6000


@pytest.mark.parametrize("content", ["", "1\n5\n", "0\n", "0\n-3\n", "0\nx\n"])
def test_an_invalid_id_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "ids"
    path.write_text(content)
    with pytest.raises(StorageError):
        ProducerIds(path)


# Sequences of an idempotent producer --------------------------------------------------------------


OUT_OF_ORDER, OLD_EPOCH = 45, 47
LAST_SEQUENCE = 2**31 - 1


def header(first: int, count: int, epoch: int = 0, offset: int = 0, pid: int = 7) -> BatchHeader:
    changes = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": first}
    return BatchHeader.parse(raw_batch([b"v"] * count, base_offset=offset, **changes))


def refusal(state: ProducerState, each: BatchHeader) -> int:
    """The error code, or 0."""
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
def test_a_batch_is_the_next_one_a_duplicate_or_refused(
    first: int, steps: list[tuple[int, int, int]]
) -> None:
    """Each step: distance of epoch and sequence from the expected ones, and a count of records.

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


def test_a_snapshot_continues_the_state_of_earlier_batches() -> None:
    seen, snapshot = ProducerState(), ProducerState()
    for number in range(2):
        seen.update(header(number, 1))
    snapshot.update(header(1, 1))
    snapshot.update(header(5, 1, pid=9))
    seen.resume(snapshot)
    assert len(seen) == 2
    seen.check(header(2, 1))
    seen.check(header(6, 1, pid=9))
    assert seen.duplicate_of(header(0, 1)) is not None, "the snapshot has only the last batch"


# On disk ------------------------------------------------------------------------------------------


FIRST = ProducerEntry(3, deque([AppendedBatch(17, 900, 5, 1234)], 5), 12, 895, 1234)
STATE = ProducerState([(4000, FIRST), (4001, ProducerEntry(4))])


def test_a_snapshot_has_the_layout_of_kafka(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 901, STATE)
    data = (tmp_path / "00000000000000000901.snapshot").read_bytes()
    rest = struct.pack(">iqhiqiqiq", 2, 4000, 3, 17, 900, 5, 1234, 12, 895)
    rest += struct.pack(">qhiqiqiq", 4001, 4, -1, -1, 0, -1, -1, -1)
    assert data == struct.pack(">hI", 1, crc32c(rest)) + rest


def test_a_damaged_snapshot_is_ignored(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 902, STATE)
    path = tmp_path / "00000000000000000902.snapshot"
    whole = path.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        assert read_snapshot(tmp_path, 902) is None
        path.write_bytes(whole[:at])
        assert read_snapshot(tmp_path, 902) is None


# Kafka's layout of ``__transaction_state``, byte by byte ------------------------------------------


PARTITIONS = frozenset({TopicPartition("u", 3), TopicPartition("t", 1), TopicPartition("t", 0)})
ONGOING = Transaction(
    "my-id", 4000, 7, 60_000, TransactionState.ONGOING, PARTITIONS, 1_000, 2_000, client_version=0
)
EMPTY = Transaction("my-id", 4000, 7, 60_000, updated_ms=2_000)
TAGGED = replace(ONGOING, previous_producer_id=5, next_producer_id=6, client_version=2)
PRODUCER, TIMES = struct.pack(">qhi", 4000, 7, 60_000), struct.pack(">qq", 2_000, 1_000)
NOT_STARTED = struct.pack(">qq", 2_000, -1)
OLD = b"\0\0\0\2\0\1t" + struct.pack(">iii", 2, 0, 1) + b"\0\1u" + struct.pack(">ii", 1, 3)
COMPACT = b"\3\2t\3" + struct.pack(">ii", 0, 1) + b"\0\2u\2" + struct.pack(">i", 3) + b"\0"
TAGS = b"\3\0\x08" + struct.pack(">q", 5) + b"\1\x08" + struct.pack(">q", 6)
TAGS += b"\2\2" + struct.pack(">h", 2)


def test_transaction_keys() -> None:
    assert transaction_key("my-id") == b"\0\0\0\x05my-id"
    assert read_transaction_key(b"\0\0\0\x05my-id") == "my-id"
    assert read_transaction_key(b"\0\1\0\x05my-id") is None, "a newer version"


@pytest.mark.parametrize(
    ("transaction", "server_version", "value"),
    [
        (ONGOING, 0, b"\0\0" + PRODUCER + b"\1" + OLD + TIMES),
        (ONGOING, 1, b"\0\1" + PRODUCER + b"\1" + COMPACT + TIMES + b"\0"),
        (ONGOING, 2, b"\0\1" + PRODUCER + b"\1" + COMPACT + TIMES + b"\0"),
        (TAGGED, 2, b"\0\1" + PRODUCER + b"\1" + COMPACT + TIMES + TAGS),
        (EMPTY, 0, b"\0\0" + PRODUCER + b"\0" + b"\xff\xff\xff\xff" + NOT_STARTED),
        (EMPTY, 2, b"\0\1" + PRODUCER + b"\0" + b"\0" + NOT_STARTED + b"\0"),
    ],
    ids=["0", "1", "2", "2 with tags", "0 without partitions", "2 without partitions"],
)
def test_transaction_values(transaction: Transaction, server_version: int, value: bytes) -> None:
    assert transaction_value(transaction, server_version) == value
    assert read_transaction("my-id", value) == transaction


def test_newer_values_are_ignored_and_broken_ones_refused() -> None:
    assert read_transaction("x", b"\0\2") is None
    whole = transaction_value(ONGOING, 2)
    for cut in range(2, len(whole)):
        with pytest.raises(ProtocolError):
            read_transaction("x", whole[:cut])
    with pytest.raises(ValueError, match="99"):
        read_transaction("x", whole[:16] + b"\x63" + whole[17:])

"""Atomic batches without Spark: tasks prepare transactions, drivers end them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.admin import open_transactions
from kprod.broker import ApiKey, EmbeddedBroker, Fault, TransactionConfig
from kprod.errors import ProducerFencedError
from kprod.exactly_once import atomic
from kprod.exactly_once.errors import BatchIncomplete, RowsChanged, TransactionTooSlow
from kprod.exactly_once.protocol import decided
from kprod.exactly_once.shard import Shard
from kprod.exactly_once.steps import Delivered, PreparedShard
from kprod.spark.job_tasks import BatchEnd, TaskOutcome, commit_batch, end_here
from kprod.spark.options import job_options
from kprod.spark.partition_writer import task_writer
from kprod.spark.shard_rows import TaskRows
from kprod.transactional.two_phase_commit import PreparedTransaction
from tests.spark.exactly_once.attempts import attempt as attempted
from tests.spark.exactly_once.test_shards import PARTITIONS, assert_there, deliver, shard


@pytest.fixture(scope="module", params=[1, 2], ids=["protocol-1", "protocol-2"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    config = TransactionConfig(transaction_version=request.param)
    with EmbeddedBroker(default_partitions=PARTITIONS, transaction_config=config) as broker:
        yield broker.bootstrap_servers


def options(servers: str) -> dict[str, Any]:
    return job_options({"bootstrap_servers": servers}, transactional=True)


def write(
    servers: str,
    wanted: Shard,
    rows: Sequence[bytes],
    attempt: int = 0,
    before_rows: Callable[[], object] = lambda: None,
) -> Delivered:
    def send_rows(producer: Any) -> None:
        before_rows()
        for row in rows:
            producer.send(wanted.topic, row)

    with attempted(wanted, options(servers), send_rows) as run:
        return run.follow(atomic.prepare(run.shard, attempt, run.patience))


def rows_of(number: int) -> list[bytes]:
    return [b"%d of %d" % (row, number) for row in range(10)]


def prepared(servers: str, topic: str, **values: Any) -> list[PreparedShard]:
    found = [write(servers, shard(topic, n, **values), rows_of(n)).prepared for n in (0, 1)]
    return [one for one in found if one is not None]


def end(servers: str, topic: str, of: Sequence[PreparedShard], **values: Any) -> BatchEnd:
    of_driver = shard(topic, **values)
    made = BatchEnd(of=of_driver, shards=2, prepared=tuple(of), options=options(servers))
    shipped: BatchEnd = pickle.loads(pickle.dumps(made))
    return shipped


BOTH = rows_of(0) + rows_of(1)


def test_rows_become_visible_when_the_batch_is_committed(servers: str) -> None:
    waiting = prepared(servers, "whole")
    assert {one.transaction.transactional_id for one in waiting} == {"p.whole.0/0", "p.whole.1/0"}
    assert all(one.transaction.began_ms for one in waiting)
    assert len(open_transactions(servers)) == 2
    ended = end(servers, "whole", waiting)
    assert ended.commit().by_us
    assert_there(servers, "whole", BOTH)
    assert not ended.commit().by_us, "a second call finds the decision"
    assert ended.abort().committed, "an abort after the decision commits"
    assert_there(servers, "whole", BOTH)
    again = [write(servers, shard("whole", n, run="second"), rows_of(n)) for n in (0, 1)]
    assert [(one.by_us, one.prepared) for one in again] == [(False, None)] * 2
    assert_there(servers, "whole", BOTH)


def test_a_committed_batch_is_there_for_a_run_with_exactly_once_delivery(servers: str) -> None:
    topic = "downgraded"
    assert end(servers, topic, prepared(servers, topic)).commit().by_us
    again = [deliver(servers, shard(topic, n, run="second"), rows_of(n)) for n in (0, 1)]
    assert [one.by_us for one in again] == [False, False]
    assert_there(servers, topic, BOTH)


def test_rows_for_a_shard_that_was_empty_in_the_decided_batch_are_refused(servers: str) -> None:
    topic = "filled"
    assert end(servers, topic, prepared(servers, topic)[:1]).commit().by_us
    with pytest.raises(RowsChanged, match="had no rows when the commit decision"):
        deliver(servers, shard(topic, 1, run="second"), rows_of(1))
    assert_there(servers, topic, rows_of(0))


def test_an_attempt_outside_the_decided_batch_aborts(servers: str) -> None:
    """A task of an earlier run commits the layout while an atomic task writes."""
    topic = "outlived"

    def first() -> None:
        deliver(servers, shard(topic, run="first"), rows_of(0))

    with pytest.raises(ProducerFencedError, match="without this attempt"):
        write(servers, shard(topic, 1, run="second"), rows_of(1), before_rows=first)
    assert not [one for one in open_transactions(servers) if topic in one.transactional_id]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_commit_interrupted_after_its_decision_is_completed(
    servers: str, error: type[BaseException]
) -> None:
    """After an error the caller would write the batch again, twice in all."""
    topic = f"decided-{error.__name__}"
    writer = task_writer(topic, bootstrap_servers=servers, delivery="atomic")
    report = replace(writer.write(TaskRows(())), delivered="prepared")
    outcomes = [
        TaskOutcome(task=one.shard.number, report=replace(report, prepared=one))
        for one in prepared(servers, topic)
    ]

    def fails_after_end(end: BatchEnd, commits: bool) -> Any:
        ended = end_here(end, commits)
        if commits:
            raise error("the executor has died")
        return ended

    if error is RuntimeError:
        reports = [found.report for found in commit_batch(writer, outcomes, fails_after_end)]
        assert [one.delivered for one in reports if one is not None] == ["committed"] * 2
    else:
        with pytest.raises(error) as raised:
            commit_batch(writer, outcomes, fails_after_end)
        assert "do not write it again" in raised.value.__notes__[0]
    assert_there(servers, topic, BOTH)


def test_an_abort_leaves_no_rows(servers: str) -> None:
    waiting = prepared(servers, "aborted")
    write(servers, shard("aborted", 1), rows_of(1), attempt=3)
    assert not end(servers, "aborted", waiting[:1]).abort().committed
    assert_there(servers, "aborted", [])
    assert end(servers, "aborted", prepared(servers, "aborted")).commit().by_us
    assert_there(servers, "aborted", BOTH)


def test_a_batch_fails_after_half_of_the_transaction_timeout(servers: str) -> None:
    waiting = prepared(servers, "slow")
    old = [
        replace(one, transaction=one.transaction._replace(began_ms=began - 301_000))
        for one in waiting
        if (began := one.transaction.began_ms) is not None
    ]
    with pytest.raises(TransactionTooSlow, match=r"rows are visible.*Increase transaction_t"):
        end(servers, "slow", old).commit()
    assert_there(servers, "slow", [])


def test_a_decision_about_many_shards_is_split(servers: str) -> None:
    of = shard("many", shards=600)
    waiting = [
        PreparedShard(
            replace(of, number=n, attempt=n % 3),
            PreparedTransaction(f"p.many.{n}/{n % 3}", 10**9 + n, 7, level=2),
        )
        for n in range(0, 600, 2)
    ]
    pieces = decided(of, 600, waiting)
    assert len(pieces) > 1
    assert all(len(marker.metadata) <= 4_000 for _, marker in pieces)
    with KafkaProducer(**options(servers), transactional_id=of.layout_id) as producer:
        producer.partitions_for("many")
        with producer.transaction() as transaction:
            for group, marker in pieces:
                transaction.send_offsets({of.place: marker}, group)
    with pytest.raises(BatchIncomplete) as raised:
        replace(end(servers, "many", [], shards=600), prepared=()).commit()
    assert len(raised.value.missing) == 300


@pytest.mark.parametrize("api", [ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_TRANSACTIONS])
def test_a_lost_connection_while_listing_transactions_is_retried(api: ApiKey) -> None:
    with EmbeddedBroker(default_partitions=PARTITIONS) as broker:
        servers = broker.bootstrap_servers
        waiting = prepared(servers, "lost")
        lost = broker.faults.add(Fault(api=api, cut_at=0))
        assert end(servers, "lost", waiting).commit().by_us
        assert lost.hits > 1
        assert_there(servers, "lost", BOTH)

"""Attempts at one shard, without Spark."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kprod import KafkaProducer
from kprod.admin import open_transactions
from kprod.broker import ApiKey, EmbeddedBroker, Fault, TransactionConfig
from kprod.broker.log.log_config import LogConfig
from kprod.errors import ConfigError, DeliveryError, ProducerFencedError
from kprod.exactly_once import protocol
from kprod.exactly_once.errors import RowsChanged, StaleBatch, TransactionTooSlow
from kprod.exactly_once.marker import Marker
from kprod.exactly_once.runner import Runner
from kprod.exactly_once.shard import Shard
from kprod.exactly_once.steps import Delivered, FenceAll, ListOpen, Step
from kprod.spark.delivery import Scope
from kprod.spark.executor_producer import JobProducer, producer_options
from kprod.spark.options import job_options
from kprod.spark.partition_writer import PartitionWriter, partition_writer, task_writer
from kprod.spark.shard_rows import HASH_COLUMN, SHARD_COLUMN, Layout, ShardTask, TaskRows
from kprod.spark.write_result import PartitionReport, write_result
from kprod.transactional.two_phase_commit import PreparedTransaction
from tests.spark.exactly_once.attempts import attempt
from tests.support.committed_records import committed

PARTITIONS = 2


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    config = LogConfig(max_message_bytes=100_000)
    with EmbeddedBroker(default_partitions=PARTITIONS, log_config=config) as broker:
        yield broker.bootstrap_servers


def shard(topic: str, number: int = 0, **values: Any) -> Shard:
    given = {"prefix": "p", "job": topic, "batch": 0, "shards": 2, "run": "first", **values}
    return Shard(number=number, topic=topic, **given)


def deliver(
    servers: str,
    wanted: Shard,
    values: Sequence[bytes],
    meanwhile: Callable[[], object] = lambda: None,
    **given: Any,
) -> Delivered:
    """Attempt to write the shard; ``meanwhile`` is called after its rows."""

    def send_rows(producer: Any) -> None:
        for value in values:
            producer.send(wanted.topic, value)
        meanwhile()

    return deliver_by(servers, wanted, send_rows, **given)


def deliver_by(servers: str, wanted: Shard, send_rows: Any, **given: Any) -> Delivered:
    options = {"bootstrap_servers": servers, **given.pop("options", {})}
    options = job_options(options, transactional=True)
    with attempt(wanted, options, send_rows, **given) as run:
        return run.follow(protocol.deliver(run.shard, run.patience))


def rows(text: str, count: int = 50) -> list[bytes]:
    return [f"{text} {number}".encode() for number in range(count)]


def assert_there(servers: str, topic: str, expected: Sequence[bytes]) -> None:
    """These values are committed once each, and no transaction is open."""
    assert sorted(committed(servers, topic, PARTITIONS)) == sorted(expected)
    assert not [one for one in open_transactions(servers) if topic in one.transactional_id]


def test_a_shard_is_written_once_when_its_task_runs_again(servers: str) -> None:
    wanted = shard("again")
    first, second = (deliver(servers, wanted, rows("a")) for _ in range(2))
    assert (first.by_us, second.by_us) == (True, False)
    assert second.marker == first.marker
    assert first.marker.rows == sum(found[3] for found in first.marker.ranges["again"]) == 50
    assert deliver(servers, shard("again", batch=1), rows("b")).by_us
    assert_there(servers, "again", rows("a") + rows("b"))


def test_a_fenced_attempt_without_a_winner_fails(servers: str) -> None:
    wanted, slept = shard("alone", shards=None), list[float]()

    def another_takes_over() -> None:
        with KafkaProducer(
            bootstrap_servers=servers, transactional_id=wanted.transactional_id
        ) as other:
            other.init_transactions()

    given = {"sleep": slept.append, "options": {"transaction_timeout_ms": 20_000}}
    with pytest.raises(ProducerFencedError, match="or another job of this name"):
        deliver(servers, wanted, rows("a"), another_takes_over, **given)
    assert 10 <= sum(slept) < 12, "half of the transaction timeout"
    assert_there(servers, "alone", [])


def deliver_placed(
    servers: str, wanted: Shard, values: list[bytes], after: int = 0, then: Any = None
) -> Delivered:
    """Write rows of ``sharded``; ``then`` is called after ``after`` rows."""
    packed = Layout(wanted.number, wanted.shards or 1).packed
    items = [
        {"value": value, SHARD_COLUMN: packed, HASH_COLUMN: zlib.crc32(value) - (1 << 63)}
        for value in values
    ]
    placed = TaskRows(items)
    placed.place(wanted.number)

    def send_rows(producer: Any) -> None:
        for number, item in enumerate(placed.each()):
            producer.send(wanted.topic, item["value"])
            if then is not None and number + 1 == after:
                then()

    return deliver_by(servers, wanted, send_rows, rows=placed)


def test_other_rows_of_equal_number_and_size_are_detected(servers: str) -> None:
    """Their order may change: a shuffle does not keep it."""
    wanted = shard("alike")
    assert deliver_placed(servers, wanted, rows("a")).by_us
    assert not deliver_placed(servers, replace(wanted, run="again"), rows("a")[::-1]).by_us
    with pytest.raises(RowsChanged, match="now has as many different rows"):
        deliver_placed(servers, replace(wanted, run="new checkpoint"), rows("b"))
    assert_there(servers, "alike", rows("a"))


@pytest.mark.parametrize(
    ("other", "are_others"),
    [(rows("b"), True), (rows("a", 49), True), (rows("a")[::-1], False)],
    ids=["as many others", "fewer", "in another order"],
)
def test_a_fenced_copy_compares_its_rows_with_the_winner(
    servers: str, other: list[bytes], are_others: bool
) -> None:
    """Two attempts of one call: the fenced one has sent some rows, and counts the rest."""
    topic = f"copies-{len(other)}-{are_others}"
    wanted = shard(topic)

    def is_fenced() -> None:
        assert deliver_placed(servers, wanted, rows("a")).by_us

    if are_others:
        with pytest.raises(RowsChanged, match="Nothing was written or dropped"):
            deliver_placed(servers, wanted, other, 20, is_fenced)
    else:
        assert not deliver_placed(servers, wanted, other, 20, is_fenced).by_us
    assert_there(servers, topic, rows("a"))


def test_job_names_that_share_a_prefix_have_distinct_ids() -> None:
    """Such as shard 1 of "names" and the layout of "names.1"."""
    shards = [shard("t", number, job=job) for job in ("names.1", "names") for number in range(2)]
    names = [(one.transactional_id, one.group) for one in shards]
    layouts = [(one.layout_id, one.layout_id) for one in shards[::2]]
    assert len({name for pair in (*names, *layouts) for name in pair}) == len(names + layouts)


def test_an_attempt_fenced_by_a_later_batch_reports_it(servers: str) -> None:
    def is_fenced() -> None:
        assert deliver(servers, shard("later", batch=3), rows("b")).by_us

    with pytest.raises(StaleBatch, match="batch 3 was already written"):
        deliver(servers, shard("later", batch=2), rows("a"), is_fenced)
    assert_there(servers, "later", rows("b"))


def test_a_shard_fails_after_half_of_the_transaction_timeout(servers: str) -> None:
    now = iter([5000.0, 5301.0])
    text = r" 301 s.*600 s: increase transaction_timeout_ms"
    with pytest.raises(TransactionTooSlow, match=text):
        deliver(servers, shard("slow"), rows("a"), now=lambda: next(now, 5301.0))
    assert_there(servers, "slow", [])


@pytest.mark.parametrize("rows_after", [0, 5], ids=["at its end", "among its rows"])
@pytest.mark.parametrize("written_meanwhile", [False, True])
@pytest.mark.parametrize("level", [0, 2])
def test_an_attempt_frozen_beyond_its_timeout_ends_at_once(
    level: int, written_meanwhile: bool, rows_after: int
) -> None:
    """Its transaction was aborted. It fails unless another attempt has committed."""
    now, slept = [0.0], list[float]()
    expected = rows("a", 5 + rows_after)
    with EmbeddedBroker(topics={"asleep": PARTITIONS}) as broker:
        servers = broker.bootstrap_servers
        broker.set_transaction_version(level)
        wanted = shard("asleep", shards=None)

        def freezes(producer: Any) -> None:
            for row in expected[:5]:
                producer.send("asleep", row)
            broker.records("asleep", 5)  # waits for them
            broker.time_out_transactions()
            if written_meanwhile:
                assert deliver(servers, wanted, expected).by_us
            now[0] += 601.0
            for row in expected[5:]:
                producer.send("asleep", row)

        given: dict[str, Any] = {"now": lambda: now[0], "sleep": slept.append}
        if written_meanwhile:
            assert not deliver_by(servers, wanted, freezes, **given).by_us
        else:
            with pytest.raises(TransactionTooSlow, match="601 s"):
                deliver_by(servers, wanted, freezes, **given)
        assert slept == []
        assert_there(servers, "asleep", expected if written_meanwhile else [])


def test_a_transaction_timeout_above_the_brokers_limit_is_refused() -> None:
    allows = TransactionConfig(max_timeout_ms=60_000)
    with EmbeddedBroker(default_partitions=PARTITIONS, transaction_config=allows) as broker:
        servers = broker.bootstrap_servers
        with pytest.raises(ConfigError, match=r"600,000.*transaction\.max\.timeout\.ms"):
            deliver(servers, shard("long"), rows("a"))
        given = {"transaction_timeout_ms": 60_000}
        assert deliver(servers, shard("long"), rows("a"), options=given).by_us


def test_a_record_that_the_broker_refuses_fails_the_shard(servers: str) -> None:
    with pytest.raises(DeliveryError, match="1 of 1 records failed"):
        deliver(servers, shard("large"), [random.Random(1).randbytes(200_000)])
    assert_there(servers, "large", [])


def batches(layout: Layout | None, *values: str) -> Iterator[pa.RecordBatch]:
    for value in values:
        columns: dict[str, Any] = {"value": [value]}
        if layout is not None:
            columns[SHARD_COLUMN] = pa.array([layout.packed], pa.int64())
        yield pa.RecordBatch.from_pydict(columns)


def test_a_writer_refuses_rows_of_other_tasks(servers: str) -> None:
    """Without shards, one task could call a writer for several partitions."""
    given: dict[str, Any] = {"bootstrap_servers": servers, "delivery": "exactly_once"}
    placed = partition_writer("placed", **given, job_id="job")
    with pytest.raises(ConfigError, match=r"kprod.spark.sharded\(df, 8\)"):
        placed(batches(None, "a"))
    with pytest.raises(ConfigError, match="task -1 has rows of shard 1: rows have been moved"):
        placed(batches(Layout(1, 2), "a"))
    for items in (batches(None, "a"), iter(["a"])):
        with pytest.raises(ConfigError, match=r"several partitions, as after coalesce\(\)"):
            partition_writer("folded", **given)(items)


def write_call(servers: str, topic: str, job: str) -> PartitionWriter:
    """The writer of a ``write`` without a ``job_id``."""
    writer = task_writer(topic, bootstrap_servers=servers, delivery="exactly_once")
    assert writer.terms is not None
    return replace(writer, terms=replace(writer.terms, scope=Scope.CALL, fresh=job))


@pytest.mark.parametrize("batches_without_rows", [0, 2])
def test_a_shard_without_rows_is_reported_as_empty(servers: str, batches_without_rows: int) -> None:
    empty = next(batches(Layout(0, 2), "a")).slice(1)
    report = write_call(servers, "empty", "empty").write(TaskRows([empty] * batches_without_rows))
    result = write_result([report], 1.0)
    assert (report.delivered, report.records, report.transactional_id) == ("empty", 0, None)
    assert (result.committed, result.already_there, result.rewritten) == (0, 0, 0)


@pytest.mark.parametrize("arrow", [True, False])
def test_attempts_of_a_call_write_once_and_compare_their_rows(servers: str, arrow: bool) -> None:
    topic = f"writer-{arrow}"
    writer = write_call(servers, topic, topic)

    def attempt_with(*values: str) -> PartitionReport:
        return writer.write(TaskRows(batches(None, *values) if arrow else values))

    for delivered in ("committed", "already_there"):
        report = attempt_with("a", "b")
        assert (report.delivered, report.records, report.bytes) == (delivered, 2, 2)
    for other in (("a",), ("a", "bb")):
        with pytest.raises(RowsChanged):
            attempt_with(*other)
    assert_there(servers, topic, [b"a", b"b"])


def test_a_slow_fenced_attempt_compares_all_its_rows(servers: str) -> None:
    """It exceeds its time between two rows after it was fenced."""
    wanted = shard("late", shards=None)
    values = TaskRows(iter([b"a", b"b"]))
    clock = [0.0]

    def send(producer: Any, tick: Callable[[], None]) -> None:
        def ticks() -> None:
            if clock[0] == 0.0 and values.count == 1:
                assert deliver(servers, wanted, [b"a", b"b"]).by_us
                clock[0] = 400.0
            tick()

        for value in values.each(ticks):
            producer.send("late", value)
            producer.finish()

    options = job_options({"bootstrap_servers": servers}, transactional=True)
    task = ShardTask(rows=values, send=send, of_job=JobProducer(options=options))
    given: dict[str, Any] = {"options": producer_options(options), "now": lambda: clock[0]}
    with Runner(shard=wanted, rows=task, **given) as runner:
        assert not runner.follow(protocol.deliver(wanted, runner.patience)).by_us
    assert_there(servers, "late", [b"a", b"b"])


def test_a_marker_keeps_below_the_metadata_limit_of_brokers() -> None:
    many = {"t": [[n, 10**12, 10**12 + 1, 1] for n in range(500)]}
    assert len(Marker(batch=1, ranges=many).metadata) < 4_000
    assert '"ranges"' in Marker(batch=1, ranges={"t": [[0, 1, 2, 2]]}).metadata


class Closing:
    """A plug-in that counts how often it is closed."""

    closed = 0

    def on_send(self, record: Any) -> Any:
        return record

    def close(self) -> None:
        self.closed += 1


def options_of(servers: str) -> dict[str, Any]:
    return producer_options(job_options({"bootstrap_servers": servers}, transactional=True))


def test_fencing_does_not_close_the_plug_ins_of_a_job(servers: str) -> None:
    plugin = Closing()

    def fence() -> Generator[Step, Any, None]:
        yield FenceAll(("p.plugged.7/0",))

    options = {**options_of(servers), "interceptor.classes": [plugin]}
    with Runner(shard=shard("plugged"), options=options) as runner:
        runner.follow(fence())
    assert plugin.closed == 0


def test_only_transactions_of_the_job_are_described() -> None:
    """A lost connection is retried."""
    pauses: list[float] = []

    def find() -> Generator[Step, Any, list[PreparedTransaction]]:
        found: list[PreparedTransaction] = yield ListOpen("p.listed")
        return found

    with EmbeddedBroker() as broker:
        options = options_of(broker.bootstrap_servers)
        with KafkaProducer(**options, transactional_id="other") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"v").get(timeout=20)
            broker.faults.add(Fault(api=ApiKey.LIST_TRANSACTIONS, cut_at=0))
            described = broker.faults.add(Fault(api=ApiKey.DESCRIBE_TRANSACTIONS, times=0))
            with Runner(shard=shard("listed"), options=options, sleep=pauses.append) as runner:
                assert runner.follow(find()) == []
    assert (pauses, described.hits) == ([0.1], 0)


def test_an_error_on_close_does_not_replace_the_error_of_the_attempt(servers: str) -> None:
    options, wanted = options_of(servers), shard("closing")

    @contextmanager
    def lend(_: str) -> Iterator[Any]:
        with KafkaProducer(**options, transactional_id="closing") as producer:
            try:
                yield producer
            finally:
                raise RuntimeError("no close")

    def run() -> None:
        with Runner(shard=wanted, options=options, lend=lend) as runner:
            runner.follow(protocol.read_decision(wanted, wait=False))
            raise ValueError("of the attempt")

    with pytest.raises(ValueError, match="of the attempt") as raised:
        run()
    assert "no close" in raised.value.__notes__[0]

"""``kprod transactions``: list, describe, commit and abort."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from typer.testing import CliRunner, Result

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker, TransactionConfig
from kprod.cli.app import app
from kprod.errors import TransactionError
from kprod.exactly_once.marker import Marker
from kprod.transactional.two_phase_commit import TwoPhaseCommit
from kprod.types import TopicPartition
from tests.integration.cli.processes import process_tree
from tests.support.tier import one_of


@pytest.fixture(params=one_of(2, 1), ids=["protocol-2", "protocol-1"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    config = TransactionConfig(transaction_version=request.param)
    with EmbeddedBroker(topics={"orders": 2}, transaction_config=config) as running:
        yield running


def transactions(broker: EmbeddedBroker, *arguments: str, answer: str = "") -> Result:
    command = ["transactions", *arguments, "--bootstrap-servers", broker.bootstrap_servers]
    return CliRunner().invoke(app, command, input=answer)


def prepare(broker: EmbeddedBroker, name: str, timeout_ms: int = 60_000) -> None:
    """Leave open a transaction with one record for each partition."""
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in (0, 1):
            producer.send("orders", name.encode(), partition=number)
        TwoPhaseCommit(producer).prepare()


def values(broker: EmbeddedBroker) -> list[bytes]:
    return [record.value or b"" for record in broker.records("orders", committed=True)]


def test_list_shows_open_transactions(broker: EmbeddedBroker) -> None:
    assert transactions(broker, "list").stdout == ""
    prepare(broker, "job.0")
    prepare(broker, "other")
    lines = transactions(broker, "list").stdout.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["job.0", "Ongoing", "for"],
        ["other", "Ongoing", "for"],
    ]
    assert all(
        re.search(r"of 60 s, 2 partitions, producer id \d+, epoch 0$", line) for line in lines
    )
    (line,) = transactions(broker, "list", "--prefix", "job.", "--json").stdout.splitlines()
    found = json.loads(line)
    assert (found["transactional_id"], found["state"]) == ("job.0", "Ongoing")
    assert found["partitions"] == [
        {"topic": "orders", "partition": 0},
        {"topic": "orders", "partition": 1},
    ]


def test_describe_shows_a_transaction_in_any_state(broker: EmbeddedBroker) -> None:
    prepare(broker, "job.0")
    lines = transactions(broker, "describe", "job.0").stdout.splitlines()
    assert lines[0].startswith("job.0: Ongoing for ")
    assert lines[1:] == ["  orders-0", "  orders-1"]
    assert transactions(broker, "commit", "job.0", "--yes").stdout == "committed job.0\n"
    described = json.loads(transactions(broker, "describe", "job.0", "--json").stdout)
    assert described["state"] in ("CompleteCommit", "Empty")
    missing = transactions(broker, "describe", "nobody")
    assert missing.exit_code == 1
    assert "no coordinator knows the transactional id 'nobody'" in missing.stderr


def test_commit_and_abort_end_prepared_transactions(broker: EmbeddedBroker) -> None:
    for name in ("job.0", "job.1", "other"):
        prepare(broker, name)
    refused = transactions(broker, "commit", "--prefix", "job.", answer="n\n")
    assert refused.exit_code == 1
    assert "job.1: Ongoing" in refused.stdout
    assert values(broker) == []
    ran = transactions(broker, "commit", "--prefix", "job.", answer="y\n")
    assert ran.stdout.endswith("committed job.0\ncommitted job.1\n")
    assert transactions(broker, "abort", "other", "--yes").stdout == "aborted other\n"
    assert sorted(values(broker)) == [b"job.0", b"job.0", b"job.1", b"job.1"]
    assert transactions(broker, "list").stdout == ""
    assert transactions(broker, "abort", "--prefix", "job.").stdout == "no open transactions\n"


def test_aborting_fences_the_producer(broker: EmbeddedBroker) -> None:
    """With EndTxn alone, a producer of protocol 1 would continue without its first record."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="alive")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"first", partition=0)
    producer.flush()
    assert transactions(broker, "abort", "alive", "--yes").exit_code == 0
    with pytest.raises(TransactionError):
        commit_another(producer)
    producer.close()
    assert values(broker) == []


def commit_another(producer: KafkaProducer) -> None:
    producer.send("orders", b"second", partition=1)
    producer.commit_transaction()


@pytest.mark.parametrize("command", one_of("abort", "commit"))
def test_a_later_transaction_of_an_id_is_not_ended(broker: EmbeddedBroker, command: str) -> None:
    """The producer began another transaction before the user confirmed."""
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id="alive"
    ) as producer:

        def begin(value: bytes) -> None:
            producer.begin_transaction()
            producer.send("orders", value)
            producer.flush()

        producer.init_transactions()
        begin(b"first")
        where = ("--bootstrap-servers", broker.bootstrap_servers)
        with process_tree("transactions", command, "alive", *where) as process:
            assert process.stdout.readline().startswith("alive: Ongoing")
            producer.commit_transaction()
            begin(b"second")
            _out, err = process.command.communicate("y\n", timeout=300)
        assert process.command.returncode == 1
        assert err.endswith("alive: this transaction is no longer open; nothing was done\n")
        assert values(broker) == [b"first"]
        producer.commit_transaction()
    assert values(broker) == [b"first", b"second"]


def test_abort_respects_the_maximum_timeout_of_the_broker() -> None:
    config = TransactionConfig(max_timeout_ms=20_000)
    with EmbeddedBroker(topics={"orders": 2}, transaction_config=config) as broker:
        prepare(broker, "short", timeout_ms=20_000)
        assert transactions(broker, "abort", "short", "--yes").stdout == "aborted short\n"


def test_nothing_is_done_if_one_transaction_is_missing(broker: EmbeddedBroker) -> None:
    prepare(broker, "job.0")
    ran = transactions(broker, "abort", "job.0", "nobody", "--yes")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "no open transaction of nobody; nothing was done" in ran.stderr
    for invalid in (["commit"], ["abort", "job.0", "--prefix", "job."]):
        assert "give transactional ids, or --prefix" in transactions(broker, *invalid).stderr
    assert len(transactions(broker, "list").stdout.splitlines()) == 1


class Position(NamedTuple):
    offset: int
    metadata: str


def decide(broker: EmbeddedBroker, group: str, batch: int, winners: str, pieces: int = 1) -> None:
    """Store the decision of an atomic batch as the Spark driver does."""
    marker = Marker(batch=batch, shards=2, winners=winners, pieces=pieces)
    write_offsets(broker, group, Position(marker.offset, marker.metadata))


def write_offsets(
    broker: EmbeddedBroker, group: str, position: Position, *, name: str = ""
) -> None:
    """Write offsets in a transaction; it stays open if it has a ``name``."""
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=name or "driver"
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TopicPartition("orders", 0): position}, group)
        if name:
            TwoPhaseCommit(producer).prepare()
        else:
            producer.commit_transaction()


def entry(broker: EmbeddedBroker, name: str, attempt: int) -> str:
    described = json.loads(transactions(broker, "describe", name, "--json").stdout)
    return f"{attempt}:{described['producer_id']}:{described['epoch']}:"


JOB = "kprod-spark.night"


def test_transactions_without_a_commit_decision_are_not_committed(broker: EmbeddedBroker) -> None:
    ids = [f"{JOB}.0/0", f"{JOB}.1/0", f"{JOB}.1/1"]
    for name in ids:
        prepare(broker, name)
    ran = transactions(broker, "commit", ids[0], "--yes")
    assert ran.exit_code == 1
    assert "its batch is not decided" in ran.stderr
    winners = f"{entry(broker, ids[0], 0)},{entry(broker, ids[2], 1)}"
    decide(broker, f"{JOB}.layout", 3, winners)
    ran = transactions(broker, "commit", "--prefix", f"{JOB}.", "--yes")
    assert ran.exit_code == 1
    assert f"{ids[1]}: the decision about batch 3" in ran.stderr
    assert ids[0] not in ran.stderr
    assert values(broker) == []
    ran = transactions(broker, "commit", ids[0], ids[2], answer="y\n")
    assert re.search(r"night.1/1: Ongoing .* epoch \d+, decided in batch 3\n", ran.stdout)
    assert transactions(broker, "abort", ids[1], "--yes").exit_code == 0
    assert sorted(values(broker)) == sorted(name.encode() for name in (ids[0], ids[2]) * 2)
    prepare(broker, ids[0])  # for the next batch, under the same id
    ran = transactions(broker, "commit", ids[0], "--yes")
    assert ran.exit_code == 1
    assert "the next batch" in ran.stderr
    assert len(values(broker)) == 4
    assert transactions(broker, "commit", ids[0], "--undecided", "--yes").exit_code == 0
    assert len(values(broker)) == 6


def test_a_decision_stored_in_several_pieces_is_read(broker: EmbeddedBroker) -> None:
    prepare(broker, "own.night.1/0")
    text = f",{entry(broker, 'own.night.1/0', 0)}"
    decide(broker, "own.night.layout/1", 0, text[3:], pieces=2)
    decide(broker, "own.night.layout", 0, text[:3], pieces=2)
    assert transactions(broker, "commit", "own.night.1/0", "--yes").exit_code == 0
    assert len(values(broker)) == 2


def test_an_open_decision_is_aborted_with_the_other_transactions(broker: EmbeddedBroker) -> None:
    """The driver died before it committed the decision; nothing else ends that transaction."""
    prepare(broker, f"{JOB}.0/0")
    marker = Marker(batch=0, shards=2, winners=entry(broker, f"{JOB}.0/0", 0), pieces=1)
    layout = f"{JOB}.layout"
    write_offsets(broker, layout, Position(marker.offset, marker.metadata), name=layout)
    ran = transactions(broker, "commit", f"{JOB}.0/0", "--yes", "--timeout", "3")
    assert ran.exit_code == 1
    assert f"an open transaction can still change the offsets of group '{layout}'" in ran.stderr
    ran = transactions(broker, "abort", "--prefix", f"{JOB}.", answer="y\n")
    assert ran.stdout.endswith(f"aborted {JOB}.0/0\naborted {layout}\n")
    assert values(broker) == []


@pytest.mark.parametrize("metadata", ["", "[]", "5", '{"kprod": 1}', "[" * 4_000])
def test_offsets_of_other_programs_are_no_decision(broker: EmbeddedBroker, metadata: str) -> None:
    prepare(broker, "x.0/0")
    write_offsets(broker, "x.layout", Position(1, metadata))
    ran = transactions(broker, "commit", "x.0/0", "--yes")
    assert "its batch is not decided" in ran.stderr
    assert values(broker) == []


def test_partly_written_transactions_of_tasks_are_not_committed(broker: EmbeddedBroker) -> None:
    """Also under another prefix: the job has a layout, or a name that is never reused."""
    decide(broker, "own.layout", 0, "")
    call = f"mine.{uuid.uuid4().hex}"
    for name in (f"{JOB}.0", f"{JOB}.layout", "own.0", f"{call}.0", f"{call}.7.0"):
        prepare(broker, name)
        ran = transactions(broker, "commit", name, "--yes")
        assert (ran.exit_code, values(broker)) == (1, [])
        assert "had not written all of its rows" in ran.stderr

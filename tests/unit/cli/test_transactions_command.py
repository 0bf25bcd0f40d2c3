"""``kprod transactions``: what is open, what a coordinator knows, and ends by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker, TransactionConfig
from kprod.cli.app import app
from kprod.errors import TransactionError
from kprod.transactional.two_phase_commit import TwoPhaseCommit


@pytest.fixture(params=[1, 2], ids=["protocol-1", "protocol-2"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    config = TransactionConfig(transaction_version=request.param)
    with EmbeddedBroker(topics={"orders": 2}, transaction_config=config) as running:
        yield running


def transactions(broker: EmbeddedBroker, *arguments: str, answer: str = "") -> Result:
    command = ["transactions", *arguments, "--bootstrap-servers", broker.bootstrap_servers]
    return CliRunner().invoke(app, command, input=answer)


def prepare(broker: EmbeddedBroker, name: str) -> None:
    """A transaction with one record for each partition, which its process leaves open."""
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=name
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in (0, 1):
            producer.send("orders", name.encode(), partition=number)
        TwoPhaseCommit(producer).prepare()


def values(broker: EmbeddedBroker) -> list[bytes]:
    return [record.value or b"" for record in broker.records("orders", committed=True)]


def test_what_is_open_is_listed(broker: EmbeddedBroker) -> None:
    assert transactions(broker, "list").stdout == ""
    prepare(broker, "job.0")
    prepare(broker, "other")
    lines = transactions(broker, "list").stdout.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["job.0", "Ongoing", "for"],
        ["other", "Ongoing", "for"],
    ]
    assert all(line.endswith("of 60 s, 2 partitions") for line in lines)
    (told,) = transactions(broker, "list", "--prefix", "job.", "--json").stdout.splitlines()
    found = json.loads(told)
    assert (found["transactional_id"], found["state"]) == ("job.0", "Ongoing")
    assert found["partitions"] == [
        {"topic": "orders", "partition": 0},
        {"topic": "orders", "partition": 1},
    ]


def test_one_is_described_in_any_state(broker: EmbeddedBroker) -> None:
    prepare(broker, "job.0")
    lines = transactions(broker, "describe", "job.0").stdout.splitlines()
    assert lines[0].startswith("job.0: Ongoing for ")
    assert lines[1].startswith("  producer id ")
    assert lines[2:] == ["  orders-0", "  orders-1"]
    assert transactions(broker, "commit", "job.0", "--yes").stdout == "committed job.0\n"
    described = json.loads(transactions(broker, "describe", "job.0", "--json").stdout)
    assert described["state"] in ("CompleteCommit", "Empty")
    missing = transactions(broker, "describe", "nobody")
    assert missing.exit_code == 1
    assert "no coordinator knows the transactional id 'nobody'" in missing.stderr


def test_what_was_prepared_is_committed(broker: EmbeddedBroker) -> None:
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


def test_a_producer_that_is_aborted_is_fenced(broker: EmbeddedBroker) -> None:
    """By an EndTxn alone, protocol 1 would let it go on without its first record."""
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


def test_nothing_is_done_when_one_is_not_there(broker: EmbeddedBroker) -> None:
    prepare(broker, "job.0")
    ran = transactions(broker, "abort", "job.0", "nobody", "--yes")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "no open transaction of nobody; nothing was done" in ran.stderr
    for wrong in (["commit"], ["abort", "job.0", "--prefix", "job."]):
        assert "give transactional ids, or --prefix" in transactions(broker, *wrong).stderr
    assert len(transactions(broker, "list").stdout.splitlines()) == 1

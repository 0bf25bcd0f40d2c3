"""``kprod verifiable-producer`` prints the events of Kafka's VerifiableProducer."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from typer.testing import CliRunner

from kprod.admin import read_topic
from kprod.broker import ApiKey, EmbeddedBroker, Fault
from kprod.cli.app import app
from tests.integration.cli.processes import process_tree


def command(servers: str, *arguments: str) -> list[str]:
    return ["verifiable-producer", "--topic", "t", "--bootstrap-server", servers, *arguments]


def events_of(servers: str, *arguments: str) -> list[dict[str, Any]]:
    ran = CliRunner().invoke(app, command(servers, *arguments))
    assert ran.exit_code == 0, ran.output
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_events_are_startup_one_per_record_and_shutdown(broker: EmbeddedBroker) -> None:
    events = events_of(broker.bootstrap_servers, "--max-messages", "100", "--throughput", "1000")
    assert [events[0]["name"], events[-2]["name"], events[-1]["name"]] == [
        *("startup_complete", "shutdown_complete", "tool_data")
    ]
    assert (events[-1]["sent"], events[-1]["acked"], events[-1]["target_throughput"]) == (
        100,
        100,
        1000,
    )
    assert all(isinstance(event["timestamp"], int) for event in events)
    sent = events[1:-2]
    assert {event["name"] for event in sent} == {"producer_send_success"}
    stored = {(p, r.offset): r.value for p, r in read_topic(broker.bootstrap_servers, "t")}
    found = {(e["partition"], e["offset"]): e["value"].encode() for e in sent if e["topic"] == "t"}
    assert found == stored
    assert sorted(int(value or b"") for value in stored.values()) == list(range(100))


def test_repeating_keys_value_prefix_and_create_time(broker: EmbeddedBroker) -> None:
    arguments = ["--repeating-keys", "2", "--value-prefix", "7", "--message-create-time", "1000"]
    events = events_of(broker.bootstrap_servers, "--max-messages", "3", *arguments)
    sent = [(event["key"], event["value"]) for event in events[1:-2]]
    assert sorted(sent) == [("0", "7.0"), ("0", "7.2"), ("1", "7.1")]
    stamps = [record.timestamp for _, record in read_topic(broker.bootstrap_servers, "t")]
    assert all(1000 <= stamp < 100_000 for stamp in stamps)


def test_a_failed_record_has_a_producer_send_error(broker: EmbeddedBroker) -> None:
    broker.faults.add(Fault(api=ApiKey.PRODUCE, error=29, times=None))
    events = events_of(broker.bootstrap_servers, "--max-messages", "1")
    assert events[1]["name"] == "producer_send_error"
    assert events[1]["value"] == "0"
    assert "TOPIC_AUTHORIZATION_FAILED" in events[1]["message"]
    assert (events[-1]["sent"], events[-1]["acked"]) == (1, 0)


def test_a_signal_ends_the_producer_after_all_events_were_printed(broker: EmbeddedBroker) -> None:
    arguments = command(broker.bootstrap_servers, "--throughput", "500")
    with process_tree(*arguments) as process:
        first = [json.loads(process.stdout.readline()) for _ in range(20)]
        process.command.terminate()
        rest = [json.loads(line) for line in process.stdout]
        assert process.command.wait(30) == 128 + signal.SIGTERM
    assert [event["name"] for event in rest[-2:]] == ["shutdown_complete", "tool_data"]
    acked = [e["value"] for e in (*first, *rest) if e["name"] == "producer_send_success"]
    stored = [r.value for _, r in read_topic(broker.bootstrap_servers, "t")]
    assert sorted(value.encode() for value in acked) == sorted(value or b"" for value in stored)
    assert rest[-1]["sent"] == rest[-1]["acked"] == len(acked)


@pytest.mark.full
@pytest.mark.parametrize("limit", [["--max-messages", "20000"], []], ids=["20,000", "no end"])
def test_it_stops_if_standard_output_is_closed(broker: EmbeddedBroker, limit: list[str]) -> None:
    arguments = command(broker.bootstrap_servers, *limit)
    with process_tree(*arguments) as process:
        assert "startup_complete" in process.stdout.readline()
        process.stdout.close()
        stderr = process.stderr.read()
        assert process.command.wait(30) == 1
    assert "Traceback" not in stderr

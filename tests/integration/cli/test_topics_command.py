"""``kprod topics``: list, create, describe and delete."""

from __future__ import annotations

import json
import os

import pytest
from typer.testing import CliRunner, Result

from kprod.broker import Authentication, EmbeddedBroker, make_listener
from kprod.cli.app import app

BROKER = {"topics": {"orders": 3, "tiny": 1}}


def topics(broker: EmbeddedBroker, *arguments: str, answer: str = "") -> Result:
    command = ["topics", *arguments, "--bootstrap-servers", broker.bootstrap_servers]
    return CliRunner().invoke(app, command, input=answer)


def names(broker: EmbeddedBroker) -> list[str]:
    ran = topics(broker, "list", "--json")
    assert ran.exit_code == 0, ran.output
    return [json.loads(line)["name"] for line in ran.stdout.splitlines()]


def test_list_prints_a_line_per_topic(broker: EmbeddedBroker) -> None:
    ran = topics(broker, "list")
    assert ran.stdout.splitlines() == [
        "orders  3 partitions, 1 replica",
        "tiny    1 partition, 1 replica",
    ]


def test_create_uses_the_given_partitions_and_options(broker: EmbeddedBroker) -> None:
    options = ["--topic-option", "cleanup.policy=compact", "--topic-option", "retention.ms=60000"]
    ran = topics(broker, "create", "fresh", "--partitions", "2", *options)
    assert (ran.exit_code, ran.stdout) == (0, "created fresh: 2 partitions, 1 replica\n")
    described = topics(broker, "describe", "fresh")
    assert described.stdout.splitlines() == [
        "fresh: 2 partitions, 1 replica",
        "  cleanup.policy=compact",
        "  retention.ms=60000",
        "  partition 0: leader 1, replicas 1, in sync 1",
        "  partition 1: leader 1, replicas 1, in sync 1",
    ]
    found = json.loads(topics(broker, "describe", "fresh", "--json").stdout)
    assert found["options"] == {"cleanup.policy": "compact", "retention.ms": "60000"}
    assert [partition["number"] for partition in found["partitions"]] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "orders"], "TOPIC_ALREADY_EXISTS (36): topic orders exists"),
        (["create", "a/b"], "a/b"),
        (["create", "fresh", "--topic-option", "no.such=1"], "no.such"),
        (["describe", "missing"], "missing"),
        (["delete", "missing", "--yes"], "missing"),
    ],
)
def test_errors_of_the_cluster_are_printed(
    broker: EmbeddedBroker, arguments: list[str], message: str
) -> None:
    ran = topics(broker, *arguments)
    assert ran.exit_code == 1
    assert ran.stderr.startswith("kprod topics: ")
    assert message in ran.stderr
    assert names(broker) == ["orders", "tiny"]


@pytest.mark.parametrize(("answer", "left"), [("n\n", ["orders", "tiny"]), ("y\n", ["orders"])])
def test_delete_asks_for_confirmation(broker: EmbeddedBroker, answer: str, left: list[str]) -> None:
    ran = topics(broker, "delete", "tiny", answer=answer)
    assert "tiny: 1 partition, 1 replica" in ran.stdout
    assert ran.exit_code == (1 if "n" in answer else 0)
    assert names(broker) == left


def test_delete_deletes_all_topics_or_none(broker: EmbeddedBroker) -> None:
    assert topics(broker, "delete", "tiny", "missing", "--yes").exit_code == 1
    assert names(broker) == ["orders", "tiny"]
    ran = topics(broker, "delete", "tiny", "orders", "tiny", "--yes")
    assert ran.stdout == "deleted tiny\ndeleted orders\n"
    assert names(broker) == []


def test_the_config_file_may_be_a_pipe(broker: EmbeddedBroker) -> None:
    """As from ``--config <(decrypt secrets)``."""
    readable, writable = os.pipe()
    with open(readable, "rb"):
        with open(writable, "w", encoding="utf-8") as config:
            config.write(f"bootstrap.servers={broker.bootstrap_servers}\n")
        command = ["topics", "delete", "tiny", "--config", f"/dev/fd/{readable}"]
        ran = CliRunner().invoke(app, command, input="y\n")
    assert ran.exit_code == 0, ran.output
    assert names(broker) == ["orders"]


def test_a_broker_that_requires_a_login_is_recognized() -> None:
    users = Authentication({"alice": "secret"})
    with EmbeddedBroker(
        listeners=[make_listener("SASL_PLAINTEXT", authentication=users)]
    ) as broker:
        ran = topics(broker, "list")
        assert ran.exit_code == 1
        where = broker.bootstrap_servers
        stderr = ran.stderr.replace("Connection reset by peer", "the broker closed the connection")
        assert stderr == (
            f"kprod topics: bootstrap broker at {where}: the broker closed the connection;"
            " does this port expect TLS or a login? see security_protocol (KP-1601)\n"
        )
        login = ("security_protocol=SASL_PLAINTEXT", "sasl_mechanism=PLAIN")
        named = (*login, "sasl_plain_username=alice", "sasl_plain_password=wrong")
        ran = topics(broker, "list", *(part for option in named for part in ("-X", option)))
        assert "the broker refused the login by PLAIN: Authentication failed" in ran.stderr


def test_the_default_port_is_9092() -> None:
    ran = CliRunner().invoke(app, ["topics", "list", "--bootstrap-servers", "no-such-host.invalid"])
    assert ran.exit_code == 1
    assert ran.stderr.startswith("kprod topics: bootstrap broker at no-such-host.invalid:9092: ")

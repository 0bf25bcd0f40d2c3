"""A broker whose disk is full goes on with the other ones."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from kprod.admin import read_topic
from kprod.broker.protocol.api_key import ApiKey
from kprod.cli.app import app
from tests.integration.cli.processes import family
from tests.integration.cli.test_broker_command import address
from tests.support.raw_batch import raw_batch
from tests.support.wire_client import WireClient

KAFKA_STORAGE_ERROR = 56
LEADER_NOT_AVAILABLE = 5
SMALL = 16 * 1024
READING = ["consume", "--topic", "t", "--from-beginning", "--until-end"]


def produce(client: WireClient, partition: int, value: bytes) -> int:
    """The error code."""
    parts = [{"index": partition, "records": raw_batch([value])}]
    body = {"acks": -1, "topic_data": [{"name": "t", "partition_data": parts}]}
    client.send(ApiKey.PRODUCE, 9, body)
    return int(client.receive(ApiKey.PRODUCE, 9)[1].responses[0].partition_responses[0].error_code)


def fetch(client: WireClient, partition: int) -> int:
    """The error code."""
    wanted = {"partition": partition, "partition_max_bytes": 100}
    body = {"max_wait": 0, "min_bytes": 0, "max_bytes": 100}
    topics = [{"topic": "t", "partitions": [wanted]}]
    client.send(ApiKey.FETCH, 11, {**body, "topics": topics})
    return int(client.receive(ApiKey.FETCH, 11)[1].responses[0].partitions[0].error_code)


def described(client: WireClient) -> dict[int, Any]:
    """The partitions of the topic in metadata."""
    client.send(ApiKey.METADATA, 9, {"topics": [{"name": "t"}]})
    found = client.receive(ApiKey.METADATA, 9)[1].topics[0].partitions
    return {part.partition_index: part for part in found}


def test_a_full_disk_takes_its_partitions_and_not_the_broker(tmp_path: Path) -> None:
    disks = [tmp_path / "one", tmp_path / "two"]
    options: tuple[str, ...] = ("--port", "0", "--topic", "t:2")
    options += tuple(part for disk in disks for part in ("--data-dir", str(disk)))
    with family("broker", *options) as broker:
        where = address(broker)
        # Files may have so many bytes: what a file system says that is full comes to the same.
        limits = resource.prlimit(broker.command.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(broker.command.pid, resource.RLIMIT_FSIZE, (SMALL, limits[1]))
        with WireClient(where) as client:
            stored = 0
            while (error := produce(client, 0, b"%d" % stored + b"x" * 1000)) == 0:
                stored += 1
            assert error == KAFKA_STORAGE_ERROR
            assert stored > 0
            assert produce(client, 0, b"small") == KAFKA_STORAGE_ERROR
            assert fetch(client, 0) == KAFKA_STORAGE_ERROR
            assert [produce(client, 1, b"%d" % number) for number in range(3)] == [0, 0, 0]
            parts = described(client)
            assert (parts[0].error_code, parts[0].leader_id) == (LEADER_NOT_AVAILABLE, -1)
            assert parts[0].offline_replicas == (1,)
            assert (parts[1].error_code, parts[1].leader_id) == (0, 1)
        reading = [*READING, "--bootstrap-servers", where]
        ran = CliRunner().invoke(app, [*reading, "--timeout", "1.5"])
        missing = "kprod consume: t-0 has no leader: the brokers answer LEADER_NOT_AVAILABLE"
        assert ran.stderr == f"{missing} (KP-1301); waiting\n{missing} (KP-1301)\n"
        assert (ran.exit_code, ran.stdout) == (1, "")
        ran = CliRunner().invoke(app, [*reading, "--partition", "1"])
        assert (ran.exit_code, ran.stdout.split()) == (0, ["0", "1", "2"]), ran.output
        broker.command.terminate()
        assert broker.command.wait(30) == 0
    with family("broker", *options) as broker:
        found = list(read_topic(address(broker), "t"))
        first = [record.value or b"" for partition, record in found if partition == 0]
        assert [value.rstrip(b"x") for value in first] == [b"%d" % n for n in range(stored)]
        assert [record.value for partition, record in found if partition] == [b"0", b"1", b"2"]

"""``kprod log`` on the files of a stopped broker, and the pytest plugin."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.cli.app import app
from kprod.errors import BrokerError
from kprod.records.codecs import CorruptBatch
from kprod.records.legacy_message import read_sets
from tests.support.legacy_messages import legacy_message, legacy_wrapper
from tests.support.programs import run_python
from tests.support.raw_batch import raw_batch

LOG = "00000000000000000000.log"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped broker's data: 30 records in two partitions, the last one not UTF-8."""
    path = tmp_path_factory.mktemp("data")
    with (
        EmbeddedBroker(path, topics={"t": 2}) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        for number in range(29):
            producer.send("t", b"v%d" % number, key=b"k", partition=number % 2)
        producer.send("t", b"\xff\xfe", partition=1, headers=[("h", b"1")])
    return path


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output


def test_dump_shows_batches_records_and_indexes(data_dir: Path) -> None:
    partition = data_dir / "t-1"
    code, text = run("log", "dump", "--records", str(partition / LOG))
    assert code == 0
    assert "crc: valid" in text
    assert text.count("| offset:") == 15
    assert "value: b'\\xff\\xfe' headers: h=b'1'" in text
    snapshots = [str(path) for path in partition.glob("*.snapshot")]
    code, text = run("log", "dump", str(partition / LOG.replace(".log", ".timeindex")), *snapshots)
    assert (code, "last sequence: 14" in text) == (0, True)
    code, text = run("log", "dump", str(partition / "partition.metadata"))
    assert (code, "not one of .log, .index" in text) == (1, True)


def test_missing_files_and_partitions_are_reported(tmp_path: Path) -> None:
    for command in ("dump", "verify"):
        code, text = run("log", command, str(tmp_path / "nothing"))
        assert (code, "does not exist" in " ".join(text.replace("│", " ").split())) == (2, True), (
            text
        )
    code, text = run("log", "verify", str(tmp_path))
    assert (code, text) == (1, f"{tmp_path}: has no partition\n")


def test_verify_finds_a_flipped_bit_and_a_wrong_index(data_dir: Path, tmp_path: Path) -> None:
    assert run("log", "verify", str(data_dir))[0] == 0
    damaged = tmp_path / "t-0"
    damaged.mkdir()
    content = bytearray((data_dir / "t-0" / LOG).read_bytes())
    content[70] ^= 1
    (damaged / LOG).write_bytes(content)
    (damaged / "00000000000000000000.index").write_bytes(struct.pack(">ii", 3, 7))
    (damaged / "00000000000000000009.timeindex").write_bytes(b"")
    code, text = run("log", "verify", str(damaged))
    assert code == 1
    for problem in ("the CRC does not match", "ends at offset 3", "timeindex: missing", "no .log"):
        assert problem in text


@pytest.mark.full
def test_the_fixtures_of_the_pytest_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(
        "from kprod import KafkaProducer\n"
        "def test_one(kafka_broker, kafka_topic, kafka_records):\n"
        "    assert kafka_records() == []\n"
        "    with KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers) as producer:\n"
        "        producer.send(kafka_topic, b'hello')\n"
        "        (record,) = kafka_records(1)\n"
        "    assert record.value == b'hello'\n"
        "def test_two(kafka_broker, kafka_records):\n"
        "    assert kafka_broker.node_ids == (1, 2)\n"
        "    kafka_records(1, timeout=0.01)\n"
    )
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["kprod.pytest_plugin"]\n')
    suite = "-m", "pytest", "-p", "no:cacheprovider", "--kafka-nodes", "2", "-q", str(tmp_path)
    done = run_python(*suite, cwd=tmp_path, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "0 of 1 records are in test-" in done.stdout


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_read(magic: int, tmp_path: Path) -> None:
    data = legacy_message(9, None, magic) + legacy_wrapper(10, [b"v0", b"v1", b"v2"], magic)
    path = tmp_path / "00000000000000000009.log"
    path.write_bytes(data)
    code, text = run("log", "dump", "--records", str(path))
    assert (code, text.count("| offset:")) == (0, 4)
    damaged = next(read_sets(legacy_message(0, b"x", magic, attributes=4)))
    with pytest.raises(CorruptBatch):
        list(damaged.records())


def test_dump_reports_the_damage_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(raw_batch([b"value"]) + raw_batch(magic=3))
    code, text = run("log", "dump", str(path))
    assert (code, text.count("position:")) == (1, 1)
    assert "magic 3 is not a batch of format v2" in text


def test_dump_reports_damage_in_files_of_any_name(tmp_path: Path) -> None:
    """An unknown codec in an old message, a truncated snapshot, a name that is not UTF-8."""
    message = tmp_path / os.fsdecode(b"0\xff.log")
    message.write_bytes(legacy_message(0, b"x", attributes=7))
    code, text = run("log", "dump", str(message))
    assert (code, "unknown (7)" in text) == (0, True), text
    snapshot = tmp_path / "0.snapshot"
    snapshot.write_bytes(b"\0\1")
    code, text = run("log", "dump", str(snapshot))
    assert code == 1
    assert "0.snapshot: 2 bytes are no snapshot" in text


def test_a_broken_output_pipe_is_not_reported_as_damage(data_dir: Path) -> None:
    files = f"'{data_dir / 't-1' / LOG}' " * 1_000
    dump = f"'{sys.executable}' -m kprod log dump --records {files}"
    script = f"({dump}; echo $? >&2) | head -1 > /dev/null"
    ran = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert ran.stderr == "1\n"


def test_records_of_an_unknown_topic_raise() -> None:
    with EmbeddedBroker() as broker, pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        broker.records("absent")

"""``python -m kprod.broker``: its first line, its signals, and its death at any moment."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kprod.admin import end_offsets, read_topic
from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.protocol.messages import Message
from tests.support.raw_batch import raw_batch
from tests.support.tier import one_of
from tests.support.wire_client import WireClient


@contextmanager
def broker_process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its address, as its first line tells it."""
    command = [sys.executable, "-W", "error", "-m", "kprod.broker", "--port", "0", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first.startswith("listening on 127.0.0.1:"), process.communicate(timeout=300)
            yield process, first.split()[-1]
        finally:
            process.kill()


def produce_request(records: bytes) -> Message:
    parts = [{"index": 0, "records": records}]
    return {"acks": -1, "topic_data": [{"name": "t", "partition_data": parts}]}


def send(client: WireClient, records: bytes) -> Any:
    client.send(ApiKey.PRODUCE, 9, produce_request(records))
    return client.receive(ApiKey.PRODUCE, 9)[1].responses[0].partition_responses[0]


def batch(number: int) -> bytes:
    state = {"producer_id": 3, "producer_epoch": 0, "base_sequence": number}
    return raw_batch([b"%d" % number + b"x" * 1000], **state)


@pytest.mark.parametrize("how", one_of(signal.SIGTERM, signal.SIGINT))
def test_a_signal_ends_it_cleanly(how: signal.Signals, tmp_path: Path) -> None:
    with broker_process("--data-dir", str(tmp_path), "--topic", "t:6", "--topic", "u") as (
        process,
        address,
    ):
        assert set(end_offsets(address, "t")) == set(range(6))
        assert set(end_offsets(address, "u")) == {0}
        process.send_signal(how)
        assert process.communicate(timeout=300) == ("", "")
        assert process.returncode == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.full
def test_what_was_acknowledged_survives_sigkill(tmp_path: Path) -> None:
    arguments = ("--data-dir", str(tmp_path), "--topic", "t:1")
    acknowledged = 0
    for _ in range(3):
        with broker_process(*arguments) as (process, address), WireClient(address) as client:
            # The last five are known again, the one before them is not taken for new.
            for number in range(max(0, acknowledged - 5), acknowledged):
                assert send(client, batch(number)).base_offset == number
            killer = threading.Timer(0.2, process.kill)
            killer.start()
            try:
                while True:
                    answer = send(client, batch(acknowledged))
                    assert (answer.error_code, answer.base_offset) == (0, acknowledged)
                    acknowledged += 1
            except (OSError, AssertionError):
                killer.join()
            process.wait(20)
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        with broker_process(*arguments) as (process, address):
            stored = [record.value for _, record in read_topic(address, "t")]
            sent = [b"%d" % number + b"x" * 1000 for number in range(acknowledged + 1)]
            # The batch in flight when it died may be there or not.
            assert stored in (sent, sent[:-1])
            acknowledged = len(stored)
            process.send_signal(signal.SIGKILL)
    assert acknowledged > 0


@pytest.mark.full
def test_it_says_why_it_cannot_start(tmp_path: Path) -> None:
    with broker_process("--data-dir", str(tmp_path)) as (_, address):
        for arguments, reason in (
            (["--port", "0", "--data-dir", str(tmp_path)], "in use by another broker"),
            (["--port", address.rpartition(":")[2]], "in use"),
            (["--port", "0", "--host", "0.0.0.0"], "allow_remote"),
        ):
            command = [sys.executable, "-m", "kprod.broker", *arguments]
            failed = subprocess.run(
                command, capture_output=True, text=True, timeout=20, check=False
            )
            assert failed.returncode == 1
            assert failed.stderr.startswith("kprod broker: ")
            assert reason in failed.stderr.lower()
            assert "Traceback" not in failed.stderr

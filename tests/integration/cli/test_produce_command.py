"""``kprod produce``: every line is delivered or reported as failed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kprod.admin import read_topic
from kprod.broker import ApiKey, EmbeddedBroker, Fault
from kprod.cli.app import app
from kprod.records.record_batch import StoredRecord
from tests.integration.cli.processes import ignored_interrupts, process_tree
from tests.support.tier import one_of
from tests.support.waiting import await_true

KEYED = ("--key-separator", "=")


BROKER = {"default_partitions": 3}


def produce(servers: str, topic: str, *arguments: str, lines: str = "") -> Result:
    command = ["produce", "--topic", topic, "--bootstrap-servers", servers, *arguments]
    return CliRunner().invoke(app, command, input=lines)


def stored(servers: str, topic: str) -> list[tuple[int, StoredRecord]]:
    return list(read_topic(servers, topic))


@pytest.mark.parametrize(
    ("arguments", "lines", "records"),
    [
        ([], "a\nb\n\n", [(None, b"a"), (None, b"b"), (None, b"")]),
        (["--delimiter", r"\0", *KEYED], "k=a\nb\0l=\0", [(b"k", b"a\nb"), (b"l", b"")]),
        (["--empty-is-null", *KEYED], "k=\nl=v\n", [(b"k", None), (b"l", b"v")]),
        (["--key", "UA"], "late\non time\n", [(b"UA", b"late"), (b"UA", b"on time")]),
    ],
)
def test_lines_of_standard_input_become_records(
    servers: str, arguments: list[str], lines: str, records: list[tuple[bytes | None, bytes | None]]
) -> None:
    topic = "-".join(["stdin", *(name.strip("-") for name in arguments[:1])])
    ran = produce(servers, topic, "--partition", "1", *arguments, lines=lines)
    assert ran.exit_code == 0, ran.output
    assert ran.stderr == f"{len(records)} delivered, 0 failed\n"
    assert [(p, r.key, r.value) for p, r in stored(servers, topic)] == [
        (1, key, value) for key, value in records
    ]


def test_a_file_with_keys_and_headers(servers: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("k1=v1\nk2=v=2\n")
    arguments = ["--file", str(file), "--key-separator", "=", "--header", "h=x=y", "--header", "g="]
    ran = produce(servers, "file", *arguments, "--option", "compression_type=zstd")
    assert ran.exit_code == 0, ran.output
    found = sorted((r.key, r.value, r.headers) for _p, r in stored(servers, "file"))
    headers = (("h", b"x=y"), ("g", b""))
    assert found == [(b"k1", b"v1", headers), (b"k2", b"v=2", headers)]


def test_invalid_lines_are_reported_and_counted_as_failed(servers: str) -> None:
    lines = f"k:v\nno key\nk:{'x' * 2_000_000}\nk:w\n"
    ran = produce(servers, "some", "--key-separator", ":", lines=lines)
    assert ran.exit_code == 1
    *errors, summary = ran.stderr.splitlines()
    assert [error.split(":")[0] for error in errors] == ["line 2", "line 3"]
    assert summary == "2 delivered, 2 failed"


def test_only_the_first_failures_are_printed(servers: str) -> None:
    ran = produce(servers, "many", "--key-separator", ":", lines="no key\n" * 1_000)
    assert ran.exit_code == 1
    assert len(ran.stderr.splitlines()) == 12
    assert ran.stderr.endswith("0 delivered, 1,000 failed\n")


@pytest.mark.parametrize("delimiter", one_of(r"\n", r"\0", r"\x1e"))
@pytest.mark.parametrize("number", one_of(signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
def test_after_a_signal_complete_lines_are_sent(
    servers: str, delimiter: str, number: signal.Signals
) -> None:
    text = "a|b|c".replace("|", {r"\n": "\n", r"\0": "\0", r"\x1e": "\x1e"}[delimiter])
    topic = f"stopped-{ord(text[1])}-{number}"
    arguments = ("produce", "--topic", topic, "--bootstrap-servers", servers)
    with process_tree(*arguments, "--delimiter", delimiter, "-X", "linger_ms=0") as process:
        process.stdin.write(text)
        process.stdin.flush()
        await_true(lambda: len(stored(servers, topic)) == 2)
        process.command.send_signal(number)
        _out, err = process.command.communicate(timeout=300)
    assert process.command.returncode == 128 + number
    assert err == "line 3: stopped before its end; it is not sent\n2 delivered, 1 failed\n"


@pytest.mark.parametrize(
    ("lines", "max_block_ms"), [(1, 5_000), pytest.param(3, 500_000, marks=pytest.mark.full)]
)
def test_after_a_signal_every_waiting_line_is_reported(lines: int, max_block_ms: int) -> None:
    """Without a broker, lines wait for their topic.

    A single line waits only briefly: the signal may arrive just before its wait ends.
    """
    arguments = ("produce", "--topic", "t", "--bootstrap-servers", "127.0.0.1:1")
    with process_tree(*arguments, "-X", f"max_block_ms={max_block_ms}") as process:
        process.stdin.write("a\n" * lines)
        process.stdin.flush()
        assert "cannot connect" in process.stderr.readline()
        process.command.terminate()
        _out, err = process.command.communicate(timeout=300)
    assert process.command.returncode == 143
    reported = [line.partition(":")[0] for line in err.splitlines() if line.startswith("line ")]
    assert reported == [f"line {number}" for number in range(1, lines + 1)]
    assert err.endswith(f"0 delivered, {lines} failed\n")


@pytest.mark.full
def test_a_signal_ends_produce_within_ten_seconds_while_records_wait() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        silent = broker.faults.add(Fault(api=ApiKey.PRODUCE, drop=True, times=None))
        where = ("--topic", "t", "--bootstrap-servers", broker.bootstrap_servers)
        with process_tree("produce", *where, "-X", "buffer_memory=20000") as process:
            process.stdin.write(("x" * 9_000 + "\n") * 6)
            process.stdin.flush()
            await_true(lambda: silent.hits > 0)
            time.sleep(1)  # the third line waits for memory
            process.command.terminate()
            began = time.monotonic()
            _out, err = process.command.communicate(timeout=300)
        assert time.monotonic() - began < 14
        assert process.command.returncode == 143
    reported = {line.partition(":")[0] for line in err.splitlines() if line.startswith("line ")}
    assert reported == {f"line {number}" for number in range(1, 7)}
    assert err.endswith("0 delivered, 6 failed\n")


def test_complete_lines_are_sent_if_reading_the_input_fails(servers: str) -> None:
    """Reading a terminal whose other side is closed fails with EIO."""
    controller, terminal_end = os.openpty()
    with open(controller, "rb") as terminal:
        os.write(terminal_end, b"a\nb\nc")
        os.close(terminal_end)
        command = [sys.executable, "-m", "kprod", "produce", "--topic", "failing"]
        command += ["--bootstrap-servers", servers]
        ran = subprocess.run(
            command, stdin=terminal, stderr=subprocess.PIPE, text=True, timeout=300, check=False
        )
    assert [record.value for _, record in stored(servers, "failing")] == [b"a", b"b"]
    assert ran.returncode == 1
    assert ran.stderr == (
        "the rest of the input cannot be read: [Errno 5] Input/output error\n"
        "line 3: stopped before its end; it is not sent\n"
        "2 delivered, 1 failed\n"
    )


def test_an_ignored_interrupt_stays_ignored(servers: str) -> None:
    """As after ``trap '' INT`` or for ``command &`` in a script."""
    arguments = ("produce", "--topic", "ignored", "--bootstrap-servers", servers)
    with ignored_interrupts(), process_tree(*arguments) as process:
        await_true(lambda: catches(process.command.pid, signal.SIGTERM))
        process.command.send_signal(signal.SIGINT)
        _out, err = process.command.communicate("a\nb\n", timeout=300)
    assert (process.command.returncode, err) == (0, "2 delivered, 0 failed\n")


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for the signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    (caught,) = re.findall(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("line", ["text", "[" * 100_000, '{"value": 1, "partition": 9}'])
def test_invalid_json_lines_are_reported_and_the_others_are_sent(servers: str, line: str) -> None:
    lines = f'{line}\n{{"value": "v"}}\n'
    ran = produce(servers, "bad-json", "--format", "json", lines=lines)
    assert ran.exit_code == 1
    assert ran.stderr.startswith("line 1: ")
    assert ran.stderr.endswith("1 delivered, 1 failed\n")

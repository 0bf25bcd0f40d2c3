"""Control characters in data cannot affect the terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import unicodedata
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.cli.app import app
from kprod.cli.terminal import json_text, shown
from tests.support.loopback_proxy import LoopbackProxy, Streams, copy

MALICIOUS = "a\x1b[2J\nfake  Ongoing\x9b31m\u202etxt"
HARMLESS = "h" * len(MALICIOUS.encode())
ESCAPED = r"a\x1b[2J\nfake  Ongoing\x9b31m\u202etxt"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker with a malicious record and open transaction."""
    with EmbeddedBroker(topics={"t": 1, HARMLESS: 1}) as running:
        servers = running.bootstrap_servers
        with KafkaProducer(bootstrap_servers=servers) as producer:
            producer.send(
                "t", MALICIOUS.encode() + b"\xff", MALICIOUS.encode(), {MALICIOUS: b"\x1b"}
            )
        with KafkaProducer(
            bootstrap_servers=servers, transactional_id=MALICIOUS, transaction_timeout_ms=900_000
        ) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"open").get(60)
            yield running


def on_terminal(broker: EmbeddedBroker | Renaming, *arguments: str, answer: str = "") -> str:
    """The output of a command on a terminal, stdout and stderr."""
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "kprod", *arguments]
    where = ["--bootstrap-servers", f"127.0.0.1:{broker.port}"]
    with subprocess.Popen(
        [*command, *where], stdin=subprocess.PIPE, stdout=terminal, stderr=terminal
    ) as process:
        os.close(terminal)
        assert process.stdin is not None
        process.stdin.write(answer.encode())
        process.stdin.close()
        written = b""
        while chunk := _read(controller):
            written += chunk
        os.close(controller)
        process.wait(60)
    return written.decode(errors="surrogateescape").replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other side is closed
        return b""


def in_pipe(broker: EmbeddedBroker | Renaming, *arguments: str) -> bytes:
    where = ["--bootstrap-servers", f"127.0.0.1:{broker.port}"]
    ran = CliRunner().invoke(app, [*arguments, *where])
    assert ran.exit_code == 0, ran.output
    return ran.stdout_bytes


@pytest.mark.full
def test_control_characters_in_transactional_ids_are_escaped(broker: EmbeddedBroker) -> None:
    for command in (["list"], ["describe", MALICIOUS]):
        text = on_terminal(broker, "transactions", *command)
        assert text.startswith(ESCAPED)
        assert text.replace("\n", "").isprintable()
        assert in_pipe(broker, "transactions", *command).startswith(MALICIOUS.encode())
    assert on_terminal(broker, "transactions", "list", "--raw").startswith(MALICIOUS)


class Renaming(LoopbackProxy):
    """A proxy that renames a topic to a name that Kafka does not allow."""

    def ways(self, client: Streams, server: Streams) -> list[Coroutine[Any, Any, None]]:
        def change(chunk: bytes) -> bytes:
            return chunk.replace(HARMLESS.encode(), MALICIOUS.encode())

        return [
            copy(client.reader, server.writer, change),
            copy(server.reader, client.writer, change),
        ]


def test_control_characters_in_topic_names_are_escaped(broker: EmbeddedBroker) -> None:
    with Renaming(broker.port) as cluster:
        text = on_terminal(cluster, "topics", "list")
        assert text.startswith(ESCAPED)
        assert text.replace("\n", "").isprintable()
        assert in_pipe(cluster, "topics", "list").startswith(ESCAPED.encode())
    text = on_terminal(broker, "topics", "describe", MALICIOUS)
    assert text.replace("\n", "").isprintable()


@pytest.mark.full
def test_control_characters_in_the_abort_confirmation_are_escaped(broker: EmbeddedBroker) -> None:
    text = on_terminal(broker, "transactions", "abort", "--prefix", "a", answer="n\n")
    listed, question, _answer = text.partition("\nAbort them?")
    assert question
    assert listed.startswith(ESCAPED)
    assert listed.isprintable()


@pytest.mark.full
def test_control_characters_in_errors_are_escaped(broker: EmbeddedBroker) -> None:
    text = on_terminal(broker, "transactions", "describe", f"no {MALICIOUS}")
    assert text.replace("\n", "").isprintable()


def test_control_characters_in_records_are_escaped(broker: EmbeddedBroker) -> None:
    shape = ["consume", "--topic", "t", "--offset", "0", "--count", "1"]
    template = ["--template", r"\x1b[1m%k %s %h\n"]
    lines = ESCAPED.replace(r"\n", "\n")  # newlines in values are kept
    text = on_terminal(broker, *shape, *template)
    assert text == f"\x1b[1m{lines} {lines}\\xff {lines}=\\x1b\n"
    assert in_pipe(broker, *shape) == MALICIOUS.encode() + b"\xff\n"
    assert on_terminal(broker, *shape, "--raw").startswith(MALICIOUS)


def test_json_output_contains_no_control_characters(broker: EmbeddedBroker) -> None:
    listed = in_pipe(broker, "transactions", "list", "--json").decode()
    assert listed.removesuffix("\n").isprintable()
    assert json.loads(listed)["transactional_id"] == MALICIOUS


DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@pytest.mark.full
def test_json_text_escapes_exactly_the_harmful_characters_of_unicode() -> None:
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    text = json_text(characters)
    assert json.loads(text) == characters
    assert not any(map(harmful, text))
    assert {"é", "語", "\u00a0", "\u3000", "\U0001f3f4"} < set(text)


def harmful(character: str) -> bool:
    """Whether a terminal may interpret it instead of showing it."""
    return (
        unicodedata.category(character) in ("Cc", "Zl", "Zp")
        or unicodedata.bidirectional(character) in DIRECTIONS
        or character in "\u061c\u200e\u200f\ufeff"
    )


def test_without_a_terminal_bytes_are_unchanged() -> None:
    assert shown(b"\x1b\xff", raw=False) == b"\x1b\xff"

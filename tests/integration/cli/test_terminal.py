"""What others wrote cannot command the terminal on which a command shows it."""

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

EVIL = "a\x1b[2J\nfake  Ongoing\x9b31m\u202etxt"
HARMLESS = "h" * len(EVIL.encode())
SHOWN = r"a\x1b[2J\nfake  Ongoing\x9b31m\u202etxt"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A record and an open transaction of somebody with ideas."""
    with EmbeddedBroker(topics={"t": 1, HARMLESS: 1}) as running:
        servers = running.bootstrap_servers
        with KafkaProducer(bootstrap_servers=servers) as producer:
            producer.send("t", EVIL.encode() + b"\xff", EVIL.encode(), {EVIL: b"\x1b"})
        with KafkaProducer(
            bootstrap_servers=servers, transactional_id=EVIL, transaction_timeout_ms=900_000
        ) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"open").get(60)
            yield running


def on_terminal(broker: EmbeddedBroker | Renaming, *arguments: str, answer: str = "") -> str:
    """What a terminal gets from a command, on both of its outputs."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kprod", *arguments]
    where = ["--bootstrap-servers", f"127.0.0.1:{broker.port}"]
    with subprocess.Popen(
        [*command, *where], stdin=subprocess.PIPE, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        assert process.stdin is not None
        process.stdin.write(answer.encode())
        process.stdin.close()
        written = b""
        while chunk := _read(ours):
            written += chunk
        os.close(ours)
        process.wait(60)
    return written.decode(errors="surrogateescape").replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # as Linux says that the other side has closed it
        return b""


def in_pipe(broker: EmbeddedBroker | Renaming, *arguments: str) -> bytes:
    where = ["--bootstrap-servers", f"127.0.0.1:{broker.port}"]
    ran = CliRunner().invoke(app, [*arguments, *where])
    assert ran.exit_code == 0, ran.output
    return ran.stdout_bytes


@pytest.mark.full
def test_transactional_ids(broker: EmbeddedBroker) -> None:
    for command in (["list"], ["describe", EVIL]):
        text = on_terminal(broker, "transactions", *command)
        assert text.startswith(SHOWN)
        assert text.replace("\n", "").isprintable()
        assert in_pipe(broker, "transactions", *command).startswith(EVIL.encode())
    assert on_terminal(broker, "transactions", "list", "--raw").startswith(EVIL)


class Renaming(LoopbackProxy):
    """A cluster with a topic that Kafka does not allow: what answers may be anything."""

    def ways(self, client: Streams, server: Streams) -> list[Coroutine[Any, Any, None]]:
        def change(chunk: bytes) -> bytes:
            return chunk.replace(HARMLESS.encode(), EVIL.encode())

        return [
            copy(client.reader, server.writer, change),
            copy(server.reader, client.writer, change),
        ]


def test_names_of_topics(broker: EmbeddedBroker) -> None:
    with Renaming(broker.port) as cluster:
        text = on_terminal(cluster, "topics", "list")
        assert text.startswith(SHOWN)
        assert text.replace("\n", "").isprintable()
        assert in_pipe(cluster, "topics", "list").startswith(SHOWN.encode())
    text = on_terminal(broker, "topics", "describe", EVIL)
    assert text.replace("\n", "").isprintable()


@pytest.mark.full
def test_the_list_above_the_question_whether_to_abort(broker: EmbeddedBroker) -> None:
    text = on_terminal(broker, "transactions", "abort", "--prefix", "a", answer="n\n")
    listed, question, _answer = text.partition("\nAbort them?")
    assert question
    assert listed.startswith(SHOWN)
    assert listed.isprintable()


@pytest.mark.full
def test_errors_that_repeat_a_name(broker: EmbeddedBroker) -> None:
    text = on_terminal(broker, "transactions", "describe", f"no {EVIL}")
    assert text.replace("\n", "").isprintable()


def test_keys_values_and_headers_of_records(broker: EmbeddedBroker) -> None:
    shape = ["consume", "--topic", "t", "--offset", "0", "--count", "1"]
    template = ["--template", r"\x1b[1m%k %s %h\n"]
    lines = SHOWN.replace(r"\n", "\n")  # a value may have lines
    text = on_terminal(broker, *shape, *template)
    assert text == f"\x1b[1m{lines} {lines}\\xff {lines}=\\x1b\n"
    assert in_pipe(broker, *shape) == EVIL.encode() + b"\xff\n"
    assert on_terminal(broker, *shape, "--raw").startswith(EVIL)


def test_json_has_no_harmful_character_anywhere(broker: EmbeddedBroker) -> None:
    listed = in_pipe(broker, "transactions", "list", "--json").decode()
    assert listed.removesuffix("\n").isprintable()
    assert json.loads(listed)["transactional_id"] == EVIL


DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@pytest.mark.full
def test_every_character_of_unicode() -> None:
    every = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    text = json_text(every)
    assert json.loads(text) == every
    assert not any(map(harmful, text))
    assert {"é", "語", "\u00a0", "\u3000", "\U0001f3f4"} < set(text)


def harmful(character: str) -> bool:
    """Whether a terminal may do something else than show it."""
    return (
        unicodedata.category(character) in ("Cc", "Zl", "Zp")
        or unicodedata.bidirectional(character) in DIRECTIONS
        or character in "\u061c\u200e\u200f\ufeff"
    )


def test_without_a_terminal_bytes_are_as_they_are() -> None:
    assert shown(b"\x1b\xff", raw=False) == b"\x1b\xff"

"""Every command in docs/cli.md runs, with the output of the page except for numbers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import pytest

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from tests.support.console_blocks import CLI_BLOCKS, commands, kprod_command, pattern
from tests.support.programs import ACTIVATED

pytestmark = pytest.mark.full

ADDRESS = re.compile(r"(?:localhost|kafka):9092")
ASKS = {"produce", "consume", "topics", "transactions"}
"""Commands that connect to localhost:9092 by default."""
TO_THE_END = {"demo", "broker", "pipeline"}
"""Commands with their own tests, below or elsewhere."""
_ENVIRONMENT = ACTIVATED | {"COLUMNS": "200"}


@contextmanager
def a_record(servers: str) -> Iterator[None]:
    """The record that the page reads."""
    with KafkaProducer(bootstrap_servers=servers) as producer:
        producer.send("status", b"late", key=b"UA").get(timeout=30)
    yield


@contextmanager
def open_transactions(servers: str) -> Iterator[None]:
    """Two open transactions of Spark's shards, on three partitions each."""
    with ExitStack() as opened:
        for shard in range(2):
            producer = opened.enter_context(
                KafkaProducer(
                    bootstrap_servers=servers,
                    transactional_id=f"kprod-spark.orders.{shard}/0",
                    transaction_timeout_ms=600_000,
                )
            )
            producer.init_transactions(timeout=60)
            producer.begin_transaction()
            for partition in range(3):
                producer.send("orders", b"half", partition=partition).get(timeout=30)
        yield


BEFORE = {"consume": a_record, "transactions": open_transactions}
"""Prerequisites of a block."""
TOPICS = {"consume": {"status": 1}, "transactions": {"orders": 3}}


def on(servers: str, command: str) -> str:
    """The command with the embedded broker's address."""
    if ADDRESS.search(command):
        return ADDRESS.sub(servers, command)
    return f"{command} --bootstrap-servers {servers}" if kprod_command(command) in ASKS else command


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=kprod_command(block))
        for block in CLI_BLOCKS
        if kprod_command(block) not in TO_THE_END
    ],
)
def test_a_command_prints_the_output_of_the_page(block: str, tmp_path: Path) -> None:
    shown = kprod_command(block)
    with EmbeddedBroker(nodes=3, topics=TOPICS.get(shown, {})) as broker:
        servers = broker.bootstrap_servers
        with BEFORE.get(shown, nullcontext)(servers):
            for command, printed in commands(block):
                few = " --records 2000" if shown == "perf" else ""
                ran = _run(on(servers, command) + few, tmp_path)
                assert pattern(printed).match(ran.stdout), ran.stdout
                assert ran.returncode == printed.rstrip().endswith("[y/N]:"), ran.stdout


def _run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it with stderr in stdout and no input: a prompt ends it with 1."""
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=_ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_broker_prints_its_address(tmp_path: Path) -> None:
    (block,) = [block for block in CLI_BLOCKS if kprod_command(block) == "broker"]
    ((command, printed),) = commands(block)
    with subprocess.Popen(
        command.replace("/tmp", str(tmp_path)).split(),
        env=_ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout
        line = running.stdout.readline()
        running.terminate()
        assert running.wait(30) == 0
    assert pattern(printed).match(line), line


def test_the_page_has_blocks_with_commands() -> None:
    assert len(CLI_BLOCKS) > 8
    assert all(commands(block) for block in CLI_BLOCKS)

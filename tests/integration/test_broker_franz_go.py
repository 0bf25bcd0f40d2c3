"""franz-go, a client in Go, against the embedded broker: produces, and consumes in a group.

Compiling it takes a minute of a core: ``KPROD_CAMPAIGN=long`` does, where there is Go.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        os.environ.get("KPROD_CAMPAIGN") != "long" or shutil.which("go") is None,
        reason="compiling franz-go takes Go, and a minute: KPROD_CAMPAIGN=long",
    ),
]
SOURCE = Path(__file__).parents[1] / "support" / "go_client"
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 3000


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The compiled program."""
    program = tmp_path_factory.mktemp("go") / "client"
    command = ["go", "build", "-o", str(program), "."]
    subprocess.run(command, cwd=SOURCE, check=True, env={**os.environ, "GOTOOLCHAIN": "local"})
    return str(program)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics=dict.fromkeys(CODECS, 3), nodes=3) as broker:
        yield broker


@pytest.mark.parametrize("codec", CODECS)
def test_it_produces_and_consumes(client: str, broker: EmbeddedBroker, codec: Codec) -> None:
    one, other, _ = broker.bootstrap_servers.split(",")
    subprocess.run([client, "produce", one, codec, str(COUNT), codec], check=True)
    stored = broker.records(codec)
    assert sorted(int(record.value or b"") for record in stored) == list(range(COUNT))
    assert all(record.key == record.value for record in stored)
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        compression_type=codec,
    ) as producer:
        for number in range(COUNT, 2 * COUNT):
            producer.send(codec, b"%d" % number, partition=number % 3)
    found: list[int] = []
    for count in (COUNT // 2, 2 * COUNT - COUNT // 2):  # the second goes on where the first ended
        command = [client, "consume", other, codec, str(count), "g"]
        ran = subprocess.run(command, check=True, capture_output=True, text=True)
        found += [int(line.split()[3]) for line in ran.stdout.splitlines()]
    assert sorted(found) == list(range(2 * COUNT))

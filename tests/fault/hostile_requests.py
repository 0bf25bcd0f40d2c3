"""Requests to the embedded broker that no client would send: ``python -m
tests.fault.hostile_requests MUTATIONS [SEED]``.

Every request of every API and version is cut at each length, as the whole of a shorter frame and
as the beginning of one that ends there; then ``MUTATIONS`` of them are sent with bytes changed,
left out, repeated or put in. Each has to be answered under its own correlation id, or to cost its
connection. The broker, a process of its own, must not
meet an error that it does not expect, must not take more memory at any moment, and answers a client
that behaves all the while.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from kprod.broker.protocol.api_key import VERSIONS, ApiKey
from kprod.broker.protocol.messages import Message, request_schema
from tests.support.apache_kafka.same_answers import requests
from tests.support.broker_process import BrokerProcess
from tests.support.wire_client import WireClient

TOPIC: Final = "t"
SOON: Final = 0.05
LATE: Final = 10.0
"""Seconds: most answers come soon. What may wait by its meaning is not waited for any longer."""
"""The same for a request that may take seconds of a processor which others use, too."""
MAY_WAIT: Final = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}
CORRELATION: Final = 8
"""Where a frame has its correlation id: after its size, the API and the version."""
MOST_MEMORY: Final = 400_000_000
"""Bytes that the broker's process may have: what it begins with, topics that were asked for, and
answers and requests that are under way."""
EXTREMES: Final = (b"\0", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff")


class Hostile(NamedTuple):
    """Bytes for a connection of their own; ``ends`` says that nothing follows them."""

    data: bytes
    ends: bool

    @property
    def api(self) -> ApiKey | None:
        """What it asks for, if that can be seen."""
        key = int.from_bytes(self.data[4:6], "big")
        return ApiKey(key) if len(self.data) >= 6 and key in set(ApiKey) else None

    @property
    def correlation(self) -> bytes:
        """What its answer has to begin with."""
        return self.data[CORRELATION : CORRELATION + 4]


@dataclass
class Outcomes:
    """What became of them, by what was seen; ``slowest`` is of the client that behaves."""

    seen: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    memory: int = 0


def frames() -> list[bytes]:
    """A request of each kind, in each version of its API that the broker reads."""
    asked: list[tuple[ApiKey, Message]] = [(api, values) for api, _, values in requests(TOPIC)]
    known = {api for api, _ in asked}
    # Those of transactions, logins and telemetry have names for what others name otherwise.
    names: Message = {
        "transactional_id": "x",
        "producer_id": 1,
        "group_id": "g",
        "mechanism": "PLAIN",
        "topics": [],
        "resources": [{"resource_type": 2, "resource_name": TOPIC}],
        "transactional_ids": ["x"],
    }
    asked += [(api, names) for api in VERSIONS if api not in known]
    return [
        request_schema(api, version).encode(_header(api, version), values)
        for api, values in asked
        for version in range(VERSIONS[api].accepted_from, VERSIONS[api].highest + 1)
    ]


def _header(api: ApiKey, version: int) -> Message:
    return {
        "request_api_key": api,
        "request_api_version": version,
        "correlation_id": 0x01020304,
        "client_id": "hostile",
    }


def cuts(frame: bytes) -> Iterator[Hostile]:
    """The frame as it ends at each length."""
    for length in range(4, len(frame)):
        yield Hostile(frame[:length], ends=True)
        yield Hostile(struct.pack(">i", length - 4) + frame[4:length], ends=False)


def mutated(frame: bytes, chance: random.Random) -> Hostile:
    """The frame with one to four changes, and most often with the size that it has then."""
    data = bytearray(frame[4:])
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        how = chance.randrange(5)
        if how == 0:
            data[at : at + 1] = bytes([chance.randrange(256)])
        elif how == 1:
            extreme = chance.choice(EXTREMES)
            data[at : at + len(extreme)] = extreme
        elif how == 2:
            del data[at : at + chance.randint(1, 8)]
        elif how == 3:
            data[at:at] = chance.randbytes(chance.randint(1, 8))
        else:
            data[at:at] = data[max(0, at - chance.randint(1, 30)) : at]
    if chance.random() < 0.05:
        size = chance.choice((-1, 0, 1, 2**31 - 1, -(2**31), len(data) * 2))
        return Hostile(struct.pack(">i", size) + bytes(data), ends=True)
    return Hostile(struct.pack(">i", len(data)) + bytes(data), ends=False)


def send(address: tuple[str, int], hostile: Hostile) -> str:
    """What became of it: "answered", "closed" or "waits"."""
    with socket.create_connection(address, timeout=LATE) as connection:
        try:
            connection.sendall(hostile.data)
            if hostile.ends:
                connection.shutdown(socket.SHUT_WR)
            elif hostile.api in MAY_WAIT and not _readable(connection, SOON):
                return "waits"
            first = _read(connection, 8)
        except TimeoutError:
            raise AssertionError(f"no answer and no end: {hostile.data.hex()}") from None
        except OSError:  # reset, or closed before the end could be sent
            return "closed"
        if not first:
            return "closed"
        assert first[4:] == hostile.correlation, f"{hostile.data.hex()} -> {first.hex()}"
        return "answered"


def _readable(connection: socket.socket, seconds: float) -> bool:
    return bool(select.select([connection], [], [], seconds)[0])


def _read(connection: socket.socket, size: int) -> bytes:
    """So many bytes, or none at the end."""
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return b""
        data += part
    return data


def run(hostile: Iterator[Hostile]) -> Outcomes:
    """Send them to a broker of their own; the client that behaves asks after each hundred."""
    outcomes = Outcomes()
    with (
        tempfile.TemporaryDirectory(prefix="kprod-hostile-") as folder,
        (Path(folder) / "said").open("w+") as said,
        BrokerProcess(Path(folder) / "data", {TOPIC: 1}, errors=said) as broker,
        WireClient(broker.bootstrap_servers) as well,
    ):
        for number, one in enumerate(hostile):
            outcomes.seen[send(("127.0.0.1", broker.port), one)] += 1
            if number % 100 == 0:
                _behave(well, outcomes)
                outcomes.memory = peak(broker.pid)
                assert outcomes.memory < MOST_MEMORY, f"{outcomes.memory} bytes after {one}"
        _behave(well, outcomes)
        said.seek(0)
        unexpected = [line for line in said if "unexpected error" in line or "Traceback" in line]
        assert not unexpected, unexpected[:20]
    return outcomes


def _behave(client: WireClient, outcomes: Outcomes) -> None:
    """Ask for the versions, and for a topic."""
    started = time.perf_counter()
    client.send(ApiKey.API_VERSIONS, 0, {}, 7)
    assert client.receive(ApiKey.API_VERSIONS, 0)[0] == 7
    client.send(ApiKey.METADATA, 9, {"topics": [{"name": TOPIC}]}, 8)
    correlation, found = client.receive(ApiKey.METADATA, 9)
    assert correlation == 8
    assert [topic.error_code for topic in found.topics] == [0]
    outcomes.slowest = max(outcomes.slowest, time.perf_counter() - started)


def peak(pid: int) -> int:
    """Bytes of memory that a process has had at most."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if "VmHWM" in line))


def mutations(count: int, seed: int) -> Iterator[Hostile]:
    """So many, drawn by ``seed``."""
    chance = random.Random(seed)
    known = frames()
    for _ in range(count):
        yield mutated(chance.choice(known), chance)


if __name__ == "__main__":
    wanted = int(sys.argv[1])
    drawn = mutations(wanted, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    every_cut = chain.from_iterable(cuts(frame) for frame in frames())
    for name, those in (("cuts", every_cut), ("mutations", drawn)):
        found = run(those)
        total = sum(found.seen.values())
        print(f"{total} {name}: {dict(found.seen)}; {found.memory / 1e6:.0f} MB at most;")
        print(f"  a client that behaves had both its answers within {1000 * found.slowest:.0f} ms")

"""Answers of 0 to 100 MB, full of whatever there can be many of: ``python -m
tests.fault.answers_by_size [SIZE...]``.

A producer in a process of its own talks to a server that answers one kind of request with so many
bytes, again and again. The producer is asked for the CPU time that took, and for how late records
got their outcome; its memory is watched from outside.
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from kprod import KafkaProducer
from kprod.errors import KprodError
from kprod.wire.versions import ApiKey
from tests.fault.mutated_answers import MutatingCluster, MutatingEnd
from tests.support import hostile_answers as told
from tests.support.held_resources import resident_bytes

SIZES = (0, 10_000, 100_000, 1_000_000, 4_000_000, 16_000_000, 17_000_000, 100_000_000)
DELIVERY = 1.5
SECONDS = 2.5
"""For which records are sent, while answers are as they are."""
FLOOR = 8_000_000
"""Bytes that a producer at work may take besides, whatever the size."""
MOST_MEMORY = 200_000_000
LATEST = 5.0
"""Seconds after the delivery timeout: a turn of the sender, on a machine that does much else."""
CPU_PER_MB = 0.5
CPU_BESIDES = 2.5
"""Seconds of CPU: what sending for so long takes by itself, on a machine that is busy."""


def _many(one: bytes, size: int) -> list[bytes]:
    return [one] * (size // len(one))


def _metadata(brokers: list[bytes], topics: list[bytes], cluster: bytes = b"c") -> bytes:
    whole = told.topic(b"t", [told.partition(0)])
    return told.metadata([told.broker(1), *brokers], [whole, *topics], cluster)


def _tag(size: int) -> bytes:
    return b"\1\x63" + told.uvarint(size) + bytes(size)


def _partitions(one: Callable[[int], bytes], size: int) -> bytes:
    numbered = [one(number) for number in range(1 + size // len(one(0)))]
    return told.metadata([told.broker(1)], [told.topic(b"t", numbered)])


def _subscription(size: int) -> bytes:
    metrics = told.array(_many(told.text(b"org.a"), size))
    head = bytes(6) + bytes(range(16)) + bytes(4) + told.array([])
    return head + bytes.fromhex("000003e8 00010000 01") + metrics + b"\0"


ERROR = told.record_error(0)
FILLED: dict[str, tuple[ApiKey, Callable[[int], bytes]]] = {
    "brokers": (ApiKey.METADATA, lambda n: _metadata(_many(told.broker(2, b"h"), n), [])),
    "own brokers": (
        ApiKey.METADATA,
        lambda n: _metadata([told.broker(2 + i) for i in range(min(n // 20, 4_900))], []),
    ),
    "topics": (ApiKey.METADATA, lambda n: _metadata([], _many(told.topic(b"u", []), n))),
    "partitions": (ApiKey.METADATA, lambda n: _partitions(told.partition, n)),
    "short partitions": (
        ApiKey.METADATA,
        lambda n: _partitions(lambda i: told.partition(i, replicas=told.NOBODY), n),
    ),
    "a host": (ApiKey.METADATA, lambda n: _metadata([told.broker(2, b"h" * n)], [])),
    "a cluster id": (ApiKey.METADATA, lambda n: _metadata([], [], b"\x1b" * n)),
    "results": (ApiKey.PRODUCE, lambda n: told.produced([(b"t", _many(told.result(0), n))])),
    "record errors": (
        ApiKey.PRODUCE,
        lambda n: told.produced([(b"t", [told.result(0, 87, _many(ERROR, n))])]),
    ),
    "a message": (
        ApiKey.PRODUCE,
        lambda n: told.produced([(b"t", [told.result(0, 87, (), b"\x1b" * n)])]),
    ),
    "leaders": (
        ApiKey.PRODUCE,
        lambda n: told.produced(
            [(b"t", [told.result(0)])], told.leaders(_many(told.broker(2, b""), n))
        ),
    ),
    "a tag": (ApiKey.PRODUCE, lambda n: told.produced([(b"t", [told.result(0)])], _tag(n))),
    "garbage": (ApiKey.PRODUCE, lambda n: random.Random(n).randbytes(n)),
    "metrics": (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, _subscription),
    "a transaction's partitions": (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        lambda n: bytes(4) + told.array([told.text(b"t") + told.array(_many(bytes(7), n)) + b"\0"]),
    ),
    "a transaction's topics": (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        lambda n: bytes(4) + told.array(_many(told.text(b"t") + b"\1\0", n)) + b"\0",
    ),
    "the end of a transaction": (ApiKey.END_TXN, lambda n: bytes(6) + _tag(n)),
}
"""What an answer is full of, to which request, and its body of about so many bytes."""


class Figures(NamedTuple):
    """``answered`` and ``sent`` are the hostile answers, in number and bytes that were taken."""

    size: int
    answered: int
    sent: int
    cpu: float
    memory: int
    late: float
    records: int
    ended: int

    def check(self) -> None:
        """Raise AssertionError unless work, memory and time are as they should be."""
        assert self.ended == self.records, self
        assert self.late < LATEST, self
        assert self.memory <= min(max(8 * self.size, FLOOR), MOST_MEMORY), self
        assert self.cpu <= CPU_BESIDES + CPU_PER_MB * self.sent / 1e6, self


class FillingCluster(MutatingCluster):
    """Answers one kind of request with ``body``: Metadata once a record is stored."""

    def __init__(self, api: ApiKey, body: bytes) -> None:
        super().__init__(random.Random(1), level=1)
        self.api, self.told = api, body
        self.answered = self.sent = self.port = 0
        self._stored = False

    def body(self, api: ApiKey, version: int) -> bytes:
        early = {ApiKey.METADATA, ApiKey.PRODUCE}
        if api is self.api and (self._stored or api not in early):
            self.answered += 1
            return self.told
        if api is ApiKey.METADATA:
            here = told.broker(1, b"127.0.0.1", self.port)
            return told.metadata([here], [told.topic(b"t", [told.partition(0)])])
        if api is ApiKey.FIND_COORDINATOR:
            here = told.broker(1, b"127.0.0.1", self.port)[:-2]
            return bytes(4) + told.array([told.text(b"tx") + here + bytes(4)]) + b"\0"
        self._stored = self._stored or api is ApiKey.PRODUCE
        return super().body(api, version)


@contextmanager
def serving(cluster: FillingCluster) -> Iterator[None]:
    """On loopback, a thread for each connection."""

    def serve(client: socket.socket) -> None:
        end = MutatingEnd(cluster)
        with client, suppress(OSError):
            while data := client.recv(65536):
                before = cluster.answered
                answer = end.receive(data)
                client.sendall(answer)
                if cluster.answered > before:
                    cluster.sent += len(answer)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:
        cluster.port = listener.getsockname()[1]
        threading.Thread(target=accept, daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RDWR)


def measured(name: str, size: int) -> Figures:
    """One producer and answers full of ``name``."""
    api, make = FILLED[name]
    cluster = FillingCluster(api, make(size))
    transactional = api in (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN)
    with serving(cluster):
        command = [sys.executable, "-m", "tests.fault.answers_by_size", "produce"]
        arguments = [str(cluster.port), "tx" if transactional else ""]
        with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE) as child:
            output = child.stdout
            assert output is not None
            output.readline()  # it has begun
            before = peak = resident_bytes(child.pid)
            lines: list[bytes] = []
            reader = threading.Thread(target=lambda: lines.append(output.readline()))
            reader.start()
            while reader.is_alive():
                with suppress(OSError):  # it has just ended
                    peak = max(peak, resident_bytes(child.pid))
                reader.join(0.01)
    found = json.loads(lines[0])
    return Figures(len(cluster.told), cluster.answered, cluster.sent, memory=peak - before, **found)


def produce(port: int, transactional_id: str) -> None:
    """Send records for ``SECONDS``, and print what became of them."""
    options: dict[str, Any] = {"transactional_id": transactional_id} if transactional_id else {}
    producer = KafkaProducer(
        bootstrap_servers=f"127.0.0.1:{port}",
        delivery_timeout_ms=int(1000 * DELIVERY),
        request_timeout_ms=1000,
        max_block_ms=int(1000 * DELIVERY),
        metadata_max_age_ms=100,
        retry_backoff_max_ms=200,
        reconnect_backoff_max_ms=200,
        linger_ms=0,
        **options,
    )
    print("begun", flush=True)
    sent: list[float] = []
    late: list[float] = []

    def send() -> None:
        since = time.monotonic()
        future = producer.send("t", b"v", partition=0)
        sent.append(since)

        def ended(_: object) -> None:
            late.append(time.monotonic() - since - DELIVERY)

        future.add_callback(ended)
        future.add_errback(ended)

    end, used = time.monotonic() + SECONDS, time.process_time()
    if transactional_id:
        with suppress(KprodError):
            producer.init_transactions()
    while time.monotonic() < end:
        with suppress(KprodError):
            if transactional_id:
                with producer.transaction():
                    send()
            else:
                send()
        time.sleep(0.02)
    producer.flush(4 * DELIVERY)
    producer.close(1)
    used = time.process_time() - used
    print(
        json.dumps(
            {"cpu": used, "late": max(late, default=0.0), "records": len(sent), "ended": len(late)}
        )
    )


def main(sizes: list[int]) -> None:
    """Measure all, and tell."""
    for name in FILLED:
        for size in sizes:
            found = measured(name, size)
            share = found.memory / max(1, found.size)
            print(
                f"{name}: {found.size / 1e6:.2f} MB, {found.answered} answers;"
                f" {found.cpu:.2f} s of CPU for {found.sent / 1e6:.1f} MB,"
                f" {found.memory / 1e6:.0f} MB ({share:.1f} x),"
                f" {found.records} records, the last {found.late:+.2f} s after its time",
                flush=True,
            )
            found.check()


if __name__ == "__main__":
    if sys.argv[1:2] == ["produce"]:
        produce(int(sys.argv[2]), sys.argv[3])
    else:
        main([int(size) for size in sys.argv[1:]] or list(SIZES))

"""How much one connection writes into the embedded broker, and into another broker beside it.

Run as ``python -m benchmarks.broker_intake [--rounds N] [--rival HOST:PORT]``. Finished Produce
requests of one batch of 256 KiB each go over six partitions, five at most without an answer,
acks=all. Both brokers are processes of their own on this machine, and take turns.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any, Final

from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import write_result
from benchmarks.spread import significant, spread_of
from kprod.broker.log_reader import create_topic, end_offsets
from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.protocol.messages import request_schema, response_schema
from kprod.errors import BrokerError
from kprod_ext import BufferPool, MemoryRecordsBuilder

BATCH_BYTES: Final = 256 * 1024
PARTITIONS: Final = 6
IN_FLIGHT: Final = 5
VERSION: Final = 9
READY_SECONDS: Final = 30.0
MEGABYTE: Final = 1e6
SIZES: Final = (1000, 100)
TIMESTAMP_MS: Final = 1_700_000_000_000
Request = tuple[bytes, int]


def batch(size: int) -> tuple[bytes, int]:
    """A full batch of records of so many bytes, and how many those are."""
    builder = MemoryRecordsBuilder(
        BufferPool(BATCH_BYTES, BATCH_BYTES).allocate(BATCH_BYTES, 0.0), write_limit=BATCH_BYTES
    )
    while builder.try_append(TIMESTAMP_MS, None, b"x" * size):
        pass
    builder.close()
    return bytes(memoryview(builder.build())), builder.record_count


def requests(topic: str, size: int) -> list[Request]:
    """A request for each partition, and its number of records."""
    records, count = batch(size)
    header = {"request_api_key": 0, "request_api_version": VERSION, "correlation_id": 1}
    found = []
    for partition in range(PARTITIONS):
        parts = [{"index": partition, "records": records}]
        topics = [{"name": topic, "partition_data": parts}]
        body = {"acks": -1, "timeout": 30_000, "topic_data": topics}
        schema = request_schema(ApiKey.PRODUCE, VERSION)
        found.append((schema.encode({**header, "client_id": "intake"}, body), count))
    return found


def receive(client: socket.socket) -> None:
    """The next answer; AssertionError for one that refuses."""
    (size,) = (int.from_bytes(exactly(client, 4), "big"),)
    _, answer = response_schema(ApiKey.PRODUCE, VERSION).decode(exactly(client, size))
    for topic in answer.responses:
        for part in topic.partition_responses:
            assert part.error_code == 0, f"refused with {part.error_code}"


def exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = client.recv(size - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return data


def rate(address: str, prepared: Sequence[Request], seconds: float) -> float:
    """Records in a second, from the first byte to the last answer."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        started = time.perf_counter()
        stored = waiting = 0
        for request, count in cycle(prepared):
            if time.perf_counter() - started > seconds:
                break
            if waiting == IN_FLIGHT:
                receive(client)
                waiting -= 1
            client.sendall(request)
            waiting += 1
            stored += count
        for _ in range(waiting):
            receive(client)
        return stored / (time.perf_counter() - started)


@contextmanager
def embedded() -> Iterator[str]:
    """The embedded broker as a process; yields its address."""
    with tempfile.TemporaryDirectory(prefix="kprod-intake-") as folder:
        command = [sys.executable, "-m", "kprod.broker", "--port", "0", "--data-dir", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield process.stdout.readline().split()[-1]
            finally:
                process.terminate()


def make_topic(address: str, topic: str) -> None:
    """Returns once every partition has a leader that knows it is one."""
    create_topic(address, topic, PARTITIONS)
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            found = end_offsets(address, topic)
        except (BrokerError, AssertionError):
            found = {}
        if len(found) == PARTITIONS:
            return
        assert time.monotonic() < deadline, f"{topic} has no leaders"
        time.sleep(0.1)


def turns(address: str, seconds: float, number: int) -> dict[int, float]:
    """Records in a second by their size, each into a fresh topic."""
    found = {}
    for size in SIZES:
        topic = f"intake-{number}-{size}"
        make_topic(address, topic)
        prepared = requests(topic, size)
        rate(address, prepared, seconds / 4)
        found[size] = rate(address, prepared, seconds)
    return found


def measure(rounds: int, seconds: float, rival: str | None) -> dict[str, list[dict[int, float]]]:
    """Each side's turns."""
    found: dict[str, list[dict[int, float]]] = {"embedded": [], "rival": []}
    for number in range(rounds):
        with embedded() as address:
            found["embedded"].append(turns(address, seconds, number))
        if rival is not None:
            found["rival"].append(turns(rival, seconds, number))
    return {side: made for side, made in found.items() if made}


def figures(found: dict[str, list[dict[int, float]]]) -> dict[str, Any]:
    """Spreads by side and size, and the ratio within each round."""
    told: dict[str, Any] = {}
    for size in SIZES:
        by_side = {side: [turn[size] for turn in made] for side, made in found.items()}
        told[f"{size} bytes"] = {
            side: {
                "records_per_second": spread_of(rates).as_json(),
                "megabytes_per_second": spread_of([r * size / MEGABYTE for r in rates]).as_json(),
                "turns": [significant(each) for each in rates],
            }
            for side, rates in by_side.items()
        }
        if "rival" in by_side:
            pairs = zip(by_side["embedded"], by_side["rival"], strict=True)
            told[f"{size} bytes"]["ratio"] = spread_of([a / b for a, b in pairs]).as_json()
    return told


def main() -> None:
    """Measure and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rival", help="another broker to take turns with, as HOST:PORT")
    parser.add_argument("--rival-name", default="Apache Kafka 4.3.1")
    options = parser.parse_args()
    origin = provenance()
    found = measure(options.rounds, options.seconds, options.rival)
    told = figures(found)
    path = write_result(
        "broker",
        question="How much does one connection write into the embedded broker?",
        command=command_line("benchmarks.broker_intake"),
        origin=origin,
        settings={
            "batch_bytes": BATCH_BYTES,
            "partitions": PARTITIONS,
            "in_flight": IN_FLIGHT,
            "acks": -1,
            "rounds": options.rounds,
            "seconds": options.seconds,
            "rival": options.rival_name if options.rival else None,
        },
        figures=told,
    )
    for size, sides in told.items():
        for side, spread in sides.items():
            print(size, side, spread.get("records_per_second", spread)["median"])
    print(f"stored in {path}")


if __name__ == "__main__":
    main()

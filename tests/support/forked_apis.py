"""Producers of every API, made and used before a fork, in the child and in the parent after it.

Arguments: the broker, a function of ``tests.support.forks``, and "daemon" for a child that closes
all inherited descriptors and opens files. Prints for each API the offsets that were reported for
the parent's first record, the child's and the parent's second; and whether each file is intact.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from typing import IO, Any

import pyarrow as pa

from kprod import KafkaProducer
from kprod import kafka as kafka_python
from kprod.aio import AIOKafkaProducer, Producer
from kprod.confluent import AIOProducer
from kprod.confluent import Producer as ConfluentProducer
from kprod.types import DeliveryReport
from tests.support import forks

SERVERS, FORK, IS_DAEMON = sys.argv[1], getattr(forks, sys.argv[2]), "daemon" in sys.argv
SECONDS = 120

Send = Callable[[bytes], object]


def by_get(kind: Any, topic: str) -> Send:
    producer = kind(bootstrap_servers=SERVERS)
    return lambda value: producer.send(topic, value).get(SECONDS).offset


def by_flush(topic: str) -> Send:
    producer = KafkaProducer(bootstrap_servers=SERVERS)

    def send(value: bytes) -> object:
        future = producer.send(topic, value)
        producer.flush(SECONDS)
        return future.get(0).offset

    return send


def in_bulk(call: str, given: Callable[[bytes], object], topic: str) -> Send:
    producer = KafkaProducer(bootstrap_servers=SERVERS)

    def send(value: bytes) -> object:
        delivery = getattr(producer, call)(topic, given(value))
        delivery.get(SECONDS)
        return delivery[0].offset

    return send


def by_report(call: str, topic: str) -> Send:
    producer = ConfluentProducer({"bootstrap.servers": SERVERS})

    def send(value: bytes) -> object:
        results: list[Any] = []
        assert len(producer) == 0
        producer.produce(topic, value, on_delivery=lambda e, m: results.append(e or m.offset()))
        assert len(producer) == 1
        getattr(producer, call)(SECONDS)
        return results[0]

    return send


def by_loops(kind: Any, topic: str) -> Send:
    """Each record in its own event loop; the child also writes to a new topic."""
    made: list[Any] = []

    async def send(value: bytes) -> object:
        if not made:
            made.append(kind(bootstrap_servers=SERVERS))
            await made[0].start()
        elif value == b"child":
            assert (await made[0].send_and_wait(f"{topic}-new", value)).offset == 0
        future = await made[0].send(topic, value)
        return (await future).offset

    return lambda value: asyncio.run(asyncio.wait_for(send(value), SECONDS))


LOOPS: list[asyncio.AbstractEventLoop] = []
"""Kept: a dropped loop would close descriptors by number."""


def confluent_aio(topic: str) -> Send:
    """Bound to one loop of one process: the child's calls fail, and it makes its own."""
    LOOPS.append(asyncio.new_event_loop())
    made: list[AIOProducer] = []

    async def send(value: bytes) -> object:
        if not made:
            made.append(AIOProducer({"bootstrap.servers": SERVERS}))
        future = await made[0].produce(topic, value)
        return (await asyncio.wait_for(future, SECONDS)).offset()

    def in_loop(value: bytes) -> object:
        if value == b"child":
            LOOPS.append(asyncio.new_event_loop())
            inherited = made[0]
            for call in (send(value), inherited.flush(), inherited.close()):
                error = _raised(partial(LOOPS[-1].run_until_complete, call))
                assert "belongs to the event loop in which it was made" in error, error
            made.clear()
        return LOOPS[-1].run_until_complete(send(value))

    return in_loop


def transactions(topic: str) -> Send:
    producer = KafkaProducer(bootstrap_servers=SERVERS, transactional_id=topic)
    begun: list[Any] = []

    def send(value: bytes) -> object:
        """The child cannot use the parent's transaction; its own one fences the parent."""
        if value == b"first":
            producer.init_transactions()
            producer.begin_transaction()
            begun.append(producer.send(topic, value))
            return None
        if value == b"child":
            for call in (producer.commit_transaction, producer.abort_transaction):
                assert "IllegalStateError" in _raised(call)
            assert "init_transactions" in _raised(lambda: producer.send(topic, b"lost"))
            with producer.transaction():
                future = producer.send(topic, value)
            return future.get(SECONDS).offset
        return _raised(producer.commit_transaction)

    return send


def queued(topic: str) -> Send:
    """The parent sends its queued records although the child closes, flushes and drops them."""
    producers = [KafkaProducer(bootstrap_servers=SERVERS, linger_ms=60_000) for _ in range(4)]
    futures: list[Any] = []

    def send(value: bytes) -> object:
        if value == b"first":
            futures.extend(producer.send(topic, value) for producer in producers)
            return None
        if value == b"child":
            error = _raised(futures[0].get)
            reports = producers[1].flush(SECONDS), producers[2].close(SECONDS)
            assert all(report == DeliveryReport(0, 0, 0) for report in reports)
            assert "closed" in _raised(lambda: producers[2].send(topic, b"lost"))
            producers.clear()
            gc.collect()
            return error
        return sorted(future.get(SECONDS).offset for future in futures)

    return send


def _raised(call: Callable[[], object]) -> str:
    try:
        return f"returned {call()!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


APIS: dict[str, Callable[[str], Send]] = {
    "native": partial(by_get, KafkaProducer),
    "native-flush": by_flush,
    "send-many": partial(in_bulk, "send_many", lambda value: [value]),
    "send-arrow": partial(in_bulk, "send_arrow", lambda value: pa.table({"value": [value]})),
    "kafka": partial(by_get, kafka_python.KafkaProducer),
    "confluent-flush": partial(by_report, "flush"),
    "confluent-poll": partial(by_report, "poll"),
    "confluent-aio": confluent_aio,
    "aio": partial(by_loops, Producer),
    "aiokafka": partial(by_loops, AIOKafkaProducer),
    "transactions": transactions,
    "queued": queued,
}


def _files_of_a_daemon(inherited: list[int]) -> list[tuple[int, IO[bytes]]]:
    """Files under the inherited descriptor numbers, each with its inode."""
    for fd in inherited:
        os.closerange(fd, fd + 1)
    files = [tempfile.TemporaryFile() for _ in inherited]  # noqa: SIM115
    return [(os.fstat(file.fileno()).st_ino, file) for file in files]


def _is_whole(inode_and_file: tuple[int, IO[bytes]]) -> bool:
    inode, file = inode_and_file
    try:
        return os.fstat(file.fileno()).st_ino == inode and file.read() == b""
    except OSError:
        return False


def main() -> None:
    sends = {name: api(name) for name, api in APIS.items()}
    results = {name: [send(b"first")] for name, send in sends.items()}

    inherited = [int(name) for name in os.listdir("/dev/fd") if int(name) > 2]

    def child() -> str:
        files = _files_of_a_daemon(inherited) if IS_DAEMON else []
        offsets = {name: _send(send) for name, send in sends.items()}
        sends.clear()
        gc.collect()
        return json.dumps({**offsets, "files": list(map(_is_whole, files))})

    def _send(send: Send) -> object:
        try:
            return send(b"child")
        except Exception as error:
            return repr(error)

    forks.await_quiet()
    in_child = json.loads(forks.in_child(FORK, child))
    results["files"] = in_child.pop("files")
    for name, offset in in_child.items():
        results[name].append(offset)
    for name, send in sends.items():
        results[name].append(send(b"last"))
    print(json.dumps(results))


if __name__ == "__main__":
    main()

"""The calls of a KafkaProducer around its end and in callbacks: a table for kafka-python and kprod.

A program: ``python -m tests.integration.lifecycle.kafka_python_calls MODULE SERVERS`` prints what
becomes of each row with ``kafka`` or ``kprod.kafka``. The first is the judge.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from tests.support.forked_rows import WAITS, Row, main, outcome

LONG = 20.0
Call = Callable[[Any], Any]

CALLS: dict[str, Call] = {
    "send": lambda p: p.send("t", b"value"),
    "flush()": lambda p: p.flush(),
    "flush(0.1)": lambda p: p.flush(0.1),
    "partitions_for": lambda p: p.partitions_for("t"),
    "bootstrap_connected": lambda p: p.bootstrap_connected(),
    "metrics": lambda p: p.metrics(),
    "close()": lambda p: p.close(),
    "close(0)": lambda p: p.close(0),
    "with": lambda p: p.__exit__(None, None, None),
}


def made(module: Any, servers: str) -> Any:
    producer = module.KafkaProducer(bootstrap_servers=servers, linger_ms=5)
    producer.partitions_for("t")
    return producer


def after_close(call: Call) -> Callable[[Any, str], Any]:
    def run(module: Any, servers: str) -> str:
        producer = made(module, servers)
        producer.close()
        return outcome(call, producer)

    return run


def inside(call: Call) -> Callable[[Any, str], Any]:
    """The call in the callback of a record."""

    def run(module: Any, servers: str) -> Any:
        producer, heard, called = made(module, servers), [], threading.Event()

        def report(_stored: object) -> None:
            heard.append(outcome(call, producer))
            called.set()

        producer.send("t", b"value").add_callback(report)
        called.wait()
        return heard[0]

    return run


def beside(call: Call, producer: Any) -> tuple[threading.Thread, list[str]]:
    heard: list[str] = []
    thread = threading.Thread(target=lambda: heard.append(outcome(call, producer)), daemon=True)
    thread.start()
    return thread, heard


def four_closes(module: Any, servers: str) -> Any:
    producer = made(module, servers)
    futures = [producer.send("t", b"value") for _ in range(100)]
    threads = [beside(CALLS["close()"], producer) for _ in range(4)]
    for thread, _ in threads:
        thread.join()
    return [[heard for _, heard in threads], all(future.succeeded() for future in futures)]


def flush_and_close(module: Any, servers: str) -> Any:
    producer = made(module, servers)
    futures = [producer.send("t", b"value") for _ in range(100)]
    threads = [beside(CALLS[call], producer) for call in ("flush()", "close()")]
    for thread, _ in threads:
        thread.join()
    return [[heard for _, heard in threads], all(future.succeeded() for future in futures)]


def close_under_load(module: Any, servers: str) -> Any:
    """The threads that send are refused, and each record that was taken has an outcome."""
    producer = made(module, servers)
    refused: list[str] = []
    futures: list[Any] = []

    def send() -> None:
        for number in itertools.count():
            try:
                futures.append(producer.send("t", b"value"))
            except Exception as error:
                refused.append(type(error).__name__)
                return
            if number % 10 == 0:
                time.sleep(0.001)

    threads = [threading.Thread(target=send, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    closed = outcome(producer.close)
    for thread in threads:
        thread.join(LONG)
    return [closed, refused, all(future.is_done for future in futures)]


STATE = "IllegalStateError"
AFTER = dict.fromkeys(CALLS, "None") | {
    "send": STATE,
    "partitions_for": "set",
    "bootstrap_connected": "False",
    "metrics": "dict",
}
OWN_THREAD = "the callback would wait for itself: told at once"
ENDS = "close() inside a callback ends the producer without waiting"
TIMEOUT = "KafkaTimeoutError"
INSIDE: dict[str, tuple[Any, Any, str]] = {
    "send": ("FutureRecordMetadata", None, ""),
    "flush()": (WAITS, TIMEOUT, OWN_THREAD),
    "flush(0.1)": (TIMEOUT, None, ""),
    "partitions_for": ("set", None, ""),
    "bootstrap_connected": ("False", "True", "any connection counts, not the first one only"),
    "metrics": ("dict", None, ""),
    "close()": (WAITS, "None", ENDS),
    "close(0)": (TIMEOUT, "None", ENDS),
    "with": (WAITS, "None", ENDS),
}
ROWS = [
    *(Row(f"{name} after close", after_close(CALLS[name]), AFTER[name]) for name in CALLS),
    *(Row(f"{name} inside a callback", inside(CALLS[name]), *INSIDE[name]) for name in CALLS),
    Row("four threads close", four_closes, [[["None"]] * 4, True]),
    Row("flush, and another thread closes", flush_and_close, [[["None"]] * 2, True]),
    Row("close while four threads send", close_under_load, ["None", [STATE] * 4, True]),
]

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    main(ROWS)

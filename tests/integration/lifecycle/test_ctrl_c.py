"""A signal interrupts every blocked call immediately; the producer stays usable."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable

import pytest

from kprod import KafkaProducer
from kprod.errors import ProducerClosedError
from tests.support.broker_process import BrokerProcess
from tests.support.interruption import Interrupted, interruptible
from tests.support.tier import CAMPAIGN, one_of

TOPIC, PARTITIONS = "blocked", 2
LONG = 40.0
IDLE_CHECKS = 25
"""Consecutive checks, 4 ms apart, at which the main thread has not moved."""
RUNS = 20 if CAMPAIGN else 1
PROMISED = 0.25
LATE = 2.0 if RUNS > 1 else 20.0
"""Tolerated seconds beyond the promise on a busy machine."""


class Blocked:
    """Calls that block while the broker hangs."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            buffer_memory=200_000,
            max_block_ms=int(LONG * 1000),
            client_id=TOPIC,
        )
        self.producer.partitions_for(TOPIC)
        broker.freeze()
        self.futures = [self.producer.send(TOPIC, bytes(1000)) for _ in range(10)]

    def send_until_full(self) -> None:
        while True:
            self.futures.append(self.producer.send(TOPIC, bytes(10_000)))

    def leave(self) -> None:
        with self.producer:
            pass


WHILE_OPEN: dict[str, Callable[[Blocked], object]] = {
    "send_waiting_for_memory": Blocked.send_until_full,
    "send_waiting_for_metadata": lambda blocked: blocked.producer.send("unknown", b"v"),
    "partitions": lambda blocked: blocked.producer.partitions_for("unknown"),
    "flush": lambda blocked: blocked.producer.flush(),
    "get": lambda blocked: blocked.futures[-1].get(),
}
WHILE_CLOSING: dict[str, Callable[[Blocked], object]] = {
    "close": lambda blocked: blocked.producer.close(),
    "leave": Blocked.leave,
}


def signal_when_idle(signalled: list[float]) -> None:
    """Send the signal once the main thread no longer moves."""
    main, seen, idle = threading.main_thread().ident or 0, (0, 0), 0
    while idle < IDLE_CHECKS:
        time.sleep(0.004)
        frame = sys._current_frames()[main]
        now = (id(frame), frame.f_lasti)
        idle = idle + 1 if now == seen else 0
        seen = now
    signalled.append(time.monotonic())
    signal.pthread_kill(main, signal.SIGALRM)


@pytest.mark.timeout(360 * RUNS)
@pytest.mark.parametrize("call", [*one_of(*WHILE_OPEN), *one_of(*WHILE_CLOSING)])
def test_ctrl_c_interrupts_a_blocked_call(call: str, broker: BrokerProcess) -> None:
    worst = 0.0
    for _ in range(RUNS):
        blocked, signalled = Blocked(broker), list[float]()
        signaller = threading.Thread(target=signal_when_idle, args=(signalled,))
        with interruptible():
            signaller.start()
            with pytest.raises(Interrupted):
                (WHILE_OPEN | WHILE_CLOSING)[call](blocked)
            took = time.monotonic() - signalled[0]
            signaller.join()
        broker.thaw()
        worst = max(worst, took)
        assert took < PROMISED + LATE
        check_usable(blocked, is_open=call in WHILE_OPEN)
    print(f"{call}: the signal was honoured within {worst * 1000:.1f} ms, in {RUNS} runs")


def check_usable(blocked: Blocked, *, is_open: bool) -> None:
    """Once the broker is back, all records complete, and the producer works unless closed."""
    producer = blocked.producer
    if is_open:
        assert producer.send(TOPIC, b"after").get(LONG).offset >= 0
    else:
        with pytest.raises(ProducerClosedError):
            producer.send(TOPIC, b"after")
    report = producer.close(LONG)
    assert (report.pending, report.failed) == (0, 0)
    # The interrupted send may have queued its record.
    assert report.delivered >= len(blocked.futures) >= 10
    assert all(future.is_done for future in blocked.futures)
    counters = producer.metrics()["producer-metrics"]
    assert counters["buffer-available-bytes"] == counters["buffer-total-bytes"]
    assert counters["waiting-threads"] == 0
    assert not [t for t in threading.enumerate() if t.name.startswith("kprod") and TOPIC in t.name]

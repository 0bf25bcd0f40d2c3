"""Ways in which a process with an open producer may end.

Run as ``python -m tests.integration.lifecycle.exit_variants VARIANT BOOTSTRAP BROKER_PID``; prints
the time on the monotonic clock at which nothing was left to do but to end.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from kprod import KafkaProducer
from kprod.errors import ProducerClosedError
from tests.support.frozen import freeze

TOPIC = "exits"
RECORDS = 1000
EXIT_MS = 500


class Ending:
    """The process is about to end. Every method is one way to do so."""

    def __init__(self, bootstrap: str, broker: int) -> None:
        self.bootstrap = bootstrap
        self.broker = broker

    def producer(self, **options: object) -> KafkaProducer:
        return KafkaProducer(
            bootstrap_servers=self.bootstrap, close_timeout_ms_at_exit=EXIT_MS, **options
        )

    def send(self, **options: object) -> KafkaProducer:
        """A producer with records that nobody has waited for."""
        producer = self.producer(linger_ms=60_000, **options)
        for number in range(RECORDS):
            producer.send(TOPIC, b"%d" % number)
        return producer

    # With a broker that is there, and everything delivered ----------------------------------------

    def without_close(self) -> None:
        self.kept = self.send()

    def by_an_error(self) -> None:
        self.kept = self.send()
        nothing_left_to_do()
        raise ValueError("what the application did not expect")

    def by_sys_exit(self) -> None:
        self.kept = self.send()
        nothing_left_to_do()
        sys.exit(7)

    def by_sys_exit_in_a_thread(self) -> None:
        self.kept = self.send()
        threading.Thread(target=sys.exit, args=(3,)).start()

    def by_ctrl_c(self) -> None:
        self.kept = self.send()
        nothing_left_to_do()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)

    def with_an_error_at_exit(self) -> None:
        self.kept = self.send()
        atexit.register(lambda: 1 / 0)

    def with_sending_at_exit(self) -> None:
        self.kept = producer = self.producer()

        def send() -> None:
            for number in range(RECORDS):
                producer.send(TOPIC, b"%d" % number).add_both(lambda _: None)

        atexit.register(send)

    def with_callbacks_that_print(self) -> None:
        self.kept = producer = self.producer()
        for number in range(RECORDS):
            producer.send(TOPIC, b"%d" % number).add_both(lambda _: say("x" * 200))

    def after_a_fork(self) -> None:
        self.kept = self.send()
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0

    # Without a word about what was delivered ------------------------------------------------------

    def with_daemon_threads_that_send(self) -> None:
        producer = self.producer()
        started = threading.Barrier(5)
        for _ in range(4):
            threading.Thread(target=self._send_on, args=(producer, started), daemon=True).start()
        started.wait()
        time.sleep(0.05)

    def _send_on(self, producer: KafkaProducer, started: threading.Barrier) -> None:
        producer.send(TOPIC, b"v").get()
        started.wait()
        with suppress(ProducerClosedError):
            while True:
                producer.send(TOPIC, b"v").add_both(lambda _: None)

    def with_a_callback_that_blocks(self) -> None:
        self.kept = producer = self.producer(linger_ms=0)
        begun = threading.Event()

        def block(_: object) -> None:
            begun.set()
            time.sleep(2 * EXIT_MS / 1000)

        for _ in range(3):
            producer.send(TOPIC, b"v").add_both(block).add_both(lambda _: say("too late"))
        begun.wait()

    def by_os_exit(self) -> None:
        self.kept = self.send()
        nothing_left_to_do()
        os._exit(5)

    def with_many_producers(self) -> None:
        self.kept_all = [self.send() for _ in range(20)]

    def with_a_dropped_producer(self) -> None:
        self.send()

    def with_a_dropped_cycle(self) -> None:
        producer = self.send()
        producer.itself = producer  # type: ignore[attr-defined]
        producer.send(TOPIC, b"v").add_both(lambda _, kept=producer: None)
        del producer
        gc.collect()

    # With a broker that hangs, or none ------------------------------------------------------------

    def while_the_broker_hangs(self) -> None:
        self.kept = producer = self.producer()
        producer.partitions_for(TOPIC)
        freeze(self.broker)
        for number in range(RECORDS):
            producer.send(TOPIC, b"%d" % number).add_both(lambda _: None)

    def with_daemon_threads_that_wait_for_memory(self) -> None:
        producer = self.producer(buffer_memory=40_000)
        producer.partitions_for(TOPIC)
        freeze(self.broker)
        for _ in range(4):
            threading.Thread(target=self._send_for_ever, args=(producer,), daemon=True).start()
        while producer.metrics()["producer-metrics"]["waiting-threads"] < 4:
            time.sleep(0.001)

    def _send_for_ever(self, producer: KafkaProducer) -> None:
        with suppress(ProducerClosedError):
            while True:
                producer.send(TOPIC, bytes(1000))

    def with_daemon_threads_that_wait_for_metadata(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers="127.0.0.1:1", close_timeout_ms_at_exit=EXIT_MS, client_id="nobody"
        )
        for _ in range(4):
            threading.Thread(target=self._send_for_ever, args=(producer,), daemon=True).start()
        time.sleep(0.05)


def variants() -> list[str]:
    """Their names."""
    return [
        name
        for name in vars(Ending)
        if name.startswith(("by_", "with_", "without_", "while_", "after_"))
    ]


def main(variant: str, bootstrap: str, broker: str) -> None:
    act: Callable[[], None] = getattr(Ending(bootstrap, int(broker)), variant)
    act()
    nothing_left_to_do()


def nothing_left_to_do() -> None:
    """Tell the time."""
    say(f"{time.monotonic()}")


def say(text: str) -> None:
    """A whole line at once: others may be saying something, too."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

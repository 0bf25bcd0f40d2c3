"""Ways in which a process with an open producer may end.

Run as ``python -m tests.integration.lifecycle.exit_variants VARIANT BOOTSTRAP BROKER_PID``; prints
the time on the monotonic clock at which nothing was left to do but to end.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.util import Finalize
from typing import Any

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

    def producer(self, **options: Any) -> KafkaProducer:
        return KafkaProducer(
            bootstrap_servers=self.bootstrap, close_timeout_ms_at_exit=EXIT_MS, **options
        )

    def send(self, **options: Any) -> KafkaProducer:
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

    def by_ctrl_c(self) -> None:
        self.kept = self.send()
        nothing_left_to_do()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)

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

    def by_sigterm(self) -> None:
        self.kept = self.send(close_on_sigterm=True)
        nothing_left_to_do()
        os.kill(os.getpid(), signal.SIGTERM)
        while True:  # the signal comes with the next instruction
            pass

    def with_a_forked_child(self) -> None:
        self._in_a_child("fork")

    def with_a_child_of_a_server(self) -> None:
        self._in_a_child("forkserver")

    def _in_a_child(self, method: str) -> None:
        context: Any = multiprocessing.get_context(method)
        child = context.Process(target=send_and_return, args=(self.bootstrap,))
        child.start()
        child.join()
        assert child.exitcode == 0

    def with_a_pool_that_is_terminated(self) -> None:
        """By SIGTERM, as the end of its ``with`` block does."""
        with multiprocessing.get_context("fork").Pool(1) as pool:
            pool.apply(send_and_return, (self.bootstrap,), {"close_on_sigterm": True})

    def with_a_child_that_is_ended_while_it_ends(self) -> None:
        """As a worker of a pool that is asked to end, and then terminated."""
        child = multiprocessing.get_context("fork").Process(
            target=send_and_be_ended, args=(self.bootstrap,)
        )
        child.start()
        child.join()

    def with_a_worker_whose_master_ends_it(self) -> None:
        """As gunicorn: the worker has a handler of its own for SIGTERM, and ends by SystemExit."""
        ready, writer = os.pipe()
        worker = os.fork()
        if not worker:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            send_and_return(self.bootstrap, close_on_sigterm=True)
            os.write(writer, b"!")
            # One that arrives while sleep() gives the GIL away is seen only when it is over.
            while True:
                time.sleep(0.05)
        os.read(ready, 1)
        os.kill(worker, signal.SIGTERM)
        _, status = os.waitpid(worker, 0)
        assert os.waitstatus_to_exitcode(status) == 0

    def with_a_worker_of_celery(self) -> None:
        """It tells those who have asked, and ends without Python's own end."""
        module: Any = types.ModuleType("celery.signals")
        module.worker_process_shutdown = signal_of_celery = CelerySignal()
        sys.modules["celery.signals"] = module
        worker = os.fork()
        if not worker:
            send_and_return(self.bootstrap)
            signal_of_celery.send(sender=None, pid=os.getpid(), exitcode=0)
            os._exit(0)
        _, status = os.waitpid(worker, 0)
        assert os.waitstatus_to_exitcode(status) == 0

    def with_a_child_that_inherits_a_producer(self) -> None:
        """As workers of gunicorn and Celery do that are made after the application was loaded."""
        self.kept = self.producer(linger_ms=60_000)
        self.kept.partitions_for(TOPIC)
        child = multiprocessing.get_context("fork").Process(target=self._send_by_the_inherited)
        child.start()
        child.join()
        assert child.exitcode == 0

    def _send_by_the_inherited(self) -> None:
        for number in range(RECORDS):
            self.kept.send(TOPIC, b"%d" % number)

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

    def with_a_dropped_producer(self) -> None:
        self.send()

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


class CelerySignal:
    def __init__(self) -> None:
        self._receivers: dict[str, Callable[..., None]] = {}

    def connect(self, receiver: Callable[..., None], *, weak: bool, dispatch_uid: str) -> None:
        assert not weak
        self._receivers[dispatch_uid] = receiver

    def send(self, **named: object) -> None:
        for receiver in self._receivers.values():
            receiver(signal=self, **named)


def send_and_return(bootstrap: str, **options: Any) -> None:
    """What a child process does: it leaves its producer to whatever ends the process."""
    ending = Ending(bootstrap, 0)
    CHILDREN_HAVE.append(ending.send(**options))


def send_and_be_ended(bootstrap: str) -> None:
    """SIGTERM arrives when multiprocessing has begun to end the process, before our finalizer."""
    send_and_return(bootstrap, close_on_sigterm=True)
    Finalize(None, os.kill, args=(os.getpid(), signal.SIGTERM), exitpriority=100)


CHILDREN_HAVE: list[KafkaProducer] = []


def variants() -> list[str]:
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

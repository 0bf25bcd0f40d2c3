"""Ways in which a process with an open producer can exit.

Run as ``python -m tests.integration.lifecycle.exit_variants VARIANT BOOTSTRAP BROKER_PID``; prints
the monotonic time at the start of the exit.
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


class ExitVariant:
    """Every method prepares one way to exit."""

    def __init__(self, bootstrap: str, broker: int) -> None:
        self.bootstrap = bootstrap
        self.broker = broker

    def producer(self, **options: Any) -> KafkaProducer:
        return KafkaProducer(
            bootstrap_servers=self.bootstrap, close_timeout_ms_at_exit=EXIT_MS, **options
        )

    def send(self, **options: Any) -> KafkaProducer:
        """A producer with undelivered records."""
        producer = self.producer(linger_ms=60_000, **options)
        for number in range(RECORDS):
            producer.send(TOPIC, b"%d" % number)
        return producer

    # With a broker: everything is delivered -------------------------------------------------------

    def without_close(self) -> None:
        self.open_producer = self.send()

    def by_an_error(self) -> None:
        self.open_producer = self.send()
        print_exit_time()
        raise ValueError("error of the application")

    def by_ctrl_c(self) -> None:
        self.open_producer = self.send(compression_type="gzip")
        print_exit_time()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)

    def with_sending_at_exit(self) -> None:
        self.open_producer = producer = self.producer()

        def send() -> None:
            for number in range(RECORDS):
                producer.send(TOPIC, b"%d" % number).add_both(lambda _: None)

        atexit.register(send)

    def with_callbacks_that_print(self) -> None:
        self.open_producer = producer = self.producer()
        for number in range(RECORDS):
            producer.send(TOPIC, b"%d" % number).add_both(lambda _: print_line("x" * 200))

    def after_a_fork(self) -> None:
        self.open_producer = self.send()
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0

    def by_sigterm(self) -> None:
        self.open_producer = self.send(close_on_sigterm=True)
        print_exit_time()
        os.kill(os.getpid(), signal.SIGTERM)
        while True:  # until the signal is handled
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

    def with_a_terminated_pool(self) -> None:
        """The end of the ``with`` block sends SIGTERM."""
        with multiprocessing.get_context("fork").Pool(1) as pool:
            pool.apply(send_and_return, (self.bootstrap,), {"close_on_sigterm": True})

    def with_a_child_terminated_during_exit(self) -> None:
        """Like a pool worker that is asked to end and then terminated."""
        child = multiprocessing.get_context("fork").Process(
            target=send_and_terminate, args=(self.bootstrap,)
        )
        child.start()
        child.join()

    def with_a_worker_terminated_by_its_master(self) -> None:
        """As in gunicorn: the worker's own SIGTERM handler raises SystemExit."""
        ready, writer = os.pipe()
        worker = os.fork()
        if not worker:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            send_and_return(self.bootstrap, close_on_sigterm=True)
            os.write(writer, b"!")
            # A signal that arrives while sleep() releases the GIL is handled only after it.
            while True:
                time.sleep(0.05)
        os.read(ready, 1)
        os.kill(worker, signal.SIGTERM)
        _, status = os.waitpid(worker, 0)
        assert os.waitstatus_to_exitcode(status) == 0

    def with_a_worker_of_celery(self) -> None:
        """It emits worker_process_shutdown and calls os._exit()."""
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
        """Like workers of gunicorn and Celery forked after the application was loaded."""
        self.open_producer = self.producer(linger_ms=60_000)
        self.open_producer.partitions_for(TOPIC)
        child = multiprocessing.get_context("fork").Process(target=self._send_with_inherited)
        child.start()
        child.join()
        assert child.exitcode == 0

    def _send_with_inherited(self) -> None:
        for number in range(RECORDS):
            self.open_producer.send(TOPIC, b"%d" % number)

    # With an unknown number of delivered records --------------------------------------------------

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
        self.open_producer = producer = self.producer(linger_ms=0)
        begun = threading.Event()

        def block(_: object) -> None:
            begun.set()
            time.sleep(2 * EXIT_MS / 1000)

        for _ in range(3):
            producer.send(TOPIC, b"v").add_both(block).add_both(lambda _: print_line("too late"))
        begun.wait()

    def with_a_dropped_producer(self) -> None:
        self.send()

    # With a hanging broker, or none ---------------------------------------------------------------

    def while_the_broker_hangs(self) -> None:
        self.open_producer = producer = self.producer()
        producer.partitions_for(TOPIC)
        freeze(self.broker)
        for number in range(RECORDS):
            producer.send(TOPIC, b"%d" % number).add_both(lambda _: None)

    def with_daemon_threads_that_wait_for_memory(self) -> None:
        producer = self.producer(buffer_memory=40_000)
        producer.partitions_for(TOPIC)
        freeze(self.broker)
        for _ in range(4):
            threading.Thread(target=self._send_forever, args=(producer,), daemon=True).start()
        while producer.metrics()["producer-metrics"]["waiting-threads"] < 4:
            time.sleep(0.001)

    def _send_forever(self, producer: KafkaProducer) -> None:
        with suppress(ProducerClosedError):
            while True:
                producer.send(TOPIC, bytes(1000))


class CelerySignal:
    def __init__(self) -> None:
        self._receivers: dict[str, Callable[..., None]] = {}

    def connect(self, receiver: Callable[..., None], *, weak: bool, dispatch_uid: str) -> None:
        assert not weak
        self._receivers[dispatch_uid] = receiver

    def send(self, **kwargs: object) -> None:
        for receiver in self._receivers.values():
            receiver(signal=self, **kwargs)


def send_and_return(bootstrap: str, **options: Any) -> None:
    """Run in a child process, which exits with an open producer."""
    exit_variant = ExitVariant(bootstrap, 0)
    CHILD_PRODUCERS.append(exit_variant.send(**options))


def send_and_terminate(bootstrap: str) -> None:
    """SIGTERM arrives while multiprocessing ends the process, before kprod's finalizer."""
    send_and_return(bootstrap, close_on_sigterm=True)
    Finalize(None, os.kill, args=(os.getpid(), signal.SIGTERM), exitpriority=100)


CHILD_PRODUCERS: list[KafkaProducer] = []


def variants() -> list[str]:
    return [
        name
        for name in vars(ExitVariant)
        if name.startswith(("by_", "with_", "without_", "while_", "after_"))
    ]


def main(variant: str, bootstrap: str, broker: str) -> None:
    act: Callable[[], None] = getattr(ExitVariant(bootstrap, int(broker)), variant)
    act()
    print_exit_time()


def print_exit_time() -> None:
    """Print the time."""
    print_line(f"{time.monotonic()}")


def print_line(text: str) -> None:
    """Print a whole line at once; other threads may print, too."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

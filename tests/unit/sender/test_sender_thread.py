"""The sender thread ends on request or by an exception; every record gets an outcome."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self, cast

import pytest

from kprod.buffer.callbacks import Callbacks
from kprod.clock import SystemClock
from kprod.config import ProducerConfig
from kprod.errors import ProducerClosedError
from kprod.latch import Latch
from kprod.metrics import ProducerMetrics
from kprod.sender.assembly import assemble
from kprod.sender.deadlines import FOREVER
from kprod.sender.engine import Engine
from kprod.transport.base import Readiness
from kprod.transport.memory import MemoryBackend
from kprod.types import Persisted, TopicPartition
from kprod.wire.versions import ApiKey
from kprod_ext.futures import FutureRecordMetadata
from tests.support.interruption import Interrupted, interruptible
from tests.support.pool_waiter import wait_until
from tests.support.raising_backend import RaisingBackend
from tests.support.scripted_cluster import ScriptedCluster, silence
from tests.support.sender_rig import SenderRig, error_of, rig_of

LONG = 20.0
CLOSED = ProducerClosedError("closed")


class ScarceClock(SystemClock):
    """Raises MemoryError in the sender's thread while ``scarce``."""

    def __init__(self) -> None:
        self.scarce = False
        self.refused = 0
        self._caller = threading.get_ident()

    def monotonic(self) -> float:
        if self.scarce and threading.get_ident() != self._caller:
            self.refused += 1
            raise MemoryError
        return SystemClock.monotonic()


class Running:
    """A sender in its own thread, in real time, before a scripted cluster with topic ``t``."""

    def __init__(self, clock: SystemClock | None = None) -> None:
        self.cluster = ScriptedCluster(topics={"t": [1]})
        self.broker = self.cluster.add(1)
        self.mistakes = RaisingBackend(MemoryBackend(self.cluster.listeners))
        config = ProducerConfig.from_options(
            {
                "bootstrap_servers": "broker-1:9092",
                "linger_ms": 0,
                "request_timeout_ms": 200,
                "delivery_timeout_ms": 400,
                "transport": lambda **_: self.mistakes,
            }
        )
        self.clock = clock or SystemClock()
        metrics = ProducerMetrics()
        self.sender = assemble(config, metrics, self.clock)
        self.engine = Engine(self.sender, metrics, "under test")
        self.sender.metadata.await_topic("t", LONG, self.sender.network.wake)

    def queue(self) -> FutureRecordMetadata:
        tp = TopicPartition("t", 0)
        result = self.sender.accumulator.append(tp, 1, None, b"value", (), 0)
        future: FutureRecordMetadata = result.future
        self.sender.network.wake()
        return future

    def one_on_wire_and_one_queued(self) -> list[FutureRecordMetadata]:
        """The second waits: the leader has not acknowledged a batch yet."""
        self.broker.next(ApiKey.PRODUCE, silence)
        on_wire = self.queue()
        wait_until(lambda: self.broker.count(ApiKey.PRODUCE) > 0)
        return [on_wire, self.queue()]

    def stop(self, seconds: float) -> bool:
        return self.engine.stop(seconds)


@pytest.fixture
def running() -> Iterator[Running]:
    rig = Running()
    yield rig
    rig.mistakes.failing = ()
    assert rig.stop(LONG)


def test_an_exception_in_the_loop_ends_the_producer(caplog: pytest.LogCaptureFixture) -> None:
    """Errors say whether records may be persisted; they and one line of the log have the cause."""
    running = Running()
    futures = running.one_on_wire_and_one_queued()
    running.mistakes.failing = ["poll"]
    running.sender.network.wake()
    for future, persisted in zip(futures, (Persisted.MAYBE, Persisted.NO), strict=True):
        with pytest.raises(ProducerClosedError, match="a mistake in poll") as raised:
            future.get(LONG)
        assert raised.value.persisted is persisted
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
    with pytest.raises(ProducerClosedError, match="a mistake in poll") as refused:
        running.queue()
    assert refused.value.persisted is Persisted.NO
    with pytest.raises(ProducerClosedError, match="a mistake in poll"):
        running.sender.metadata.await_topic("another", LONG, running.sender.network.wake)
    with pytest.raises(ProducerClosedError, match="a mistake in poll"):
        running.sender.fetch_metadata(None, LONG)
    assert running.stop(LONG)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert ["a mistake in poll" in line for line in lines] == [True]
    assert running.sender.accumulator.pool.available == running.sender.accumulator.pool.total


class FailingHandler(logging.Handler):
    """A handler of the application that raises."""

    called = False

    def emit(self, record: logging.LogRecord) -> None:
        self.called = True
        raise ArithmeticError(f"cannot log {record.msg!r}")


def test_a_log_handler_that_raises_does_not_end_the_thread(running: Running) -> None:
    """It is called for a failed connection."""
    handler = FailingHandler()
    log = logging.getLogger("kprod")
    log.addHandler(handler)
    try:
        running.mistakes.failing = ["receive"]
        future = running.queue()
        wait_until(lambda: handler.called)
        running.mistakes.failing = ()
        assert future.get(LONG).offset >= 0
    finally:
        log.removeHandler(handler)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_shutdown_takes_each_step_even_if_some_fail() -> None:
    """The cause, such as a lack of memory, may make some steps fail as well."""
    clock = ScarceClock()
    running = Running(clock)
    futures = running.one_on_wire_and_one_queued()
    clock.scarce = True
    running.sender.network.wake()
    wait_until(lambda: clock.refused >= 2)
    clock.scarce = False
    for future in futures:
        with pytest.raises(ProducerClosedError) as raised:
            future.get(LONG)
        assert isinstance(raised.value.__cause__, MemoryError)
    assert running.stop(LONG)
    wait_until(lambda: all(t.name != "kprod-sender-under test" for t in threading.enumerate()))


class InterleavedError(ProducerClosedError):
    """Calls ``meanwhile`` once, when the first batch is failed with it."""

    meanwhile: Callable[[], object] | None = None

    def __copy__(self) -> Self:
        if self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            act()
        return super().__copy__()


def one_sent_and_three_queued(**options: Any) -> tuple[SenderRig, list[FutureRecordMetadata]]:
    cluster = ScriptedCluster(topics={"t": [1] * 4})
    cluster.add(1).next(ApiKey.PRODUCE, silence)
    rig = rig_of(cluster, **options)
    futures = [rig.queue()]
    assert rig.run(lambda: cluster.brokers[1].count(ApiKey.PRODUCE) == 1)
    return rig, futures + [rig.queue(partition=number) for number in range(1, 4)]


def test_disowning_during_an_abort_reports_what_is_known_of_each_record() -> None:
    """The abort has emptied the queues, but not yet failed the records."""
    rig, futures = one_sent_and_three_queued()
    closed = InterleavedError("closed")
    closed.meanwhile = lambda: rig.sender.disown(CLOSED)
    rig.sender.abort(closed)
    errors = [error_of(future) for future in futures]
    assert {str(error) for error in errors} == {"closed"}
    assert [error.persisted for error in errors] == [Persisted.MAYBE, *[Persisted.NO] * 3]
    assert rig.sender.accumulator.pool.available == rig.sender.accumulator.pool.total


def test_disowned_records_are_reported_as_maybe_persisted() -> None:
    rig, futures = one_sent_and_three_queued()
    rig.sender.disown(CLOSED)
    assert {error_of(future).persisted for future in futures} == {Persisted.MAYBE}
    rig.sender.abort(ProducerClosedError("too late"))
    assert {str(error_of(future)) for future in futures} == {"closed"}
    counted = (rig.metrics.records_failed, rig.sender.disowned)
    assert counted == (0, 4), "disowned records are not counted as failed"


def test_a_signal_during_disown_runs_no_callback_twice() -> None:
    """The handler raises in the closing thread right after the callbacks are queued."""

    def interrupt(_frame: object, event: str, called: object) -> None:
        if event == "c_return" and getattr(called, "__qualname__", "") == "SimpleQueue.put":
            signal.raise_signal(signal.SIGALRM)

    callbacks = Callbacks("callbacks under test")
    rig, futures = one_sent_and_three_queued(callbacks=callbacks)
    errors: list[object] = []
    for future in futures:
        future.add_errback(errors.append)
    with interruptible():
        sys.setprofile(interrupt)
        try:
            with pytest.raises(Interrupted):
                rig.sender.disown(CLOSED)
        finally:
            sys.setprofile(None)
    rig.sender.disown(CLOSED)
    callbacks.stop()
    assert callbacks.drain(LONG)
    assert len(errors) == 4
    rig.sender.abort(ProducerClosedError("too late"))


def waits_of(rig: SenderRig, monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """Timeouts of the calls of ``poll`` from now on."""
    waits: list[float | None] = []

    def poll(timeout: float | None) -> list[Readiness]:
        waits.append(timeout)
        return []

    monkeypatch.setattr(rig.backend, "poll", poll)
    return waits


class FailingWork:
    """Every iteration raises."""

    finished = True

    def __init__(self) -> None:
        self.iterations = 0
        self.broken_by: BaseException | None = None

    def run_once(self, longest: float) -> None:
        self.iterations += 1
        self.broken_by = ArithmeticError("failing iteration")
        raise self.broken_by


def test_a_caller_does_not_wait_once_its_record_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ScriptedCluster()
    cluster.add(1)
    rig = SenderRig(cluster)
    rig.sender.network.interruptible = True
    loop_owner = rig.sender.loop_owner
    done, waits = Latch(), waits_of(rig, monkeypatch)

    class Ending:
        """The sender; the caller's record ends before it polls."""

        finished = True
        broken_by: BaseException | None = None

        def run_once(self, longest: float) -> None:
            done.open()
            rig.sender.run_once(longest)

    loop_owner.work = cast(Any, Ending())
    loop_owner.take()
    loop_owner.give_up()
    assert loop_owner.wait(done, timeout=None, expedite=False)
    assert waits == [0.0]


def test_closing_does_not_wait_once_all_records_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """``close`` checks between two iterations only."""
    cluster = ScriptedCluster(topics={"t": [1]})
    cluster.add(1).next(ApiKey.PRODUCE, silence)
    rig = SenderRig(cluster, delivery_timeout_ms=10_000, request_timeout_ms=9_000)
    rig.know("t")
    future = rig.queue()
    assert rig.run(lambda: rig.sender.partitions.on_wire > 0)
    waits = waits_of(rig, monkeypatch)
    rig.sender.loop_owner.recall(FOREVER)
    for seconds in (0.0, 11.0, 0.0):
        rig.clock.advance(seconds)
        rig.sender.ready_to_close(rig.clock.now)
        rig.sender.run_once(LONG)
    assert future.is_done
    before, ending, after = waits
    assert before
    assert ending == 0
    assert after, "telemetry, for example, may still be pending"


def test_after_an_exception_in_the_iteration_of_a_caller_the_thread_takes_over() -> None:
    cluster = ScriptedCluster()
    cluster.add(1)
    rig = SenderRig(cluster)
    rig.sender.network.interruptible = True
    loop_owner = rig.sender.loop_owner
    work = loop_owner.work = cast(Any, FailingWork())
    loop_owner.take()
    loop_owner.give_up()  # the thread has started, and rests
    assert not loop_owner.wait(Latch(), timeout=0.001, expedite=False)
    assert work.iterations == 1
    # Another caller begins to wait before the thread ends the producer.
    assert not loop_owner.wait(Latch(), timeout=0.001, expedite=False)
    assert work.iterations == 1
    loop_owner.rest()  # returns at once: it was woken
    assert loop_owner.wanted

"""Copies of a producer, other interpreters, and allocators that need the GIL."""

from __future__ import annotations

import copy

import pytest

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from tests.support.committed_records import read_back
from tests.support.programs import run_python

IN_A_SUBINTERPRETER = """
import kprod
try:
    import _interpreters as interpreters  # Python 3.13 and later
except ImportError:
    import _xxsubinterpreters as interpreters

interpreter = interpreters.create()
try:
    failed = interpreters.run_string(interpreter, "import kprod")
except Exception as error:
    failed = error
assert failed is None or "ImportError" in str(failed), failed
interpreters.destroy(interpreter)
print("fine")
"""


SEND_MANY_BESIDE_SECOND_INTERPRETER = """
import threading
from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
try:
    import _interpreters as interpreters  # Python 3.13 and later
except ImportError:
    import _xxsubinterpreters as interpreters

interpreters.create()
values = [b"v" * 20] * 50_000
with EmbeddedBroker(topics={"t": 1}) as broker:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=5) as producer:
        producer.send("t", b"first").get(20)
        def send():
            for _ in range(8):
                producer.send_many("t", values, partitions=0)
        threads = [threading.Thread(target=send) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert producer.flush(30).failed == 0
print("fine")
"""
"""As in mod_wsgi and uWSGI, which start with a second interpreter."""


SEND_AND_SEND_MANY = """
import threading, time
from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker

values = [b"v" * 200] * 20_000
with EmbeddedBroker(topics={"many": 1, "lone": 4}) as broker:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=5) as producer:
        producer.send("many", b"first").get(20)
        producer.send("lone", b"first").get(20)
        over = time.monotonic() + 4
        def many():
            while time.monotonic() < over:
                producer.send_many("many", values)
        def lone():
            while time.monotonic() < over:
                for partition in range(4):
                    producer.send("lone", b"v" * 3_000, partition=partition)
        threads = [threading.Thread(target=many), threading.Thread(target=lone)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert producer.flush(30).failed == 0
print("fine")
"""


@pytest.mark.full
def test_a_deep_copy_is_an_independent_producer() -> None:
    with (
        EmbeddedBroker(topics={"copied": 1}) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
        copy.deepcopy(producer) as twin,
    ):
        producer.send("copied", b"0").get(20)
        twin.send("copied", b"1").get(20)
        twin.close()
        producer.send("copied", b"2").get(20)
        found = [stored.value for stored in read_back(broker.bootstrap_servers, "copied", 1)]
    assert found == [b"0", b"1", b"2"]


def run(program: str, *options: str) -> None:
    ran = run_python(*options, "-c", program)
    assert ran.stdout == "fine\n", ran.stderr


@pytest.mark.full
def test_a_subinterpreter_imports_kprod_or_raises_an_import_error() -> None:
    run(IN_A_SUBINTERPRETER)


@pytest.mark.full
def test_threads_waiting_for_a_queue_do_not_deadlock_beside_a_second_interpreter() -> None:
    """With a second interpreter, PyGILState_Check always returns true."""
    run(SEND_MANY_BESIDE_SECOND_INTERPRETER)


@pytest.mark.full
def test_allocating_batches_does_not_deadlock_under_tracemalloc() -> None:
    """Before Python 3.13 its hook takes the GIL in threads that have released it."""
    run(SEND_AND_SEND_MANY, "-X", "tracemalloc")

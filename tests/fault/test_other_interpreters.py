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


SEND_MANY_BESIDE_ANOTHER = """
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
"""As in mod_wsgi and uWSGI, where another interpreter is there from the beginning."""


TWO_KINDS_OF_CALLS = """
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
def test_a_deep_copy_is_a_producer_of_its_own() -> None:
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
    ended = run_python(*options, "-c", program)
    assert ended.stdout == "fine\n", ended.stderr


@pytest.mark.full
def test_a_subinterpreter_imports_it_or_says_that_it_cannot() -> None:
    run(IN_A_SUBINTERPRETER)


@pytest.mark.full
def test_threads_that_wait_for_a_queue_know_whether_they_have_the_gil() -> None:
    """PyGILState_Check says that each thread has it, once there was a second interpreter."""
    run(SEND_MANY_BESIDE_ANOTHER)


@pytest.mark.full
def test_memory_of_batches_is_taken_where_tracemalloc_waits_for_the_gil() -> None:
    """Before Python 3.13 its hook takes the GIL in a thread that has given it up."""
    run(TWO_KINDS_OF_CALLS, "-X", "tracemalloc")

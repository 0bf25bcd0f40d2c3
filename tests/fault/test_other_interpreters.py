"""Copies of a producer, and interpreters that are not the main one."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from tests.support.judge import read_back

ROOT = Path(__file__).parents[2]

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


def test_a_subinterpreter_imports_it_or_says_that_it_cannot() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", IN_A_SUBINTERPRETER],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "fine\n"), ended.stderr

"""``import kprod`` is cheap, and works without Linux-only modules."""

from __future__ import annotations

import os

from kprod.broker import EmbeddedBroker
from tests.support.programs import run_python

EXPENSIVE = (
    *("asyncio", "concurrent.futures", "crc32c", "email", "importlib.metadata", "ssl"),
    *("kio", "numpy", "pandas", "pyarrow", "pyspark", "rich", "typer"),
    *("datetime", "difflib", "importlib.util", "json", "platform", "selectors", "socket", "uuid"),
    *("kprod.bulk.arrow_batches", "kprod.bulk.delivery", "kprod.bulk.rows"),
    *("kprod.transport.tcp", "kprod.transport.memory"),
)
SENDING = """
producer = kprod.KafkaProducer(bootstrap_servers=sys.argv[1])
producer.send("t", b"value", key=b"key").get(timeout=10)
producer.close()
"""


def loaded(script: str, *arguments: str) -> set[str]:
    """The expensive modules that a new interpreter has loaded after ``script``."""
    script += f"\nprint(*[m for m in {EXPENSIVE!r} if m in sys.modules])"
    return set(run_python("-c", script, *arguments).stdout.split())


def test_importing_kprod_loads_no_expensive_module() -> None:
    assert loaded("import kprod, sys") == set()


def test_the_first_record_loads_only_transport_and_checksum() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        found = loaded(f"import kprod, sys\n{SENDING}", broker.bootstrap_servers)
    # The dependencies of these two depend on the version of Python.
    assert found == {"kprod.transport.tcp"} | loaded("import crc32c, socket, sys")


def test_the_broker_does_not_import_hypothesis() -> None:
    """kio imports it where it is installed."""
    script = "import sys, kprod.broker\nassert 'hypothesis' not in sys.modules\nimport hypothesis"
    run_python("-c", script)


def test_send_many_does_not_load_asyncio() -> None:
    sending = SENDING.replace('send("t", b"value", key=b"key")', 'send_many("t", [b"value"])')
    with EmbeddedBroker(topics={"t": 1}) as broker:
        found = loaded(f"import kprod, sys\n{sending}", broker.bootstrap_servers)
    assert "kprod.bulk.delivery" in found
    assert "asyncio" not in found


LINUX_ONLY = """
import asyncio, multiprocessing.util, os, select, signal, subprocess, tempfile, threading

for module, names in {
    os: "copy_file_range eventfd fdatasync memfd_create pidfd_open pipe2 posix_fadvise"
    " sched_getaffinity splice",
    select: "epoll " + " ".join(name for name in dir(select) if name.startswith("EPOLL")),
    signal: "SIGRTMAX SIGRTMIN sigtimedwait sigwaitinfo",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
"""
"""Removes what macOS lacks, after importing the modules of the library that use it."""
IMPORT_ALL = """
import importlib, pkgutil, kprod

def fail(name):
    raise

found = [each.name for each in pkgutil.walk_packages(kprod.__path__, "kprod.", fail)]
for name in found:
    if not name.endswith("__main__"):
        importlib.import_module(name)
assert len(found) > 200
"""
SERVE = """
from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker

with EmbeddedBroker(topics={"t": 2}) as broker:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(1000):
            producer.send("t", b"%d" % number)
    print(len(broker.records("t")))
"""
MEASURE = """
import sys
from kprod.cli import main

sys.argv = ["kprod", "perf", "--records", "1000", "--json", "--bootstrap-servers", SERVERS]
main()
"""


def test_every_module_can_be_imported_without_linux_features() -> None:
    run_python("-c", LINUX_ONLY + IMPORT_ALL)


def test_the_embedded_broker_works_without_linux_features() -> None:
    ran = run_python("-c", LINUX_ONLY + SERVE, env=os.environ | {"KPROD_PORTABLE": "1"})
    assert ran.stdout == "1000\n"


def test_kprod_perf_works_without_linux_features() -> None:
    with EmbeddedBroker(topics={"kprod-perf": 2}) as broker:
        program = f"{LINUX_ONLY}\nSERVERS = {broker.bootstrap_servers!r}\n{MEASURE}"
        run_python("-c", program)
        assert len(broker.records("kprod-perf")) == 1000 + 1000  # and the warm-up

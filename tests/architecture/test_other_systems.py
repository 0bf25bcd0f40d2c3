"""kprod where the system has less than Linux: what is not there is neither imported nor called."""

from __future__ import annotations

import os
import subprocess
import sys

from kprod.broker import EmbeddedBroker

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
"""Takes away what macOS does not have; the modules before it use them where they are."""

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


def test_every_module_can_be_imported_without_what_only_linux_has() -> None:
    subprocess.run([sys.executable, "-c", LINUX_ONLY + IMPORT_ALL], check=True)


def test_an_embedded_broker_serves_without_what_only_linux_has() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LINUX_ONLY + SERVE],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"KPROD_PORTABLE": "1"},
    )
    assert ran.stdout == "1000\n"


def test_records_are_delivered_and_measured_without_what_only_linux_has() -> None:
    with EmbeddedBroker(topics={"kprod-perf": 2}) as broker:
        program = f"{LINUX_ONLY}\nSERVERS = {broker.bootstrap_servers!r}\n{MEASURE}"
        subprocess.run([sys.executable, "-c", program], check=True)
        assert len(broker.records("kprod-perf")) == 1000 + 1000  # and those before the clock starts

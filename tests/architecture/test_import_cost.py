"""``import kprod`` stays cheap: what only some users need is imported when they use it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import kprod
from kprod.broker import EmbeddedBroker
from tests.architecture.sources import ROOT

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
WITHOUT_A_FIRST_IMPORT = """
import sys, threading
import kprod
found = []
def note(event, arguments):
    if event == "import" and threading.current_thread() is not threading.main_thread():
        found.append((threading.current_thread().name, arguments[0]))
sys.addaudithook(note)
for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    producer = kprod.KafkaProducer(bootstrap_servers=sys.argv[1], compression_type=codec)
    sent = [producer.send("t", b"value" * 100, key=b"key") for _ in range(1000)]
    producer.flush(timeout=30)
    assert all(future.succeeded() for future in sent)
    producer.close()
print(*found)
"""


def loaded(script: str, *arguments: str) -> set[str]:
    """Which of the expensive modules a fresh interpreter has after running ``script``."""
    script += f"\nprint(*[m for m in {EXPENSIVE!r} if m in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(ran.stdout.split())


def test_import_kprod_pulls_in_nothing_expensive() -> None:
    assert loaded("import kprod, sys") == set()


def test_the_broker_leaves_hypothesis_alone(tmp_path: Path) -> None:
    """kio imports it where it is installed, and it writes into the working directory."""
    script = "import sys, kprod.broker; print(int('hypothesis' in sys.modules)); import hypothesis"
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "0\n"
    assert list(tmp_path.iterdir()) == []


def test_the_first_record_pulls_in_transport_and_checksum() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        found = loaded(f"import kprod, sys\n{SENDING}", broker.bootstrap_servers)
    # What these two import in turn differs with the version of Python.
    assert found == {"kprod.transport.tcp"} | loaded("import crc32c, socket, sys")


def test_no_module_is_imported_first_in_a_thread_of_the_producer() -> None:
    """While the interpreter ends, an import there may end it in another way than it began to."""
    with EmbeddedBroker(topics={"t": 1}) as broker:
        ran = subprocess.run(
            [sys.executable, "-c", WITHOUT_A_FIRST_IMPORT, broker.bootstrap_servers],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    assert ran.stdout.strip() == ""


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert kprod.__version__ == project["version"]

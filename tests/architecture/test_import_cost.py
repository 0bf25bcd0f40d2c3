"""``import kprod`` stays cheap: what only some users need is imported when they use it."""

from __future__ import annotations

import subprocess
import sys

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


def test_the_first_record_pulls_in_transport_and_checksum() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        found = loaded(f"import kprod, sys\n{SENDING}", broker.bootstrap_servers)
    # What these two import in turn differs with the version of Python.
    assert found == {"kprod.transport.tcp"} | loaded("import crc32c, socket, sys")


def test_a_broker_leaves_hypothesis_to_those_who_import_it() -> None:
    """kio, which it reads messages with, would import it where it is installed."""
    script = "import sys, kprod.broker\nassert 'hypothesis' not in sys.modules\nimport hypothesis"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_sending_many_loads_no_asyncio() -> None:
    sending = SENDING.replace('send("t", b"value", key=b"key")', 'send_many("t", [b"value"])')
    with EmbeddedBroker(topics={"t": 1}) as broker:
        found = loaded(f"import kprod, sys\n{sending}", broker.bootstrap_servers)
    assert "kprod.bulk.delivery" in found
    assert "asyncio" not in found

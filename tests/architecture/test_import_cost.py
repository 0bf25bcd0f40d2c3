"""``import kprod`` stays cheap: what only some users need is imported when they use it."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import kprod
from kprod.broker import EmbeddedBroker
from kprod_ext.checksum import ways
from tests.architecture.sources import ROOT

EXPENSIVE = (
    *("asyncio", "concurrent.futures", "crc32c", "email", "importlib.metadata", "ssl"),
    *("kio", "numpy", "pandas", "pyarrow", "pyspark", "rich", "typer"),
    *("datetime", "difflib", "importlib.util", "json", "platform", "selectors", "socket", "uuid"),
    *("kprod.bulk.arrow_sending", "kprod.bulk.delivery", "kprod.bulk.rows"),
    *("kprod.transport.tcp", "kprod.transport.memory", "kprod.intake.named_serializers"),
)


PACKAGE = "package"
OF_THE_PACKAGE = {"crc32c", "datetime", "email", "importlib.metadata", "importlib.util"}
"""What the ``crc32c`` package brings, where checksums are not computed by code of our own."""

ALSO_OF_THE_TRANSPORT = ("kprod.transport.tcp", "selectors", "socket")
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


def test_the_first_record_pulls_in_the_transport_and_what_its_checksum_takes() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        found = loaded(f"import kprod, sys\n{SENDING}", broker.bootstrap_servers)
    if ways()[0] == PACKAGE:
        found -= OF_THE_PACKAGE
    assert found == set(ALSO_OF_THE_TRANSPORT)


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert kprod.__version__ == project["version"]

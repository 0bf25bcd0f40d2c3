"""A SPARK_HOME without the archive of pyspark's sources.

Spark puts that archive first on the path of its Python workers, and each of them compiles it: half
of the time of a short job. Without it they import the installed package, which is the same code.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build"
PARTS = ("bin", "jars", "sbin")


def pytest_configure() -> None:
    """Set SPARK_HOME, unless it is set already."""
    found = find_spec("pyspark")
    if found is None or found.origin is None or "SPARK_HOME" in os.environ:
        return
    installed = Path(found.origin).parent
    name = hashlib.sha256(os.fsencode(installed)).hexdigest()[:8]  # one for each environment
    home = BUILD / "spark-home" / name
    home.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        with suppress(FileExistsError):  # made by an earlier run or another worker
            (home / part).symlink_to(installed / part)
    os.environ["SPARK_HOME"] = str(home)

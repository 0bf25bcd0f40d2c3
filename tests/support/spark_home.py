"""A home of Spark whose Python workers find pyspark compiled.

Spark puts an archive of pyspark's sources before all else on the path of its Python workers, and
each of them compiles what it imports from there: half of what the workers of a short job take. A
home without the archive leaves them the installed package, which is the same code.
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
    """Let what tests start take that home, unless another one is set."""
    found = find_spec("pyspark")
    if found is None or found.origin is None or "SPARK_HOME" in os.environ:
        return
    installed = Path(found.origin).parent
    name = hashlib.sha256(os.fsencode(installed)).hexdigest()[:8]  # one for each environment
    home = BUILD / "spark-home" / name
    home.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        with suppress(FileExistsError):  # of a run before, or another worker's
            (home / part).symlink_to(installed / part)
    os.environ["SPARK_HOME"] = str(home)

"""How long does ``import kprod`` take in a fresh interpreter, and what does it bring along?

    python -m benchmarks.import_cost

prints it as JSON. As with an installed package, there is bytecode of every module already, and all
files are in the system's cache: an import that is not counted sees to both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
UNWANTED = ("asyncio", "kio", "pyarrow", "pyspark")
PROBE = """
import json, sys, time
started = time.perf_counter()
import kprod
milliseconds = 1000 * (time.perf_counter() - started)
print(json.dumps({"import_ms": milliseconds, "modules": sorted(sys.modules)}))
"""


def import_cost(times: int) -> dict[str, list[Any]]:
    """Milliseconds of each import but the first, and the unwanted packages that came with it."""
    with tempfile.TemporaryDirectory() as bytecode:
        probed = [_probe(bytecode) for _ in range(times + 1)][1:]
    loaded = {name.partition(".")[0] for one in probed for name in one["modules"]}
    return {
        "import_ms": [one["import_ms"] for one in probed],
        "unwanted": sorted(loaded & set(UNWANTED)),
    }


def _probe(bytecode: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else every import compiles all of kprod
    ran = subprocess.run(
        [sys.executable, "-c", PROBE],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    probed: dict[str, Any] = json.loads(ran.stdout)
    return probed


if __name__ == "__main__":
    print(json.dumps(import_cost(5)))

"""The oldest versions that pyproject.toml says kprod works with, a requirement a line.

What users install only: not what tests, checks and pages are made with, nor pyspark, whose oldest
version is half a gigabyte; tests/spark runs with the one of constraints.txt, and with what Spark
Connect needs, among it a newer protobuf than the extra ``schema``.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

OURS = {"dev", "docs", "site", "wheel", "release", "cross", "kerberos"}
"""Extras for those who work on kprod."""
WITH_IT = {"opentelemetry-api": "opentelemetry-sdk"}
"""What tests use beside a package has to be of its very version."""
LEFT_OUT = {"pyspark", "grpcio", "grpcio-status", "googleapis-common-protos", "gssapi"}
"""Spark's; and what is compiled against the headers of Kerberos, which few machines have."""
BOUND = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)>=(?P<version>[0-9a-z.]+)")


def oldest(pyproject: Path) -> list[str]:
    """Every lower bound as the only version that fits."""
    project = tomllib.loads(pyproject.read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"]]
    wanted += [one for extra in extras.keys() - OURS for one in extras[extra]]
    bounds = [BOUND.match(one) for one in wanted if not one.startswith("kprod[")]
    assert all(bounds), f"a requirement without a lower bound: {wanted}"
    found = {bound["name"]: bound["version"] for bound in bounds if bound is not None}
    found |= {WITH_IT[name]: version for name, version in found.items() if name in WITH_IT}
    return sorted(f"{name}=={found[name]}" for name in found.keys() - LEFT_OUT)


if __name__ == "__main__":
    sys.stdout.write(
        "".join(f"{one}\n" for one in oldest(Path(__file__).parents[1] / "pyproject.toml"))
    )

"""Every Spark type in every format: the whole matrix, which takes minutes"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.spark.type_matrix import ROOT


@pytest.mark.timeout(3600)
def test_every_type_is_equal_or_refused_in_every_format() -> None:
    command = [sys.executable, "-m", "tests.spark.type_matrix"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(ran.stdout)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr[-2000:]}"

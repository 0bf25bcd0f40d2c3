"""Whether there is a Java that can run Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

OLDEST = 17
VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def why_no_java(environment: Mapping[str, str] = os.environ) -> str | None:
    """What is wrong with the Java that Spark would start, None when it can run Spark.

    As Spark does: the one of ``JAVA_HOME`` when that is set, else the first on ``PATH``.
    """
    program = _program(environment)
    if program is None:
        return f"Spark needs Java {OLDEST} or newer, and there is none"
    try:
        ran = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"Spark needs Java {OLDEST} or newer, and {program} does not run: {error}"
    found = VERSION.search(ran.stderr + ran.stdout)
    if found is None or int(found[1]) < OLDEST:
        version = found[1] if found else "of unknown version"
        return f"Spark needs Java {OLDEST} or newer; {program} is Java {version}"
    return None


def _program(environment: Mapping[str, str]) -> str | None:
    home = environment.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    return shutil.which("java", path=environment.get("PATH"))

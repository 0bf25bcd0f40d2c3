"""Checking the Java that Spark would start."""

from __future__ import annotations

from pathlib import Path

import pytest

from kprod.cli.spark_runtime import why_no_java


def java_home(folder: Path, output: str, exit_code: int = 0) -> dict[str, str]:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{output}' >&2\nexit {exit_code}\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(folder), "PATH": "/nowhere"}


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        *((f'openjdk version "{good}" 2025-04-15', "") for good in ("17.0.15", "21", "25.0.1")),
        ('java version "1.8.0_202"', "is Java 8"),
        ('openjdk version "11.0.2"', "is Java 11"),
        ("no idea", "of unknown version"),
    ],
)
def test_an_unsupported_java_is_reported(tmp_path: Path, output: str, complaint: str) -> None:
    found = why_no_java(java_home(tmp_path, output))
    assert complaint in found if found else not complaint


def test_java_is_searched_on_the_path_and_checked_to_run(tmp_path: Path) -> None:
    assert why_no_java({"PATH": "/nowhere"}) == "Spark needs Java 17 or newer, and there is none"
    assert "does not run" in (why_no_java({"JAVA_HOME": str(tmp_path / "gone")}) or "")
    java_home(tmp_path, 'openjdk version "17"')
    assert why_no_java({"PATH": str(tmp_path / "bin")}) is None
    broken = java_home(tmp_path / "bin", "boom", exit_code=1)
    assert "does not run" in (why_no_java(broken) or "")

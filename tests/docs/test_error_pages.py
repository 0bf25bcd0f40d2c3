"""Every error has a stable number, and the table of error codes matches the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from kprod.cli.error_pages import error_table
from kprod.errors import MAYBE_WRITTEN, RETRIABLE, BrokerError, ErrorCode, KprodError

ROOT = Path(__file__).parents[2]

NUMBERS = {number: row["class"] for number, row in error_table().items()}
"""They appear in logs and tickets: rows may be added, but no number may change."""
CLASS = re.compile(r"^class (\w+)\(([^)]*)\)", re.MULTILINE)
DROP_IN = {"kafka/errors.py", "aio/errors.py"}
"""Classes named as in other packages, which stand for errors with a number."""


def class_of(number: str) -> type[KprodError]:
    module, _, name = NUMBERS[number].rpartition(".")
    found: type[KprodError] = getattr(importlib.import_module(module), name)
    return found


def classes_of_the_source() -> set[str]:
    """The names of all subclasses of KprodError in the source."""
    bases: dict[str, set[str]] = {}
    for file in sorted((ROOT / "kprod").rglob("*.py")):
        path = str(file.relative_to(ROOT / "kprod"))
        module = "kprod." + path.removesuffix(".py").replace("/", ".")
        for name, parents in CLASS.findall(file.read_text() if path not in DROP_IN else ""):
            bases[f"{module}.{name}"] = set(re.findall(r"\w+", parents))
    found = {"KprodError"}
    while more := {_name(path) for path, of in bases.items() if of & found} - found:
        found |= more
    return {path for path in bases if _name(path) in found}


def _name(path: str) -> str:
    return path.rpartition(".")[2]


def test_every_error_has_its_own_number() -> None:
    assert classes_of_the_source() == set(NUMBERS.values())
    assert {number: class_of(number).number for number in NUMBERS} == {
        number: number for number in NUMBERS
    }


def test_the_table_of_codes_matches_the_code() -> None:
    row = re.compile(
        r"^\| (-?\d+) \| (\w+) \| (yes|no) \| (may be stored|not stored) \|", re.MULTILINE
    )
    rows = row.findall(error_table()[BrokerError.number]["notes"])
    assert len(rows) > 20
    for code, name, retriable, stored in rows:
        assert ErrorCode(int(code)).name == name
        assert (retriable == "yes") == (int(code) in RETRIABLE), name
        assert (stored == "may be stored") == (int(code) in MAYBE_WRITTEN), name

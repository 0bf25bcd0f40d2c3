"""Each error has a number that never changes, and a row that says what the class says."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

from kprod.cli.error_pages import error_table
from kprod.errors import MAYBE_WRITTEN, RETRIABLE, BrokerError, ErrorCode, KprodError

ROOT = Path(__file__).parents[2]

NUMBERS = {number: row["class"] for number, row in error_table().items()}
"""They are in logs and tickets for ever: rows are added to the table, and no number changes."""
FACES = {"kafka/errors.py", "aio/errors.py"}
"""Classes under the names of other packages: each stands for an error that has a number."""


def class_of(number: str) -> type[KprodError]:
    module, _, name = NUMBERS[number].rpartition(".")
    found: type[KprodError] = getattr(importlib.import_module(module), name)
    return found


def classes_of_the_source() -> set[str]:
    """Every class below KprodError that a module of kprod defines, as the source has it."""
    classes: dict[str, tuple[set[str], str]] = {}
    for file in sorted((ROOT / "kprod").rglob("*.py")):
        place = str(file.relative_to(ROOT / "kprod"))
        if place in FACES:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                module = "kprod." + place.removesuffix(".py").replace("/", ".")
                classes[f"{module}.{node.name}"] = bases, node.name
    found = {"KprodError"}
    while True:
        more = {name for bases, name in classes.values() if bases & found} - found
        if not more:
            return {path for path, (_, name) in classes.items() if name in found}
        found |= more


def test_every_error_has_a_number_of_its_own() -> None:
    assert classes_of_the_source() == set(NUMBERS.values())
    assert {number: class_of(number).number for number in NUMBERS} == {
        number: number for number in NUMBERS
    }


def test_the_table_of_codes_is_that_of_the_code() -> None:
    row = re.compile(
        r"^\| (-?\d+) \| (\w+) \| (yes|no) \| (may be stored|not stored) \|", re.MULTILINE
    )
    told = row.findall(error_table()[BrokerError.number]["notes"])
    assert len(told) > 20
    for code, name, retriable, stored in told:
        assert ErrorCode(int(code)).name == name
        assert (retriable == "yes") == (int(code) in RETRIABLE), name
        assert (stored == "may be stored") == (int(code) in MAYBE_WRITTEN), name

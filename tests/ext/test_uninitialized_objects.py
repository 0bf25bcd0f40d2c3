"""Uninitialized objects do not crash; shared objects are hardened."""

from __future__ import annotations

import faulthandler
import importlib
import operator
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

import kprod_ext

OPERATIONS: list[Callable[..., object]] = [
    repr,
    hash,
    len,
    iter,
    operator.call,
    lambda one: one == uninitialized(type(one)),
    lambda one: one < uninitialized(type(one)),
    lambda one: one[0],
    memoryview,
    lambda one: one.__await__(),
]
WHOLE = {"Poller"}
"""Classes without ``__init__`` whose methods would wait for ever."""
ARGUMENTS: list[tuple[Any, ...]] = [(), (None,), (0,), (None, None), (0, 0), (None, None, None)]


def public_classes() -> Iterator[tuple[str, str]]:
    # A wheel has no sources.
    for compiled in sorted(Path(kprod_ext.__file__ or "").parent.glob("*.so")):
        module = importlib.import_module(f"kprod_ext.{compiled.name.partition('.')[0]}")
        for name, cls in sorted(vars(module).items()):
            if isinstance(cls, type) and cls.__module__ == module.__name__ and name[0] != "_":
                yield module.__name__, name


CLASSES = list(public_classes())


def test_uninitialized_objects_do_not_crash() -> None:
    """The last line of output names the class that crashed the process."""
    assert ("kprod_ext.futures", "FutureRecordMetadata") in CLASSES
    command = [sys.executable, "-m", __name__]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, (ran.stdout[-300:], ran.stderr[-2000:])


def uninitialized(cls: Any) -> Any:
    return cls.__new__(cls)


def use(cls: Any) -> None:
    """Apply every operation, and call every method, each with a new object."""
    for operation in OPERATIONS:
        attempt(cls, operation)
    for name in dir(cls):
        if not name.startswith("__") and cls.__name__ not in WHOLE:
            for arguments in ARGUMENTS:
                attempt(cls, called(name, arguments))


def called(name: str, arguments: tuple[Any, ...]) -> Callable[[Any], object]:
    def call(one: Any) -> object:
        found = getattr(one, name)
        return found(*arguments) if callable(found) else found

    return call


def attempt(cls: Any, operation: Callable[..., object]) -> None:
    try:
        operation(uninitialized(cls))
    except Exception as error:
        repr(error)


if __name__ == "__main__":
    faulthandler.enable()
    for module, name in CLASSES:
        print(module, name, flush=True)
        use(getattr(importlib.import_module(module), name))


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are properties of ELF files")
SHARED_OBJECTS = sorted(Path(kprod_ext.__file__ or "").parent.glob("*.so"))
WRITABLE_AND_EXECUTABLE = 0b011
BIND_NOW = 0x8


@pytest.mark.parametrize("path", SHARED_OBJECTS, ids=lambda path: path.name.partition(".")[0])
def test_a_shared_object_is_protected(path: Path) -> None:
    with path.open("rb") as file:
        elf = ELFFile(file)
        segments = list(elf.iter_segments())
        dynamic, symbols = map(elf.get_section_by_name, (".dynamic", ".dynsym"))
        assert isinstance(dynamic, DynamicSection)
        assert isinstance(symbols, SymbolTableSection)
        flags = {tag.entry.d_tag: tag.entry.d_val for tag in dynamic.iter_tags()}
        called = {symbol.name for symbol in symbols.iter_symbols()}
    # Addresses of functions are resolved at load time, and read-only afterwards.
    assert any(each["p_type"] == "PT_GNU_RELRO" for each in segments)
    assert flags.get("DT_FLAGS", 0) & BIND_NOW
    # Functions with arrays, or with variables whose address is taken, protect their stack.
    assert "__stack_chk_fail" in called
    assert not any(
        each["p_flags"] & WRITABLE_AND_EXECUTABLE == WRITABLE_AND_EXECUTABLE for each in segments
    )

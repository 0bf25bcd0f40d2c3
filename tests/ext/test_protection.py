"""What makes a mistake in compiled code hard to use for an attacker is in every shared object."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

import kprod_ext

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are properties of ELF files")

SHARED_OBJECTS = sorted(Path(kprod_ext.__file__ or "").parent.glob("*.so"))
WRITABLE_AND_EXECUTABLE = 0b011
BIND_NOW = 0x8


def test_they_are_found() -> None:
    assert len(SHARED_OBJECTS) > 10


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
    # Addresses of functions are looked up at once, and can only be read from then on.
    assert any(each["p_type"] == "PT_GNU_RELRO" for each in segments)
    assert flags.get("DT_FLAGS", 0) & BIND_NOW
    # Functions with arrays, or with variables whose address is taken, look after their frame.
    assert "__stack_chk_fail" in called
    assert not any(
        each["p_flags"] & WRITABLE_AND_EXECUTABLE == WRITABLE_AND_EXECUTABLE for each in segments
    )

"""What a process holds as the kernel sees it: memory, open files, threads. Linux only."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROCESSES = Path("/proc")


class HeldResources(NamedTuple):
    """Resident memory in bytes, open descriptors, threads."""

    memory: int
    files: int
    threads: int

    def __add__(self, other: object) -> HeldResources:
        """Of two processes together. Pages that both share count twice."""
        if not isinstance(other, HeldResources):
            return NotImplemented
        return HeldResources(*(mine + its for mine, its in zip(self, other, strict=True)))


def held_resources(pid: int | str = "self") -> HeldResources:
    """Of one process, this one by default. ``ProcessLookupError``: it has ended, or just ends."""
    folder = PROCESSES / str(pid)
    try:
        files, threads = (len(os.listdir(folder / name)) for name in ("fd", "task"))
        memory = resident_bytes(pid)
    except FileNotFoundError:
        raise ProcessLookupError(f"process {pid} has ended") from None
    if memory == 0:  # it waits for its parent to ask how it ended
        raise ProcessLookupError(f"process {pid} has ended")
    return HeldResources(memory, files, threads)


def resident_bytes(pid: int | str = "self") -> int:
    """The first of them alone, which is quicker; 0 once it has ended, then FileNotFoundError."""
    pages = (PROCESSES / str(pid) / "statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class _MallocInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and later (malloc.h)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd",
            "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def heap_bytes() -> int:
    """What this process has allocated by ``malloc`` and not freed, whatever pages that takes.

    Without the memory of Python's own small objects. It does not depend on what the allocator
    keeps for later, so a leak of a few bytes shows in it at once. Needs glibc.
    """
    told = ctypes.CDLL(None).mallinfo2
    told.restype = _MallocInfo
    found: _MallocInfo = told()
    return int(found.uordblks + found.hblkhd)


def descendants(pid: int) -> Iterator[int]:
    """The processes that ``pid`` has started, and those that they have started, as they are now."""
    children: dict[int, list[int]] = {}
    for folder in PROCESSES.glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
        children.setdefault(parent, []).append(int(folder.name))
    unseen = [pid]
    while unseen:
        found = children.get(unseen.pop(), [])
        yield from found
        unseen += found

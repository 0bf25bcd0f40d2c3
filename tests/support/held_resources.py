"""A process's memory, open files and threads, from the kernel. Linux only."""

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
        """The sum of two processes; shared pages count twice."""
        if not isinstance(other, HeldResources):
            return NotImplemented
        return HeldResources(*(mine + its for mine, its in zip(self, other, strict=True)))


def held_resources(pid: int | str = "self") -> HeldResources:
    """Those of one process. ``ProcessLookupError``: it has ended."""
    folder = PROCESSES / str(pid)
    try:
        files, threads = (len(os.listdir(folder / name)) for name in ("fd", "task"))
        memory = resident_bytes(pid)
    except FileNotFoundError:
        raise ProcessLookupError(f"process {pid} has ended") from None
    if memory == 0:  # a zombie
        raise ProcessLookupError(f"process {pid} has ended")
    return HeldResources(memory, files, threads)


def resident_bytes(pid: int | str = "self") -> int:
    """Only the memory, which is faster; 0 for a zombie, then FileNotFoundError."""
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
    """Bytes allocated by ``malloc`` and not freed, without Python's small objects. Needs glibc.

    Free memory that the allocator keeps does not count, so even a small leak is visible at once.
    """
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _MallocInfo
    found: _MallocInfo = mallinfo2()
    return int(found.uordblks + found.hblkhd)


def descendants(pid: int) -> Iterator[int]:
    """The current child processes of ``pid``, and theirs."""
    children: dict[int, list[int]] = {}
    for folder in PROCESSES.glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
        children.setdefault(parent, []).append(int(folder.name))
    unseen = [pid]
    while unseen:
        found = children.get(unseen.pop(), [])
        yield from found
        unseen += found

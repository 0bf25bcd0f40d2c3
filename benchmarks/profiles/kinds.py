"""What a processor was busy with, judged by the library it was found in."""

from __future__ import annotations

from pathlib import PurePath

RECORDS, CHECKSUM, CODEC, ENGINE, INTERPRETER, SYSTEM, OTHER = (
    "records",
    "checksum",
    "codec",
    "engine",
    "interpreter",
    "system",
    "other",
)
KINDS = {
    RECORDS: "writing records: compiled code, hashing, copying",
    CHECKSUM: "CRC-32C",
    CODEC: "compressing",
    ENGINE: "everything else that kprod has compiled: batches, queues, requests, outcomes",
    INTERPRETER: "the Python interpreter: calls, objects, what is not compiled",
    SYSTEM: "the kernel: sending, receiving, waking threads, giving memory",
    OTHER: "anything else",
}
"""In the order of tables."""

_BY_NAME = {
    "send": RECORDS,
    "bulk": RECORDS,
    "rows": RECORDS,
    "arrow": RECORDS,
    "partition_queue": RECORDS,
    "batch": RECORDS,
    "libc": RECORDS,  # nearly all of it is memmove
    "_crc32c": CHECKSUM,
    "lz4": CODEC,
    "_block": CODEC,
    "_frame": CODEC,
    "backend_c": CODEC,
    "libzstd": CODEC,
    "liblz4": CODEC,
    "[kernel": SYSTEM,
    "[vdso]": SYSTEM,
    "libpython3": INTERPRETER,
    "python3": INTERPRETER,
    "python": INTERPRETER,
}


def kind(library: str) -> str:
    """The kind of work that a library does; ``library`` is its path, as perf tells it."""
    path = PurePath(library)
    found = _BY_NAME.get(library.partition(".")[0]) or _BY_NAME.get(path.name.partition(".")[0])
    if found is not None:
        return found
    return ENGINE if {"kprod", "kprod_ext"} & set(path.parts) else OTHER

"""Random corruption of bytes."""

from __future__ import annotations

import random
import struct


def mutated(rng: random.Random, message: bytes) -> bytes:
    """The frame of a corrupted message; its size may be wrong as well."""
    data = bytearray(message)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(data)) if data else 0
        end = min(len(data), at + rng.choice((1, 1, 2, 4, 8)))
        kind = rng.randrange(8)
        if kind <= 2 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 3:
            data[at:end] = rng.choice((b"\xff", b"\0", b"\x7f", b"\x80")) * (end - at)
        elif kind == 4:
            data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 30)))
        elif kind == 5:
            data[at:at] = data[at : at + rng.randrange(60)] * rng.choice((1, 2, 50))
        elif kind == 6:
            del data[at:end]
        else:
            del data[at:]
    size = len(data)
    if not rng.randrange(12):
        size = rng.choice((0, -1, size - 1, size + 1, size + 40, 2**31 - 1, 17 * 1024 * 1024))
    return struct.pack(">i", size) + bytes(data)

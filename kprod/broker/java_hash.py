"""The hash of Java's strings, by which Kafka chooses a coordinator."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """The absolute value of ``String.hashCode()``; Kafka derives a partition from it."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        value = (31 * value + int.from_bytes(encoded[at : at + 2], "big")) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)

"""The hash of Java's strings, from which Kafka derives a group's or transaction's coordinator."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """Return the absolute value of Java's ``String.hashCode()``; 0 for -2^31, as in Kafka."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        value = (31 * value + int.from_bytes(encoded[at : at + 2], "big")) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)

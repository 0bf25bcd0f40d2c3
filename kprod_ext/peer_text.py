"""Text from peers, made safe for logs and errors: one line of limited length.

All text from a broker, a proxy or an issuer of tokens passes through this module, so the code
behind it can use any text. Names that Kafka accepts pass unchanged.
"""

from __future__ import annotations

LONGEST = 1000
"""Characters; topics, hosts and ids have 255 at the most."""
_MOST_BYTES = 4 * LONGEST


def printable(text: str) -> str:
    """Its first characters, those escaped that a terminal or a log could take for something else.

    Line breaks, escape codes, marks of the direction of writing: all that Python calls not
    printable. At most ``LONGEST`` characters, and three dots for omitted ones.
    """
    shown = text[:LONGEST]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)
    return shown if max(len(text), len(shown)) <= LONGEST else f"{shown[:LONGEST]}..."


def decoded(data: bytes | memoryview) -> str:
    """``printable`` of UTF-8. Raises UnicodeDecodeError, but not for omitted bytes."""
    if len(data) <= _MOST_BYTES:
        return printable(str(data, "utf-8"))
    return printable(str(data[:_MOST_BYTES], "utf-8", "replace"))

"""What others have written, on its way into logs and errors: one line, and not without end.

Whatever a broker, a proxy or an issuer of tokens calls a text comes in by this module, so that
nothing behind it has to ask where a text is from. Names that Kafka takes pass unchanged.
"""

from __future__ import annotations

LONGEST = 1000
"""Characters; topics, hosts and ids have 255 at the most."""
_MOST_BYTES = 4 * LONGEST


def printable(text: str) -> str:
    """Its first characters, those escaped that a terminal or a log could take for something else.

    Line breaks, escape codes, marks of the direction of writing: whatever is not printable to
    Python. At most ``LONGEST`` characters, and three dots for what is left out.
    """
    shown = text[:LONGEST]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)
    return shown if max(len(text), len(shown)) <= LONGEST else f"{shown[:LONGEST]}..."


def decoded(data: bytes | memoryview) -> str:
    """The same of UTF-8; what is left out is not looked at. Raises UnicodeDecodeError."""
    if len(data) <= _MOST_BYTES:
        return printable(str(data, "utf-8"))
    return printable(str(data[:_MOST_BYTES], "utf-8", "replace"))

"""Text from peers, made safe for logs and errors: one line of limited length.

All text from a broker, a proxy or a token issuer passes through this module, so other code can use
it safely. Names that Kafka accepts are unchanged.
"""

from __future__ import annotations

LONGEST = 1000
"""Characters; topics, hosts and ids have at most 255."""
_MOST_BYTES = 4 * LONGEST


def escaped(text: str, keep: str = "") -> str:
    """The text with unprintable characters escaped as in a Python string, except ``keep``.

    These include line breaks, escape codes and bidirectional marks, which could manipulate a
    terminal or a log.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def printable(text: str) -> str:
    """``escaped``, at most ``LONGEST`` characters, with three dots for omitted ones."""
    shown = escaped(text[:LONGEST])
    return shown if max(len(text), len(shown)) <= LONGEST else f"{shown[:LONGEST]}..."


def decoded(data: bytes | memoryview) -> str:
    """``printable`` of UTF-8. Raises UnicodeDecodeError, but not for omitted bytes."""
    if len(data) <= _MOST_BYTES:
        return printable(str(data, "utf-8"))
    return printable(str(data[:_MOST_BYTES], "utf-8", "replace"))

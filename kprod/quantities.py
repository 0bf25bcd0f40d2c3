"""Formats numbers with their unit or noun, for texts that people read."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 record``, ``2,000 records``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def in_seconds(seconds: float) -> str:
    """Seconds as text, for example ``0.05 s``, even if a sum of floats is 0.04999999."""
    return f"{round(seconds, 3):g} s"

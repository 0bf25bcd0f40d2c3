"""Numbers with what they count or measure, for texts that people read"""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 record``, ``2,000 records``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def in_seconds(seconds: float) -> str:
    """``0.05 s``, where the sum of many floats is 0.04999999."""
    return f"{round(seconds, 3):g} s"

"""The machine's time, which tests cannot freeze."""

def monotonic() -> float:
    """Seconds on the clock that ``time.monotonic`` reads. Any thread."""

def wall_ms() -> int:
    """Milliseconds since the epoch. Any thread."""

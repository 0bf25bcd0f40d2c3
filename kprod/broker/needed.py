"""What the embedded broker needs besides kprod: imported first, it says what is missing."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("kio") is None:
    raise ModuleNotFoundError(
        "the embedded broker, and what reads topics, needs kio: pip install 'kprod[broker]'",
        name="kio",
    )

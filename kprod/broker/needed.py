"""What the embedded broker needs besides kprod: imported first, it says what is missing."""

from __future__ import annotations

import sys
from importlib.util import find_spec

if find_spec("kio") is None:
    raise ModuleNotFoundError(
        "the embedded broker, and what reads topics, needs kio: pip install 'kprod[broker]'",
        name="kio",
    )

if "hypothesis" not in sys.modules:
    # Where Hypothesis is installed, kio imports it to register strategies for its types. That is a
    # third of the time of this import, and leaves a folder .hypothesis in the working directory.
    # An import that meets None fails, and kio goes on as where Hypothesis is not installed.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]

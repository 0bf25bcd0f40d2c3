"""The log of the sender's thread: a handler of the application that raises breaks off no turn."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any


class SenderLog(logging.LoggerAdapter[logging.Logger]):
    """Logs as the logger ``name`` does, and raises nothing."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Pass the message on. The handlers of the standard library keep their errors, too."""
        with suppress(Exception):
            super().log(level, msg, *args, **kwargs)

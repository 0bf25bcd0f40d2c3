"""The log of the sender thread. Exceptions of log handlers do not interrupt the sender loop."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any


class SenderLog(logging.LoggerAdapter[logging.Logger]):
    """Logs to the logger ``name``, and never raises."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log the message. Exceptions are suppressed, as in handlers of the standard library."""
        with suppress(Exception):
            super().log(level, msg, *args, **kwargs)

"""User and password of a producer, which the application may replace while it runs"""

from __future__ import annotations

from typing import Any


class Credentials:
    """Asked for at each login. Any thread. Its ``repr`` shows neither."""

    def __init__(self, username: str = "", password: str = "") -> None:
        self._pair = username, password

    def replace(self, username: Any, password: Any) -> None:
        """Use these from the next login on. Raises TypeError unless both are text."""
        if not isinstance(username, str) or not isinstance(password, str):
            raise TypeError("username and password must be str")
        self._pair = username, password

    def __call__(self) -> tuple[str, str]:
        """Both, from the same call of ``replace``."""
        return self._pair

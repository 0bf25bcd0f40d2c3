"""What an installed kafka-python has, so that its users' programs take ours for its own"""

from __future__ import annotations

import importlib
import warnings
from types import ModuleType


def theirs(name: str) -> ModuleType | None:
    """``kafka.<name>`` of an installed kafka-python, of any version; None without one.

    Whatever fails in there, and whatever else may bear that name, is not our user's trouble.
    """
    try:
        with warnings.catch_warnings():  # its own deprecations are not about our user's code
            warnings.simplefilter("ignore")
            found = importlib.import_module("kafka.errors")
            known = issubclass(found.KafkaError, Exception)
            return importlib.import_module(f"kafka.{name}") if known else None
    except Exception:
        return None


def also_theirs(kind: type, name: str) -> None:
    """Let ``isinstance(x, kafka.<name>.<class>)`` take instances of our class for those of theirs.

    So its consumer takes our deserializers. Version 3 has abstract classes, version 2 has none.
    """
    register = getattr(getattr(theirs(name), kind.__name__, None), "register", None)
    if callable(register):
        register(kind)

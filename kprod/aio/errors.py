"""Errors under aiokafka's names: real subclasses of its own where it is installed"""

from __future__ import annotations

import importlib
from functools import cache, lru_cache
from typing import Any, cast

from kprod.errors import KprodError, ProducerClosedError
from kprod.kafka import errors as face
from kprod.kafka.translation import translated

_RENAMED = {"ProducerClosed": "IllegalStateError"}


@lru_cache(maxsize=1)
def _theirs() -> Any:
    try:
        return importlib.import_module("aiokafka.errors")
    except Exception:  # not installed, or broken: its classes are a convenience, ours stand alone
        return None


@cache
def _kin(name: str) -> type[face.KafkaError]:
    """The face's class of this name, as a subclass of aiokafka's if there is one."""
    base: type[face.KafkaError] = getattr(face, _RENAMED.get(name, name))
    theirs = getattr(_theirs(), name, None)
    if not isinstance(theirs, type):
        return base
    named = {"__module__": __name__, "__qualname__": name, "__doc__": base.__doc__}
    return cast(type[face.KafkaError], face.Kin(name, (base, theirs), named))


def __getattr__(name: str) -> type[face.KafkaError]:
    if name.startswith("_") or not (name in _RENAMED or hasattr(face, name)):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _kin(name)


def for_aiokafka(error: KprodError) -> Exception:
    """What aiokafka would have raised, caused by ``error``."""
    told = translated(error)
    if not isinstance(told, face.KafkaError):
        return told
    name = "ProducerClosed" if isinstance(error, ProducerClosedError) else type(told).__name__
    made = _kin(name)(*told.args)
    made.__dict__.update(told.__dict__)
    made.__cause__ = error
    return made

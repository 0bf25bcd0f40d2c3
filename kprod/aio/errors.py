"""Errors under aiokafka's names: real subclasses of its own where it is installed"""

from __future__ import annotations

import importlib
from functools import cache, lru_cache
from typing import Any, cast

from kprod import errors as native  # its names are not those of this module
from kprod.kafka import errors as face
from kprod.kafka.errors import translated

_RENAMED = {
    "ProducerClosed": "IllegalStateError",
    "IllegalOperation": "IllegalStateError",
    "ProducerFenced": "ProducerFencedError",
    "CorruptRecordException": "CorruptRecordError",
    "StaleLeaderEpochCodeError": "NetworkExceptionError",
    "GroupLoadInProgressError": "CoordinatorLoadInProgressError",
    "GroupCoordinatorNotAvailableError": "CoordinatorNotAvailableError",
    "NotCoordinatorForGroupError": "NotCoordinatorError",
    "RecordTooLargeError": "MessageSizeTooLargeError",
    "KafkaUnavailableError": "KafkaError",
    "AuthenticationFailedError": "KafkaError",
    "AuthenticationMethodNotSupported": "KafkaError",
    "ConsumerStoppedError": "KafkaError",
    "InvalidMessageError": "CorruptRecordException",
}
"""The face's names for those of aiokafka's that are more than the same without ``Error``.

Those that stand for KafkaError are never raised by a producer, there or here.
"""
_BY_KIND: tuple[tuple[type[native.KprodError], str], ...] = (
    (native.ProducerClosedError, "ProducerClosed"),
    (native.IllegalStateError, "IllegalOperation"),
)
"""The first that fits counts."""

_OF_MANY = {"RetriableError", "InvalidMetadataError", "AuthorizationError"}
"""The face's classes that others inherit from, and aiokafka has not. Nothing that is raised is just
one of them."""


@lru_cache(maxsize=1)
def _theirs() -> Any:
    try:
        return importlib.import_module("aiokafka.errors")
    except Exception:  # not installed, or broken: its classes are a convenience, ours stand alone
        return None


@cache
def _kin(name: str) -> type[face.KafkaError]:
    """The face's class of this name, as a subclass of aiokafka's if it has one."""
    known = _face_name(name)
    base: type[face.KafkaError] = getattr(face, name) if known == name else _kin(known)
    named = {"__module__": __name__, "__qualname__": name, "__doc__": base.__doc__}
    found = [_theirs_of(name, base), _also(name)]
    # Those that it has not yet: a class may have another name, too.
    more = [kind for kind in found if kind is not None and not issubclass(base, kind)]
    if not more:
        return base
    return cast(type[face.KafkaError], face.Kin(name, (base, *more), named))


def _also(name: str) -> type | None:
    """What else one of the face's classes is here."""
    if name == "InvalidTopicError":  # kprod's own, a ValueError: it refuses such names itself
        return native.InvalidTopicError
    # A stale epoch is told there as a fenced producer.
    return _kin("ProducerFenced") if name == "InvalidProducerEpochError" else None


def _theirs_of(name: str, base: type[face.KafkaError]) -> type | None:
    """aiokafka's class of this name; its root where it has none, as for newer codes of brokers."""
    root = "UnknownError" if issubclass(base, face.BrokerResponseError) else "KafkaError"
    theirs = getattr(_theirs(), name, None)
    if theirs is None and name not in _OF_MANY and _their_name(name) == name:
        theirs = getattr(_theirs(), root, None)
    return theirs if isinstance(theirs, type) else None


def _face_name(name: str) -> str:
    """The face's name for this one: aiokafka leaves ``Error`` out of many."""
    if name in _RENAMED:
        return _RENAMED[name]
    return name if hasattr(face, name) else f"{name}Error"


def _their_name(name: str) -> str:
    """The name aiokafka has for one of the face's; the same if it has none."""
    names = [name, *(known for known, ours in _RENAMED.items() if ours == name)]
    names.append(name.removesuffix("Error"))
    return next((known for known in names if hasattr(_theirs(), known)), name)


def __getattr__(name: str) -> type[face.KafkaError]:
    if name.startswith("_") or not hasattr(face, _face_name(name)):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _kin(name)


def told_by_cluster(error: native.KprodError) -> native.KprodError:
    """Why a search for a topic was in vain, if the cluster has told; else the time-out itself.

    aiokafka raises the last answer (UnknownTopicOrPartitionError, LeaderNotAvailableError).
    """
    cause = error.__cause__
    if isinstance(error, native.KprodTimeoutError) and isinstance(cause, native.BrokerError):
        return cause
    return error


def _told_by_broker(error: native.KprodError) -> native.BrokerError | None:
    """The broker's own error behind one of kprod's, where aiokafka raises just that.

    That is: a transaction can only be aborted, a producer can only be closed, or a record has
    expired. A fenced producer has an error of its own there, too.
    """
    cause = error.__cause__
    came_of_it = isinstance(error, native.TransactionError | native.DeliveryTimeoutError)
    if (
        came_of_it
        and not isinstance(error, native.ProducerFencedError)
        and isinstance(cause, native.BrokerError)
    ):
        return cause
    return None


def for_aiokafka(error: native.KprodError) -> Exception:
    """The error that aiokafka would have raised, with the text of ``error``, and caused by it."""
    cause = _told_by_broker(error)
    told = translated(cause or error)
    if not isinstance(told, face.KafkaError | native.InvalidTopicError):
        return told
    named = (name for kind, name in _BY_KIND if isinstance(error, kind))
    words = told.args if cause is None else (str(error),)
    made = _kin(next(named, None) or _their_name(type(told).__name__))(*words)
    made.__dict__.update(told.__dict__)
    made.persisted, made.next_step = error.persisted, error.next_step
    made.number = told.number
    made.__cause__ = error
    return made

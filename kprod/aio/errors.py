"""Errors with aiokafka's names, which are subclasses of aiokafka's own if it is installed."""

from __future__ import annotations

import importlib
from functools import cache, lru_cache
from typing import Any, cast

from kprod import errors as native  # its class names differ from this module's
from kprod.kafka import errors as kafka_errors
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
"""kafka-python's names by aiokafka's name, where the difference is not just ``Error``.

Names that map to KafkaError are never raised by a producer, in either package.
"""
_BY_KIND: tuple[tuple[type[native.KprodError], str], ...] = (
    (native.ProducerClosedError, "ProducerClosed"),
    (native.IllegalStateError, "IllegalOperation"),
)
"""The first match applies."""

_OF_MANY = {"RetriableError", "InvalidMetadataError", "AuthorizationError"}
"""Base classes of ``kprod.kafka`` that aiokafka does not have. Errors raised are always of a
subclass."""


@lru_cache(maxsize=1)
def _theirs() -> Any:
    try:
        return importlib.import_module("aiokafka.errors")
    except Exception:  # not installed, or broken: our classes work without aiokafka's
        return None


@cache
def _derived(name: str) -> type[kafka_errors.KafkaError]:
    """The class of ``kprod.kafka`` with this name, and of aiokafka if aiokafka has such a class."""
    known = _kafka_name(name)
    base: type[kafka_errors.KafkaError] = (
        getattr(kafka_errors, name) if known == name else _derived(known)
    )
    named = {"__module__": __name__, "__qualname__": name, "__doc__": base.__doc__}
    found = [_theirs_of(name, base), _also(name)]
    # Skip bases it already has: one class may have two names.
    more = [kind for kind in found if kind is not None and not issubclass(base, kind)]
    if not more:
        return base
    return cast(
        type[kafka_errors.KafkaError], kafka_errors.DerivedFromNamesake(name, (base, *more), named)
    )


def _also(name: str) -> type | None:
    """A further base class, besides that of ``kprod.kafka``."""
    if name == "InvalidTopicError":  # kprod's own, a ValueError: kprod checks topic names itself
        return native.InvalidTopicError
    # aiokafka reports a stale epoch as a fenced producer.
    return _derived("ProducerFenced") if name == "InvalidProducerEpochError" else None


def _theirs_of(name: str, base: type[kafka_errors.KafkaError]) -> type | None:
    """aiokafka's class of this name, or its base class for a name that aiokafka does not know."""
    root = "UnknownError" if issubclass(base, kafka_errors.BrokerResponseError) else "KafkaError"
    theirs = getattr(_theirs(), name, None)
    if theirs is None and name not in _OF_MANY and _their_name(name) == name:
        theirs = getattr(_theirs(), root, None)
    return theirs if isinstance(theirs, type) else None


def _kafka_name(name: str) -> str:
    """kafka-python's name of a class. aiokafka's name often omits ``Error``."""
    if name in _RENAMED:
        return _RENAMED[name]
    return name if hasattr(kafka_errors, name) else f"{name}Error"


def _their_name(name: str) -> str:
    """aiokafka's name of a class; kafka-python's name if aiokafka has no such class."""
    names = [name, *(known for known, ours in _RENAMED.items() if ours == name)]
    names.append(name.removesuffix("Error"))
    return next((known for known in names if hasattr(_theirs(), known)), name)


def __getattr__(name: str) -> type[kafka_errors.KafkaError]:
    if name.startswith("_") or not hasattr(kafka_errors, _kafka_name(name)):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _derived(name)


def cluster_error(error: native.KprodError) -> native.KprodError:
    """The cluster's reason why a topic was not found; the time-out itself if there is none.

    aiokafka raises the last answer (UnknownTopicOrPartitionError, LeaderNotAvailableError).
    """
    cause = error.__cause__
    if isinstance(error, native.KprodTimeoutError) and isinstance(cause, native.BrokerError):
        return cause
    return error


def _broker_error(error: native.KprodError) -> native.BrokerError | None:
    """The broker's error that caused ``error``, in cases where aiokafka raises the cause.

    The cases are: a transaction that can only be aborted, a producer that can only be closed, and a
    record that has expired. A fenced producer is not one of them.
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
    """The error that aiokafka would raise, with the text of ``error``."""
    cause = _broker_error(error)
    known = translated(cause or error)
    if not isinstance(known, kafka_errors.KafkaError | native.InvalidTopicError):
        return known
    named = (name for kind, name in _BY_KIND if isinstance(error, kind))
    words = known.args if cause is None else (str(error),)
    made = _derived(next(named, None) or _their_name(type(known).__name__))(*words)
    made.__dict__.update(known.__dict__)
    made.persisted, made.next_step = error.persisted, error.next_step
    made.number = known.number
    made.__cause__ = error
    return made

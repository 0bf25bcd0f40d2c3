"""KafkaError and KafkaException with librdkafka's codes, and the translation to them."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from typing import Any, TypeAlias

from kprod import errors as native
from kprod.confluent.error_codes import BROKER, LOCAL
from kprod.sender.retry import FENCING
from kprod.types import NextStep, Persisted
from kprod_ext.confluent import CLOSED

_KNOWN = {**LOCAL, **BROKER}
_Text: TypeAlias = str  # within KafkaError that name is a method


class _Codes(type):
    """Provides each code as an attribute of the class: ``KafkaError._MSG_TIMED_OUT``."""

    def __getattr__(cls, name: str) -> int:
        for code, (known, _) in _KNOWN.items():
            if known == name:
                return code
        raise AttributeError(f"type object 'KafkaError' has no attribute {name!r}")


class _Root(Exception):
    """The base of KafkaException until a program imports confluent_kafka."""


class KafkaException(_Root):
    """An exception that has a KafkaError as ``args[0]``.

    If the program also imports confluent_kafka, for example for its consumer, ``except
    confluent_kafka.KafkaException`` also catches this class: see ``also_theirs``.
    """


class KafkaError(KafkaException, metaclass=_Codes):
    """An error code, its name and a message. Immutable; compares equal to its code.

    A KafkaError can be raised, because it is also a KafkaException. Its ``args[0]`` is the
    KafkaError itself.
    """

    def __init__(
        self,
        error: int,
        reason: str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        self._code, self._name, self._words = error, f"ERR_{error}?", f"Err-{error}?"
        self._fatal, self._retriable = fatal, retriable
        self._txn_requires_abort = txn_requires_abort
        self._name, words = _KNOWN.get(error, (self._name, self._words))
        self._words = reason or words

    @property
    def args(self) -> tuple[Any, ...]:  # type: ignore[override]
        """The tuple of the error itself: every KafkaException has a KafkaError as ``args[0]``."""
        return (self,)

    def code(self) -> int:
        """librdkafka's number. It is below -1 for errors of the client itself."""
        return self._code

    def name(self) -> str:
        """The name of the code."""
        return self._name

    def str(self) -> str:
        """The text of the error."""
        return self._words

    def fatal(self) -> bool:
        """Whether the producer cannot send any more."""
        return self._fatal

    def retriable(self) -> bool:
        """Whether the same call may succeed later."""
        return self._retriable

    def txn_requires_abort(self) -> bool:
        """Whether the transaction must be aborted before anything else can be done."""
        return self._txn_requires_abort

    def __eq__(self, other: object) -> bool:
        return self._code == (other._code if isinstance(other, KafkaError) else other)

    def __hash__(self) -> int:
        return hash(self._code)

    def __reduce__(self) -> tuple[Any, ...]:
        flags = self._fatal, self._retriable, self._txn_requires_abort
        return KafkaError, (self._code, self._words, *flags)

    def __repr__(self) -> _Text:
        fatal = "FATAL," if self._fatal else ""
        return f'KafkaError{{{fatal}code={self._name},val={self._code},str="{self._words}"}}'

    __str__ = __repr__


class ProduceError(KafkaException):
    """A record could not be produced. ``exception`` is the cause."""

    def __init__(self, kafka_error: KafkaError, exception: Exception | None = None) -> None:
        Exception.__init__(self, kafka_error)  # super() may be a class of confluent_kafka
        self.exception = exception

    @property
    def code(self) -> int:
        """librdkafka's number."""
        return self.args[0].code()  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        """The name of the code."""
        return self.args[0].name()  # type: ignore[no-any-return]


class KeySerializationError(ProduceError):
    """The key's serializer failed."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._KEY_SERIALIZATION, str(exception)), exception)


class ValueSerializationError(ProduceError):
    """The value's serializer failed."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._VALUE_SERIALIZATION, str(exception)), exception)


_OF_THEIRS: Mapping[type[KafkaException], str] = {
    KafkaException: "confluent_kafka",
    ProduceError: "confluent_kafka.error",
    KeySerializationError: "confluent_kafka.error",
    ValueSerializationError: "confluent_kafka.error",
}
"""Exceptions, with the modules that have a class of the same name. A base is before its classes."""


def also_theirs() -> None:
    """Make exceptions subclasses of confluent_kafka's, if the program has imported that.

    ``except`` needs real inheritance. Importing confluent_kafka here would load librdkafka and
    asyncio in programs that no longer use that package.
    """
    for kind, module in _OF_THEIRS.items():
        theirs = getattr(sys.modules.get(module), kind.__name__, None)
        if isinstance(theirs, type) and not issubclass(kind, theirs):
            kind.__bases__ = (*(base for base in kind.__bases__ if base is not _Root), theirs)


class Purged(native.KprodError, number="KP-1801"):
    """``purge`` discarded the record. ``persisted`` says whether it may have been stored."""


_CODES: tuple[tuple[type[native.KprodError], int], ...] = (
    (native.BufferFullError, -184),
    (native.TransactionTimeoutError, -185),
    (native.ProducerFencedError, -144),
    (native.TransactionAbortedError, -152),
    (native.UnfinishedCallError, -173),
    (native.IllegalStateError, -172),
    (native.KprodTimeoutError, -192),
    (native.PartitionError, -190),
    (native.InvalidTopicError, 17),
    (native.InvalidRecordError, -186),
    (native.RecordTooLargeError, 10),
    (native.ConnectionLost, -195),
    (native.TlsAuthenticationError, -181),
    (native.AuthenticationError, -169),
    (native.ConfigError, -186),
    (native.UnsupportedVersionError, -165),
    (native.ProtocolError, -199),
    (native.InvalidBatchError, -138),
)
"""The first match applies."""


def from_native(error: BaseException) -> KafkaError:
    """The KafkaError for an error of kprod. Without a matching code, the code is ``_FAIL``."""
    if isinstance(error, native.BrokerError):
        detail = error.detail
        words = _KNOWN.get(error.code, ("", error.name))[1]
        return KafkaError(
            error.code, f"{words}: {detail}" if detail else None, retriable=error.retriable
        )
    if isinstance(error, native.ProducerClosedError | Purged):
        return KafkaError(-152 if error.persisted is Persisted.NO else -151)
    if isinstance(error, native.TransactionError):
        return _of_transaction(error)
    code = next((code for kind, code in _CODES if isinstance(error, kind)), -196)
    if isinstance(error.__cause__, socket.gaierror):
        code = -193
    words = f"{_KNOWN[code][1]}: {native.numbered(error)}"
    again = isinstance(error, native.UnfinishedCallError)  # retriable after the other call
    return KafkaError(code, words, retriable=again or bool(getattr(error, "retriable", False)))


def failure_of_call(error: native.KprodError) -> KafkaException:
    """The error of a call that waits. The code is ``_DESTROY`` if another thread has closed."""
    if isinstance(error, native.ProducerClosedError):
        return KafkaException(KafkaError(KafkaError._DESTROY, CLOSED))
    return KafkaException(from_native(error))


def _of_transaction(error: native.TransactionError) -> KafkaError:
    """The error of a transaction, with the code of its cause if a broker sent the cause.

    As in librdkafka, a producer counts as fenced as soon as any broker reports an old epoch.
    """
    code = next((code for kind, code in _CODES if isinstance(error, kind)), -196)
    cause = error.__cause__
    if code == -196 and isinstance(cause, native.BrokerError):
        code = KafkaError._FENCED if cause.code in FENCING else cause.code
    abort = error.next_step is NextStep.ABORT and code != KafkaError._FENCED
    return KafkaError(code, error.with_number(), fatal=not abort, txn_requires_abort=abort)


def raise_unless_unassigned(failure: native.KprodError | None) -> None:
    """Raise what confluent_kafka raises for a refused record.

    Does not raise errors about an unknown or invalid topic, because the record's delivery report
    contains them. Raises BufferError, KafkaException, RuntimeError after ``close``, and TypeError
    unchanged.
    """
    if isinstance(failure, native.ProducerClosedError):
        raise RuntimeError(CLOSED) from failure
    if isinstance(failure, native.BufferFullError):
        raise BufferError(KafkaError(KafkaError._QUEUE_FULL).str()) from failure
    if isinstance(failure, native.RecordTypeError):
        raise failure
    reported = native.KprodTimeoutError | native.InvalidTopicError
    if failure is not None and not isinstance(failure, reported):
        raise KafkaException(from_native(failure)) from failure
